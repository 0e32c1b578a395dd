//! Nodes that are being emptied: their pods, which are watched only as long as that takes, and what the server answered
//! to evictions. Whoever takes over finds out again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_operands::gpu::upgrade::POLL_SECONDS;
use capstan_plan::Live;
use capstan_runtime::Runtime;
use capstan_runtime::cache::Followed;
use capstan_runtime::kinds::NODE_PODS;
use capstan_runtime::writer::Evicted;
use tokio::time::Instant;

/// An answer counts for so long; then the eviction is tried again.
const COUNTS: Duration = Duration::from_secs(POLL_SECONDS.unsigned_abs());

/// What is remembered between two passes.
#[derive(Default)]
pub(super) struct DrainingPods {
    followed: Mutex<BTreeMap<String, Followed>>,
    asked: Mutex<HashMap<String, (Instant, Option<String>)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DrainingPods {
    /// Follows the pods of these nodes, and of no others any more.
    pub(super) fn follow(&self, runtime: &Runtime, nodes: &BTreeSet<String>) {
        let mut followed = lock(&self.followed);
        followed.retain(|node, _| nodes.contains(node));
        for node in nodes {
            followed.entry(node.clone()).or_insert_with(|| {
                let selector = format!("spec.nodeName={node}");
                runtime.cache.follow(runtime.client.clone(), &NODE_PODS, selector)
            });
        }
        lock(&self.asked).retain(|_, (at, _)| at.elapsed() < 4 * COUNTS);
    }

    /// The pods of nodes, as far as all of them are known.
    pub(super) fn pods(&self) -> HashMap<String, Vec<Live>> {
        let followed = lock(&self.followed);
        followed.iter().filter_map(|(node, followed)| Some((node.clone(), followed.objects()?))).collect()
    }

    /// Why pods could not be evicted, by their UIDs.
    pub(super) fn refusals(&self) -> HashMap<String, String> {
        let asked = lock(&self.asked);
        asked.iter().filter_map(|(uid, (_, refused))| Some((uid.clone(), refused.clone()?))).collect()
    }

    /// Whether it is time to evict a pod, again if need be.
    pub(super) fn is_due(&self, uid: &str) -> bool {
        lock(&self.asked).get(uid).is_none_or(|(at, _)| at.elapsed() >= COUNTS)
    }

    /// Takes in an answer; true if it is a refusal with other words than before.
    pub(super) fn answered(&self, uid: &str, answer: Evicted) -> bool {
        let refused = match answer {
            Evicted::Yes => None,
            Evicted::Refused(why) => Some(why),
        };
        let before = lock(&self.asked).insert(uid.into(), (Instant::now(), refused.clone()));
        refused.is_some() && before.and_then(|(_, why)| why) != refused
    }
}
