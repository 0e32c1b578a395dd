//! How far upgrades are, for the controllers of the custom resources that show it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_api::gpu::{ClusterPolicy, NvidiaDriver};
use capstan_operands::gpu::upgrade::Report;
use capstan_plan::Gvk;
use capstan_runtime::queue::Queue;
use capstan_runtime::{Cache, Key};

/// Reports by NVIDIADriver, or under an empty name for the ClusterPolicy. Clones share one state.
#[derive(Clone, Default)]
pub(in crate::gpu) struct Board {
    shared: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    reports: Option<BTreeMap<String, Report>>,
    readers: Vec<Reader>,
}

/// Looks again at the objects of a kind.
struct Reader {
    gvk: Gvk,
    cache: Cache,
    queue: Queue<Key>,
}

impl Board {
    /// Has the objects of a kind looked at again when their report changes. Other kinds have no drivers of their own.
    pub(in crate::gpu) fn tell(&self, gvk: Gvk, cache: &Cache, queue: &Queue<Key>) {
        if [Gvk::of::<ClusterPolicy>(), Gvk::of::<NvidiaDriver>()].contains(&gvk) {
            self.state().readers.push(Reader { gvk, cache: cache.clone(), queue: queue.clone() });
        }
    }

    /// What is known; `None` before the first pass.
    pub(in crate::gpu) fn reports(&self) -> Option<BTreeMap<String, Report>> {
        self.state().reports.clone()
    }

    /// Takes in what a pass came to.
    pub(super) fn publish(&self, reports: BTreeMap<String, Report>) {
        let mut state = self.state();
        let before = state.reports.take();
        let changed = |name: &str| before.as_ref().is_none_or(|before| before.get(name) != reports.get(name));
        for Reader { gvk, cache, queue } in &state.readers {
            for key in cache.keys(gvk) {
                let name = if *gvk == Gvk::of::<ClusterPolicy>() { "" } else { &*key.name };
                if changed(name) {
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
