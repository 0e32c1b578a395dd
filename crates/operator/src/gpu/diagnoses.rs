//! Unhealthy driver and validator pods, updated on changes, so that a reconcile does not iterate all pods.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_operands::causes::{self, Diagnoses, Part, UnhealthyPod, VALIDATION_TIMEOUT};
use capstan_operands::gpu::kernels::kernel_of;
use capstan_plan::{Gvk, Live};
use capstan_runtime::kinds::{DRIVERS, VALIDATORS};
use capstan_runtime::{Cache, Change, Key};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;

use super::NODE_DEBOUNCE;

/// The component of the pods of a slice.
fn part(slice: &str) -> Option<Part> {
    match slice {
        DRIVERS => Some(Part::Driver),
        VALIDATORS => Some(Part::Validator),
        _ => None,
    }
}

/// The unhealthy pods. Clones share one state.
#[derive(Clone, Default)]
pub(super) struct UnhealthyPods {
    pods: Arc<Mutex<BTreeMap<(Part, Key), UnhealthyPod>>>,
}

impl UnhealthyPods {
    /// Subscribes to pod changes of a namespace. Must be called before its readers subscribe.
    pub(super) fn follow(cache: &Cache, namespace: &str) -> Self {
        let unhealthy = Self::default();
        let (pods, namespace) = (unhealthy.pods.clone(), namespace.to_owned());
        cache.subscribe(move |change| {
            let Some(part) = part(change.kind.slice).filter(|_| *change.key.namespace == *namespace) else { return };
            let unhealthy_pod = change.new.and_then(|pod| UnhealthyPod::of(&**pod, part));
            let mut pods = pods.lock().unwrap_or_else(PoisonError::into_inner);
            match unhealthy_pod {
                Some(unhealthy_pod) => drop(pods.insert((part, change.key.clone()), unhealthy_pod)),
                None => drop(pods.remove(&(part, change.key.clone()))),
            }
        });
        unhealthy
    }

    /// Diagnoses of the unhealthy pods. No requests.
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

/// The delay after which diagnoses must be recomputed: at once when a pod starts or stops failing, and after the
/// timeout of a wait that begins.
pub(super) fn requeue_delay(change: &Change<'_>, namespace: &str) -> Option<Duration> {
    let part = part(change.kind.slice).filter(|_| *change.key.namespace == *namespace)?;
    let unhealthy_pod = |pod: Option<&Live>| pod.and_then(|pod| UnhealthyPod::of(&**pod, part));
    let (old, new) = (unhealthy_pod(change.old), unhealthy_pod(change.new));
    let cause = |unhealthy_pod: &Option<UnhealthyPod>| {
        unhealthy_pod.as_ref().and_then(|unhealthy_pod| unhealthy_pod.failing().cloned())
    };
    match () {
        () if cause(&old) != cause(&new) => Some(NODE_DEBOUNCE),
        () if old != new && new.is_some() => Some(VALIDATION_TIMEOUT),
        () => None,
    }
}
