//! Which devices are fit to be handed out, by the faults that the driver reports and by what it wants done about them.
//!
//! A fault marks every device that it concerns: all replicas, all MIG devices of the GPU unless it is confined to
//! one. A device is well again when its GPU answers, the driver wants nothing done and no fault came for a while.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use capstan_hw::Error;
use capstan_hw::gpu::nvidia::{Event, EventKind, Events, Hardware, Inventory, Recovery, Source};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use super::devices::{Device, Resource};

/// XIDs that a program causes and a GPU survives.
const HARMLESS: [u64; 6] = [13, 31, 43, 45, 68, 109];

/// Which XIDs count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Xids {
    /// None: health is not looked at.
    Off,
    /// All but these.
    AllBut(BTreeSet<u64>),
    /// These alone.
    Only(BTreeSet<u64>),
}

impl Xids {
    /// From the two variables; words that are neither numbers nor known are returned.
    pub(crate) fn parse(disable: &str, enable: &str) -> (Self, Vec<String>) {
        let mut unknown = Vec::new();
        let (no_checks, ignored) = words(disable, &["all", "xids"], &mut unknown);
        let (every, wanted) = words(enable, &["all"], &mut unknown);
        let xids = match (no_checks, every) {
            (_, true) => Self::AllBut(BTreeSet::new()),
            (true, false) if wanted.is_empty() => Self::Off,
            (true, false) => Self::Only(wanted),
            (false, false) => {
                let ignored: BTreeSet<u64> = ignored.into_iter().chain(HARMLESS).collect();
                Self::AllBut(ignored.difference(&wanted).copied().collect())
            }
        };
        (xids, unknown)
    }

    fn counts(&self, xid: u64) -> bool {
        match self {
            Self::Off => false,
            Self::AllBut(ignored) => !ignored.contains(&xid),
            Self::Only(wanted) => wanted.contains(&xid),
        }
    }
}

/// Numbers of a list, and whether it has one of the words that mean everything.
fn words(list: &str, every: &[&str], unknown: &mut Vec<String>) -> (bool, BTreeSet<u64>) {
    let (mut all, mut numbers) = (false, BTreeSet::new());
    for word in list.split(',').map(|word| word.trim().to_ascii_lowercase()).filter(|word| !word.is_empty()) {
        match word.parse() {
            Ok(number) => drop(numbers.insert(number)),
            Err(_) if every.contains(&word.as_str()) => all = true,
            Err(_) => unknown.push(word),
        }
    }
    (all, numbers)
}

/// Why a device may not be handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The driver reported an XID.
    Xid(u64),
    /// The GPU fell off the bus.
    Lost,
    /// Broken memory could not be replaced.
    Remap,
    /// The driver wants something done first.
    Recovery(Recovery),
    /// The driver reported a fault and could not say of which GPU.
    Unnamed,
    /// The GPU should report faults and refused.
    Refused(String),
    /// The driver does not answer.
    Driver(String),
    /// The daemon that shares the GPU does not answer.
    Mps(String),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Xid(xid) => write!(f, "XID {xid}"),
            Self::Lost => f.write_str("the GPU fell off the bus"),
            Self::Remap => f.write_str("broken memory could not be replaced"),
            Self::Recovery(action) => write!(f, "the driver wants it recovered: {action:?}"),
            Self::Unnamed => f.write_str("the driver reported a fault without naming the GPU"),
            Self::Refused(why) => write!(f, "the GPU reports no faults: {why}"),
            Self::Driver(why) => write!(f, "the driver does not answer: {why}"),
            Self::Mps(why) => write!(f, "the MPS daemon does not answer: {why}"),
        }
    }
}

/// A device that may not be handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnhealthyDevice {
    /// Why.
    pub cause: Cause,
    /// When that was last heard.
    pub since: Instant,
}

/// UUIDs of sick devices.
pub(crate) type UnhealthyDevices = BTreeMap<String, UnhealthyDevice>;

/// Devices of all resources, each once.
pub(crate) fn all(resources: &[Resource]) -> impl Iterator<Item = &Device> {
    resources.iter().flat_map(|resource| &resource.devices)
}

/// The devices that an event concerns.
pub(crate) fn affected<'a>(event: &Event, resources: &'a [Resource]) -> Vec<&'a str> {
    let concerned = |device: &&Device| match (&event.gpu, event.instance, device.instance) {
        (None, _, _) => true,
        (Some(gpu), Some(fault), Some(own)) => *gpu == device.gpu && fault == own,
        (Some(gpu), _, _) => *gpu == device.gpu,
    };
    all(resources).filter(concerned).map(|device| device.id.as_str()).collect()
}

/// What an event says about the devices that it concerns. Memory errors alone say nothing: broken memory is
/// replaced, and the check that follows finds out when it could not be.
pub(crate) fn verdict(event: &Event, xids: &Xids) -> Option<Cause> {
    match event.kind {
        EventKind::Xid(_) if event.gpu.is_none() => Some(Cause::Unnamed),
        EventKind::Xid(79) if xids.counts(79) => Some(Cause::Lost),
        EventKind::Xid(xid) => xids.counts(xid).then_some(Cause::Xid(xid)),
        EventKind::SingleBitEcc | EventKind::DoubleBitEcc => None,
    }
}

