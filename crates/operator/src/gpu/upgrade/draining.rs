//! Nodes that are being drained: their pods, which are watched only meanwhile, and the results of evictions. A new
//! leader rebuilds it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_operands::gpu::upgrade::POLL_SECONDS;
use capstan_plan::Live;
use capstan_runtime::Runtime;
use capstan_runtime::cache::ScopedWatch;
use capstan_runtime::kinds::NODE_PODS;
use capstan_runtime::writer::Evicted;
use tokio::time::Instant;

/// Interval between eviction attempts of a pod.
const EVICTION_RETRY: Duration = Duration::from_secs(POLL_SECONDS.unsigned_abs());

/// State between two passes.
#[derive(Default)]
pub(super) struct DrainingPods {
    watches: Mutex<BTreeMap<String, ScopedWatch>>,
    evictions: Mutex<HashMap<String, (Instant, Option<String>)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DrainingPods {
    /// Watches the pods of these nodes, and stops other watches.
    pub(super) fn watch(&self, runtime: &Runtime, nodes: &BTreeSet<String>) {
        let mut watches = lock(&self.watches);
        watches.retain(|node, _| nodes.contains(node));
        for node in nodes {
            watches.entry(node.clone()).or_insert_with(|| {
                let selector = format!("spec.nodeName={node}");
                runtime.cache.watch_scoped(runtime.client.clone(), &NODE_PODS, selector)
            });
        }
        lock(&self.evictions).retain(|_, (at, _)| at.elapsed() < 4 * EVICTION_RETRY);
    }

    /// The pods of nodes whose watch has synced.
    pub(super) fn pods(&self) -> HashMap<String, Vec<Live>> {
        let watches = lock(&self.watches);
        watches.iter().filter_map(|(node, watches)| Some((node.clone(), watches.objects()?))).collect()
    }

    /// Why evictions were rejected, by pod uid.
    pub(super) fn refusals(&self) -> HashMap<String, String> {
        let evictions = lock(&self.evictions);
        evictions.iter().filter_map(|(uid, (_, refused))| Some((uid.clone(), refused.clone()?))).collect()
    }

    /// Whether an eviction of a pod is due.
    pub(super) fn is_due(&self, uid: &str) -> bool {
        lock(&self.evictions).get(uid).is_none_or(|(at, _)| at.elapsed() >= EVICTION_RETRY)
    }

    /// Records the result of an eviction; true if it is a rejection with a new reason.
    pub(super) fn record_result(&self, uid: &str, result: Evicted) -> bool {
        let refused = match result {
            Evicted::Yes => None,
            Evicted::Refused(why) => Some(why),
        };
        let before = lock(&self.evictions).insert(uid.into(), (Instant::now(), refused.clone()));
        refused.is_some() && before.and_then(|(_, why)| why) != refused
    }
}
