//! Why pods do not run: in their own words, so that nobody has to look for them.

use capstan_plan::Gvk;
use k8s_openapi::api::core::v1::{ContainerStatus, PersistentVolumeClaim, Pod, PodStatus};
use serde::Deserialize;

use super::{Cx, names, storage};

/// What the first pod that does not run waits for, and how many more there are.
pub(super) fn waiting(cx: &Cx<'_>) -> Option<String> {
    let mut stuck = pods(cx).into_iter().filter_map(|pod| {
        let reason = reason(cx, pod.status.as_ref()?)?;
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

fn reason(cx: &Cx<'_>, status: &PodStatus) -> Option<String> {
    if status.phase.as_deref() == Some("Failed") {
        let reason = status.reason.as_deref().unwrap_or("Failed");
        return Some(joined(reason, status.message.as_deref()));
    }
    let mut conditions = status.conditions.iter().flatten();
    if let Some(unscheduled) = conditions.find(|one| one.type_ == "PodScheduled" && one.status == "False") {
        return Some(joined(unscheduled.reason.as_deref().unwrap_or("Unschedulable"), unscheduled.message.as_deref()));
    }
    let init = status.init_container_statuses.iter().flatten();
    let mut all = init.chain(status.container_statuses.iter().flatten());
    all.find_map(of_container).or_else(|| volume(cx, status))
}

fn of_container(status: &ContainerStatus) -> Option<String> {
    let state = status.state.as_ref()?;
    if let Some(waiting) = &state.waiting {
        let reason =
            waiting.reason.as_deref().filter(|reason| !["ContainerCreating", "PodInitializing"].contains(reason))?;
        let last = status.last_state.as_ref().and_then(|last| last.terminated.as_ref());
        // The message of a crash loop only counts seconds; how the container ended says more, and changes less.
        let message = match last.filter(|_| reason == "CrashLoopBackOff") {
            Some(end) => {
                let said = end.message.as_deref().map(|said| format!(": {}", short(said))).unwrap_or_default();
                let why = end.reason.as_deref().unwrap_or("ended");
                Some(format!("last end was {why} with exit code {}{said}", end.exit_code))
            }
            None => waiting.message.clone(),
        };
        return Some(format!("container {}: {}", status.name, joined(reason, message.as_deref())));
    }
    let end = state.terminated.as_ref().filter(|end| end.exit_code != 0)?;
    let reason = joined(end.reason.as_deref().unwrap_or("Error"), end.message.as_deref());
    Some(format!("container {}: {reason} (exit code {})", status.name, end.exit_code))
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

fn joined(reason: &str, message: Option<&str>) -> String {
    match message.map(str::trim).filter(|message| !message.is_empty()) {
        Some(message) => format!("{reason}: {}", short(message)),
        None => reason.into(),
    }
}

/// A status is no log.
fn short(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(400) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