/// What a GPU says when asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Condition {
    /// Its memory could not be mended.
    pub remap_failed: bool,
    /// What the driver wants done, or why it does not say.
    pub recovery: Result<Recovery, Error>,
}

/// Asks every GPU how it is.
pub(crate) fn conditions(hardware: &dyn Hardware, inventory: &Inventory) -> BTreeMap<String, Condition> {
    let ask = |gpu: &capstan_hw::gpu::nvidia::Gpu| {
        let remap_failed = hardware.reading(&gpu.uuid).is_ok_and(|reading| reading.remap_failed == Some(true));
        (gpu.uuid.clone(), Condition { remap_failed, recovery: hardware.recovery(&gpu.uuid) })
    };
    inventory.gpus.iter().map(ask).collect()
}

/// What the answers make of the sick list: who is sick now, who has been well for long enough.
pub(crate) fn judge(
    sick: &UnhealthyDevices,
    resources: &[Resource],
    conditions: &BTreeMap<String, Condition>,
    now: Instant,
    quiet: Duration,
) -> UnhealthyDevices {
    let mut judged = UnhealthyDevices::new();
    for device in all(resources) {
        let before = sick.get(&device.id);
        let fault = conditions.get(&device.gpu).and_then(|condition| match condition.recovery {
            Err(Error::Lost | Error::NotFound(_)) => Some(Cause::Lost),
            _ if condition.remap_failed => Some(Cause::Remap),
            Ok(action @ (Recovery::Reset | Recovery::Reboot | Recovery::DrainAndReset)) => {
                Some(Cause::Recovery(action))
            }
            _ => None,
        });
        let well = conditions.get(&device.gpu).is_some_and(|condition| {
            // A driver that does not know the question wants nothing.
            matches!(condition.recovery, Ok(Recovery::None) | Err(Error::NotSupported))
        });
        let stays = |sick: &&UnhealthyDevice| match sick.cause {
            // Someone else takes these away.
            Cause::Driver(_) | Cause::Mps(_) => true,
            _ => !well || now.duration_since(sick.since) < quiet,
        };
        match (fault, before) {
            // What was heard first says more than what follows from it.
            (Some(_), Some(before)) => drop(judged.insert(device.id.clone(), before.clone())),
            (Some(cause), None) => drop(judged.insert(device.id.clone(), UnhealthyDevice { cause, since: now })),
            (None, before) => {
                if let Some(before) = before.filter(stays) {
                    judged.insert(device.id.clone(), before.clone());
                }
            }
        }
    }
    judged
}

/// What the listener heard.
#[derive(Debug)]
pub(crate) enum HealthEvent {
    /// A fault.
    Event(Event),
    /// Listening began: GPUs that refused, and GPUs that cannot report.
    Listening(Vec<(String, Error)>, Vec<String>),
    /// The driver does not answer.
    Down(Error),
}

/// Longest wait for one event: how long the thread may outlive its listener.
const WAIT: Duration = Duration::from_secs(5);

/// Listens for faults on a thread of its own, since the driver's call blocks, until no one wants to hear. `again`
/// makes it listen anew, to GPUs that were not there before.
pub(crate) fn listen(
    source: Arc<Source>,
    heard: UnboundedSender<HealthEvent>,
    again: Arc<AtomicBool>,
    retry: Duration,
) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name("gpu-events".into()).stack_size(256 << 10);
    thread.spawn(move || {
        let mut pause = retry.min(Duration::from_secs(1));
        while !heard.is_closed() {
            let error = match source.get().and_then(|hardware| hardware.watch()) {
                Ok(mut watched) => {
                    pause = retry.min(Duration::from_secs(1));
                    let _ = heard.send(HealthEvent::Listening(watched.refused, watched.silent));
                    match hear(&mut *watched.events, &heard, &again) {
                        None => None,
                        Some(error) => {
                            tracing::warn!(%error, "waiting for GPU events failed; resubscribing");
                            // A library that failed is not asked again: the driver may be another one now.
                            source.forget();
                            answers(&source).err()
                        }
                    }
                }
                Err(error) => {
                    source.forget();
                    Some(error)
                }
            };
            let Some(error) = error else { continue };
            let _ = heard.send(HealthEvent::Down(error));
            std::thread::park_timeout(pause);
            pause = (pause * 2).min(retry);
        }
    })?;
    Ok(())
}

/// Passes events on until no one hears, until it should be listened anew, or until waiting fails.
fn hear(events: &mut dyn Events, heard: &UnboundedSender<HealthEvent>, again: &AtomicBool) -> Option<Error> {
    while !heard.is_closed() && !again.swap(false, Ordering::Relaxed) {
        match events.next(WAIT) {
            Ok(Some(event)) => drop(heard.send(HealthEvent::Event(event))),
            Ok(None) => {}
            Err(error) => return Some(error),
        }
    }
    None
}

/// Whether the driver answers when it is opened anew.
fn answers(source: &Source) -> capstan_hw::Result<()> {
    source.get()?.inventory().map(drop).or_else(|error| match error {
        // One lost GPU does not mean that the driver is gone.
        Error::Lost => Ok(()),
        other => Err(other),
    })
}
