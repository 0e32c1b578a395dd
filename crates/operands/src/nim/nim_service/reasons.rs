//! Why pods do not run, from their status.

use std::collections::BTreeMap;

use capstan_plan::{Gvk, Live, Note, Severity};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, PodStatus};
use serde::Deserialize;

use super::{Cx, names, storage};
use crate::causes::Class;
use crate::causes::pods::unstarted;

/// What the first pod that is not running waits for, and the number of others.
pub(super) fn waiting(cx: &Cx<'_>) -> Option<String> {
    let mut stuck = pods(cx).into_iter().filter_map(|pod| {
        let status = pod.status.as_ref()?;
        let reason = crate::pods::reason(status).or_else(|| volume(cx, status))?;
        Some(format!("pod {}: {reason}", pod.metadata.name.unwrap_or_default()))
    });
    let first = stuck.next()?;
    match stuck.count() {
        0 => Some(first),
        more => Some(format!("{first} (and {more} more)")),
    }
}

/// Number of ready pods.
pub(super) fn ready(cx: &Cx<'_>) -> usize {
    let is_ready = |pod: &Pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    pods(cx).iter().filter(|pod| is_ready(pod)).count()
}

/// Problems of pods that never started, for an event, unless a condition has them already.
pub(super) fn new_problems(cx: &Cx<'_>) -> Vec<Note> {
    let before = cx.service.status.as_ref().and_then(|status| status.conditions.as_ref());
    let is_known = |what: &str| before.into_iter().flatten().any(|one| one.message.contains(what));
    let causes: BTreeMap<String, Class> =
        live(cx).filter_map(|pod| unstarted(&**pod)).map(|cause| (cause.what(""), cause.class)).collect();
    let new_problems = causes.into_iter().filter(|(what, _)| !is_known(what));
    new_problems.map(|(message, class)| Note { severity: Severity::Warning, reason: class.reason(), message }).collect()
}

/// The serving pods, without endpoint picker pods and terminating ones.
fn live<'a>(cx: &'a Cx<'_>) -> impl Iterator<Item = &'a Live> {
    let kind = Gvk::of::<Pod>();
    let group = names::of_group(cx);
    let serves = move |app: Option<&str>| app == Some(&cx.name) || app == Some(&group);
    let live = cx.facts.live.iter().filter(move |(one, live)| {
        one.gvk == kind
            && serves(live["metadata"]["labels"]["app"].as_str())
            && live["metadata"]["deletionTimestamp"].is_null()
    });
    live.map(|(_, live)| live)
}

fn pods(cx: &Cx<'_>) -> Vec<Pod> {
    live(cx).filter_map(|live| Pod::deserialize(&**live).ok()).collect()
}

/// Containers that are not created often wait for their volume.
fn volume(cx: &Cx<'_>, status: &PodStatus) -> Option<String> {
    if status.phase.as_deref() != Some("Pending") {
        return None;
    }
    let name = storage::used_claim(cx)?;
    let claim: PersistentVolumeClaim = cx.facts.live.typed(&cx.namespace, &name)?;
    let phase = claim.status.and_then(|status| status.phase)?;
    (phase != "Bound").then(|| format!("waits for its volume: PersistentVolumeClaim {name} is {phase}"))
}
