//! Why a pod does not run, from kubelet and scheduler messages; and pod log queries.

use capstan_plan::{Facts, LogPart, Query, QueryResult, Ref};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod, PodStatus};

use crate::causes::{Cause, Class, words};

/// Phase of a pod; empty if unset.
pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// The log query of a pod.
pub(crate) fn log(pod: &Pod, part: LogPart) -> Query {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let reference = Ref::of::<Pod>(&text(&pod.metadata.namespace), &text(&pod.metadata.name));
    Query::PodLog { pod: reference, uid: text(&pod.metadata.uid), part }
}

/// The log of a query; an error if it cannot be read.
pub(crate) fn printed(facts: &Facts, query: Query) -> Option<Result<&str, &str>> {
    match facts.query_results.get(&query)? {
        QueryResult::PodLog(log) => Some(log.as_deref().map_err(String::as_str)),
        _ => None,
    }
}

/// What a pod waits for, with its name.
pub(crate) fn waiting_reason(pod: &Pod) -> Option<String> {
    let reason = reason(pod.status.as_ref()?)?;
    Some(format!("pod {}: {reason}", pod.metadata.name.as_deref().unwrap_or_default()))
}

/// What a pod with this status waits for.
pub(crate) fn reason(status: &PodStatus) -> Option<String> {
    if status.phase.as_deref() == Some("Failed") {
        let reason = status.reason.as_deref().unwrap_or("Failed");
        return Some(joined(reason, status.message.as_deref()));
    }
    let mut conditions = status.conditions.iter().flatten();
    if let Some(unscheduled) = conditions.find(|one| one.type_ == "PodScheduled" && one.status == "False") {
        return Some(joined(unscheduled.reason.as_deref().unwrap_or("Unschedulable"), unscheduled.message.as_deref()));
    }
    containers(status).find_map(of_container)
}

/// The termination message of a failed pod.
pub(crate) fn termination_message(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref().filter(|status| status.phase.as_deref() == Some("Failed"))?;
    containers(status).filter_map(of_container).last().or_else(|| reason(status))
}

fn containers(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    let init = status.init_container_statuses.iter().flatten();
    init.chain(status.container_statuses.iter().flatten())
}

fn of_container(status: &ContainerStatus) -> Option<String> {
    let state = status.state.as_ref()?;
    if let Some(waiting) = &state.waiting {
        let reason =
            waiting.reason.as_deref().filter(|reason| !["ContainerCreating", "PodInitializing"].contains(reason))?;
        let last = status.last_state.as_ref().and_then(|last| last.terminated.as_ref());
        // The CrashLoopBackOff message only counts seconds; the termination state says more, and changes less.
        let message = match last.filter(|_| reason == "CrashLoopBackOff") {
            Some(end) => {
                let text = last_line(end).map(|text| format!(": {text}")).unwrap_or_default();
                let why = end.reason.as_deref().unwrap_or("ended");
                Some(format!("last end was {why} with exit code {}{text}", end.exit_code))
            }
            None => waiting.message.clone(),
        };
        let text = format!("container {}: {}", status.name, joined(reason, message.as_deref()));
        return Some(match unpulled(reason, status) {
            Some(what) => format!("{text} ({what})"),
            None => text,
        });
    }
    let end = state.terminated.as_ref().filter(|end| end.exit_code != 0)?;
    let reason = joined(end.reason.as_deref().unwrap_or("Error"), last_line(end).as_deref());
    Some(format!("container {}: {reason} (exit code {})", status.name, end.exit_code))
}

/// The common wording for image pull errors.
fn unpulled(reason: &str, status: &ContainerStatus) -> Option<String> {
    let message = status.state.as_ref()?.waiting.as_ref()?.message.as_deref().unwrap_or_default();
    let known = words::UNPULLED.contains(&reason) && !status.image.is_empty();
    let class = if words::is_refused(message) { Class::RegistrySecret } else { Class::ImagePull };
    known.then(|| Cause::of(class, &status.image).what(""))
}

/// Termination messages may be pages of log: the last meaningful line is shown.
fn last_line(end: &ContainerStateTerminated) -> Option<String> {
    let line = end.message.as_deref()?.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    Some(short(line))
}

fn joined(reason: &str, message: Option<&str>) -> String {
    match message.map(str::trim).filter(|message| !message.is_empty()) {
        Some(message) => format!("{reason}: {}", short(message)),
        None => reason.into(),
    }
}

/// Truncates text for a status.
fn short(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(400) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(status: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {"containers": []}, "status": status}))
            .unwrap()
    }

    fn container(state: Value) -> Value {
        json!([{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state}])
    }

    #[test]
    fn the_reason_is_the_one_that_kubernetes_gives() {
        let unscheduled = json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."}]});
        let waiting = |reason: &str, message: &str| json!({"containerStatuses": container(json!({"waiting": {"reason": reason, "message": message}}))});
        let cases = [
            (unscheduled, Some("pod p: Unschedulable: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu.")),
            (waiting("ImagePullBackOff", "no such image"), Some("pod p: container c: ImagePullBackOff: no such image")),
            (waiting("ContainerCreating", ""), None),
        ];
        for (status, expected) in cases {
            assert_eq!(waiting_reason(&pod(status)).as_deref(), expected);
        }
    }

    #[test]
    fn an_image_that_is_refused_is_told_in_the_words_of_the_doctor() {
        let mut waits = container(json!({"waiting": {"reason": "ErrImagePull", "message": "401 Unauthorized"}}));
        waits[0]["image"] = "nvcr.io/nim/a:1".into();
        let told = waiting_reason(&pod(json!({"containerStatuses": waits}))).unwrap();
        let what = "the registry nvcr.io refuses image nvcr.io/nim/a:1: the pull secret is missing or wrong";
        assert_eq!(told, format!("pod p: container c: ErrImagePull: 401 Unauthorized ({what})"));
    }

    #[test]
    fn the_last_line_of_a_failure_is_shown() {
        let end =
            json!({"terminated": {"exitCode": 1, "reason": "Error", "message": "Traceback\n401 Unauthorized\n\n"}});
        let status = json!({"phase": "Failed", "containerStatuses": container(end)});
        assert_eq!(termination_message(&pod(status)).unwrap(), "container c: Error: 401 Unauthorized (exit code 1)");
    }
}
