//! Pods of drivers, and of those who check them, that are not well: kept up to date as they change, so that a reconcile looks
//! at these and not at all pods.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_operands::causes::{self, Diagnoses, Part, STUCK, UnhealthyPod};
use capstan_operands::gpu::kernels::kernel_of;
use capstan_plan::{Gvk, Live};
use capstan_runtime::kinds::{DRIVERS, VALIDATORS};
use capstan_runtime::{Cache, Change, Key};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;

use super::NODE_DEBOUNCE;

/// What pods of a slice do.
fn part(slice: &str) -> Option<Part> {
    match slice {
        DRIVERS => Some(Part::Driver),
        VALIDATORS => Some(Part::Validator),
        _ => None,
    }
}

/// The pods that are not well. Clones share one state.
#[derive(Clone, Default)]
pub(super) struct UnhealthyPods {
    pods: Arc<Mutex<BTreeMap<(Part, Key), UnhealthyPod>>>,
}

impl UnhealthyPods {
    /// Follows the pods of a namespace that the cache sees. To be called before those who ask are told of changes.
    pub(super) fn follow(cache: &Cache, namespace: &str) -> Self {
        let unhealthy = Self::default();
        let (pods, namespace) = (unhealthy.pods.clone(), namespace.to_owned());
        cache.subscribe(move |change| {
            let Some(part) = part(change.kind.slice).filter(|_| *change.key.namespace == *namespace) else { return };
            let seen = change.new.and_then(|pod| UnhealthyPod::of(&**pod, part));
            let mut pods = pods.lock().unwrap_or_else(PoisonError::into_inner);
            match seen {
                Some(seen) => drop(pods.insert((part, change.key.clone()), seen)),
                None => drop(pods.remove(&(part, change.key.clone()))),
            }
        });
        unhealthy
    }

    /// What is wrong with them. No requests.
    pub(super) fn diagnoses(&self, cache: &Cache, now: Timestamp) -> Diagnoses {
        let find = |node: &str| cache.packed_one(&Gvk::of::<Node>(), &Key::new("", node));
        let kernel = |node: &str| find(node).as_ref().and_then(kernel_of).unwrap_or_else(|| "of the node".into());
        let offers = |node: &str| find(node).as_ref().is_some_and(causes::offers);
        causes::diagnose(self.pods().values(), now, kernel, offers)
    }

    fn pods(&self) -> MutexGuard<'_, BTreeMap<(Part, Key), UnhealthyPod>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How soon whoever tells of diagnoses should look again: at once when a pod fails or no longer does, and when a wait that
/// begins would be too long.
pub(super) fn urgency(change: &Change<'_>, namespace: &str) -> Option<Duration> {
    let part = part(change.kind.slice).filter(|_| *change.key.namespace == *namespace)?;
    let seen = |pod: Option<&Live>| pod.and_then(|pod| UnhealthyPod::of(&**pod, part));
    let (old, new) = (seen(change.old), seen(change.new));
    let cause = |seen: &Option<UnhealthyPod>| seen.as_ref().and_then(|seen| seen.failing().cloned());
    match () {
        () if cause(&old) != cause(&new) => Some(NODE_DEBOUNCE),
        () if old != new && new.is_some() => Some(STUCK),
        () => None,
    }
}
