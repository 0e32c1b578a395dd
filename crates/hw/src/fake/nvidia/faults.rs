//! Fault injection for fake GPUs by lines of text, so that a test can break a GPU of a running agent.
//!
//! The text is the current set of faults: a new line injects a fault, a removed line clears it.

use std::collections::BTreeSet;
use std::str::FromStr;

use super::Fake;
use crate::gpu::nvidia::Recovery;

/// A fault of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// It reports an XID, once.
    Xid(u64),
    /// It fell off the bus.
    Lost,
    /// The driver reports that a reset is needed.
    Reset,
}

/// Faults by GPU index: `3 xid 48`, `3 lost` or `3 reset`, one per line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Faults(BTreeSet<(u32, Fault)>);

impl FromStr for Faults {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.map(|line| fault(line).ok_or_else(|| wrong(line))).collect::<Result<_, _>>().map(Self)
    }
}

fn fault(line: &str) -> Option<(u32, Fault)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (gpu, rest) = words.split_first()?;
    let fault = match rest {
        ["xid", number] => Fault::Xid(number.parse().ok()?),
        ["lost"] => Fault::Lost,
        ["reset"] => Fault::Reset,
        _ => return None,
    };
    Some((gpu.parse().ok()?, fault))
}

fn wrong(line: &str) -> String {
    format!("'{line}' is no fault; write the index of a GPU and xid 48, lost or reset")
}

impl Fake {
    /// Injects new faults and clears removed ones.
    pub fn apply_faults(&self, before: &Faults, now: &Faults) {
        let uuid = |index: u32| {
            let state = self.state();
            let gpu = state.recording.inventory.gpus.iter().find(|gpu| gpu.index == index);
            gpu.map(|gpu| gpu.uuid.clone())
        };
        for &(gpu, fault) in before.0.difference(&now.0) {
            match (uuid(gpu), fault) {
                (Some(gpu), Fault::Lost) => self.restore(&gpu),
                (Some(gpu), Fault::Reset) => self.set_recovery(&gpu, Recovery::None),
                (Some(_), Fault::Xid(_)) | (None, _) => {}
            }
        }
        for &(gpu, fault) in now.0.difference(&before.0) {
            match (uuid(gpu), fault) {
                (Some(gpu), Fault::Xid(number)) => self.xid(&gpu, number, None),
                (Some(gpu), Fault::Lost) => self.lose(&gpu),
                (Some(gpu), Fault::Reset) => self.set_recovery(&gpu, Recovery::Reset),
                (None, _) => tracing::warn!(gpu, "unknown GPU in faults file; ignored"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Model, node};
    use crate::gpu::nvidia::{EventKind, Hardware};
    use proptest::prelude::*;
    use std::time::Duration;

    fn faults(text: &str) -> Faults {
        text.parse().expect(text)
    }

    #[test]
    fn a_line_that_appears_happens_and_one_that_goes_is_mended() {
        let fake = Fake::new(node(Model::H200, 8));
        let gpu = fake.inventory().expect("GPUs").gpus[3].uuid.clone();
        let mut subscription = fake.watch().expect("subscribed");
        let (none, broken) = (Faults::default(), faults("# a test\n3 xid 48\n\n3 reset\n 7 lost \n"));
        fake.apply_faults(&none, &broken);
        let event = subscription.events.next(Duration::from_secs(5)).expect("received").expect("an event");
        assert_eq!((event.gpu.as_deref(), event.kind), (Some(gpu.as_str()), EventKind::Xid(48)));
        assert_eq!(fake.recovery(&gpu), Ok(Recovery::Reset));
        let left = fake.inventory().expect("the others");
        assert_eq!((left.gpus.len(), left.lost.len()), (7, 1));
        fake.apply_faults(&broken, &none);
        assert_eq!(fake.recovery(&gpu), Ok(Recovery::None));
        assert_eq!(fake.inventory().expect("all").gpus.len(), 8);
    }

    #[test]
    fn what_is_no_fault_is_named() {
        for text in ["3", "3 xid", "x lost", "3 xid y", "3 lost now", "lost"] {
            assert!(text.parse::<Faults>().expect_err(text).contains(text));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[0-9a-z #\\n]{0,40}") {
            let _ = text.parse::<Faults>();
        }
    }
}
