//! Why pods do not run: in their own words, so that nobody has to look for them.

use capstan_plan::Gvk;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, PodStatus};
use serde::Deserialize;

use super::{Cx, names, storage};

/// What the first pod that does not run waits for, and how many more there are.
pub(super) fn waiting(cx: &Cx<'_>) -> Option<String> {
    let mut stuck = pods(cx).into_iter().filter_map(|pod| {
        let status = pod.status.as_ref()?;
        let reason = super::super::pods::reason(status).or_else(|| volume(cx, status))?;
        Some(format!("pod {}: {reason}", pod.metadata.name.unwrap_or_default()))
    });
    let first = stuck.next()?;
    match stuck.count() {
        0 => Some(first),
        more => Some(format!("{first} (and {more} more)")),
    }
}

/// How many pods are ready.
pub(super) fn ready(cx: &Cx<'_>) -> usize {
    let is_ready = |pod: &Pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    pods(cx).iter().filter(|pod| is_ready(pod)).count()
}

/// The pods that serve. Those of the endpoint picker, and those that are going, are none of them.
fn pods(cx: &Cx<'_>) -> Vec<Pod> {
    let kind = Gvk::of::<Pod>();
    let group = names::of_group(cx);
    let serves = |app: Option<&str>| app == Some(&cx.name) || app == Some(&group);
    let live = cx.facts.live.iter().filter(|(one, live)| {
        one.gvk == kind
            && serves(live["metadata"]["labels"]["app"].as_str())
            && live["metadata"]["deletionTimestamp"].is_null()
    });
    live.filter_map(|(_, live)| Pod::deserialize(&**live).ok()).collect()
}

/// Containers that are not even created often wait for their volume.
fn volume(cx: &Cx<'_>, status: &PodStatus) -> Option<String> {
    if status.phase.as_deref() != Some("Pending") {
        return None;
    }
    let name = storage::used_claim(cx)?;
    let claim: PersistentVolumeClaim = cx.facts.live.typed(&cx.namespace, &name)?;
    let phase = claim.status.and_then(|status| status.phase)?;
    (phase != "Bound").then(|| format!("waits for its volume: PersistentVolumeClaim {name} is {phase}"))
}
