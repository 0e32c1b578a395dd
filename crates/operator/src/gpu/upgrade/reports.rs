//! Upgrade progress, for the controllers of the custom resources that report it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_operands::gpu::upgrade::Report;
use capstan_plan::Gvk;
use capstan_runtime::queue::Queue;
use capstan_runtime::{Cache, Key};

/// Reports by NVIDIADriver, or under an empty name for the ClusterPolicy. Clones share one state.
#[derive(Clone, Default)]
pub(in crate::gpu) struct UpgradeReports {
    shared: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    reports: Option<BTreeMap<String, Report>>,
    readers: Vec<Reader>,
}

/// Requeues the objects of a kind.
struct Reader {
    gvk: Gvk,
    report: fn(&Key) -> &str,
    cache: Cache,
    queue: Queue<Key>,
}

impl UpgradeReports {
    /// Requeues the objects of a kind when their report changes; `report` maps a key to the name of its report.
    pub(in crate::gpu) fn notify(&self, gvk: Gvk, report: fn(&Key) -> &str, cache: &Cache, queue: &Queue<Key>) {
        self.state().readers.push(Reader { gvk, report, cache: cache.clone(), queue: queue.clone() });
    }

    /// The current reports; `None` before the first pass.
    pub(in crate::gpu) fn current(&self) -> Option<BTreeMap<String, Report>> {
        self.state().reports.clone()
    }

    /// Stores the reports of a pass and requeues the objects whose report changed.
    pub(super) fn publish(&self, reports: BTreeMap<String, Report>) {
        let mut state = self.state();
        let before = state.reports.take();
        let changed = |name: &str| before.as_ref().is_none_or(|before| before.get(name) != reports.get(name));
        for Reader { gvk, report, cache, queue } in &state.readers {
            for key in cache.keys(gvk) {
                if changed(report(&key)) {
                    queue.add(key);
                }
            }
        }
        state.reports = Some(reports);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
