//! Pod predicates of controllers, and pods from templates.

use k8s_openapi::api::core::v1::{PodCondition, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use std::time::Duration;

use crate::Pod;
use crate::informer::Kind;

/// `status.phase`, empty for a pod without one.
pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Whether the phase is `Succeeded` or `Failed`.
pub(crate) fn is_terminal(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether the pod has a deletion timestamp.
pub(crate) fn is_deleting(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Whether the pod counts as a replica.
pub(crate) fn is_active(pod: &Pod) -> bool {
    !is_terminal(pod) && !is_deleting(pod)
}

/// The condition of that type.
pub(crate) fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
}

/// The `Ready` condition of a ready pod.
pub(crate) fn ready_since(pod: &Pod) -> Option<&PodCondition> {
    condition(pod, "Ready").filter(|condition| condition.status == "True")
}

/// Whether the pod is ready.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    ready_since(pod).is_some()
}

/// Time until a ready pod counts as available; zero if it does now, `None` if it is not ready.
pub(crate) fn until_available(pod: &Pod, min_ready: Option<i32>, now: &Time) -> Option<Duration> {
    let ready = ready_since(pod)?;
    left(ready.last_transition_time.as_ref().map(|since| since.0.as_second()), min_ready, now)
}

/// The same from the time it became ready, if known.
pub(crate) fn left(since: Option<i64>, min_ready: Option<i32>, now: &Time) -> Option<Duration> {
    let min_ready = i64::from(min_ready.unwrap_or(0));
    if min_ready == 0 {
        return Some(Duration::ZERO);
    }
    Some(Duration::from_secs(u64::try_from(since? + min_ready - now.0.as_second()).unwrap_or(0)))
}

/// Whether the pod has been ready for `minReadySeconds`.
pub(crate) fn is_available(pod: &Pod, min_ready: Option<i32>, now: &Time) -> bool {
    until_available(pod, min_ready, now).is_some_and(|left| left.is_zero())
}

/// Sum of container restarts.
pub(crate) fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    statuses.into_iter().flatten().map(|status| status.restart_count).max().unwrap_or(0)
}

/// The node that the pod is bound to, or empty.
pub(crate) fn node_name(pod: &Pod) -> &str {
    pod.node().unwrap_or_default()
}

/// The controller reference of objects that `owner` creates.
pub(crate) fn controller_ref<K: Kind>(owner: &K) -> OwnerReference {
    let meta = owner.metadata();
    OwnerReference {
        api_version: K::API_VERSION.to_owned(),
        kind: K::KIND.to_owned(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// A pod from a template, controlled by `owner`, with `generateName`.
pub(crate) fn from_template<K: Kind>(template: &PodTemplateSpec, owner: &K) -> Pod {
    let meta = template.metadata.clone().unwrap_or_default();
    let name = owner.metadata().name.as_deref().unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}-")),
            namespace: owner.metadata().namespace.clone(),
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: Some(vec![controller_ref(owner)]),
            ..ObjectMeta::default()
        },
        spec: Some(template.spec.clone().unwrap_or_default().into()),
        status: None,
    }
}

/// The spec of a pod, which every pod has.
pub(crate) fn spec(pod: &Pod) -> &PodSpec {
    static NONE: std::sync::LazyLock<PodSpec> = std::sync::LazyLock::new(PodSpec::default);
    pod.spec.as_deref().unwrap_or(&NONE)
}
