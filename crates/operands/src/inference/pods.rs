//! Why a pod does not run: the words of the kubelet or the scheduler, for the condition of what waits for it.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

/// What holds a pod up, with the reason that Kubernetes gives.
pub(super) fn trouble(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let unscheduled = status.conditions.iter().flatten().find(|condition| {
        condition.type_ == "PodScheduled" && condition.status == "False" && condition.reason.is_some()
    });
    if let Some(condition) = unscheduled {
        let reason = condition.reason.as_deref().unwrap_or_default();
        return Some(sentence(name, reason, condition.message.as_deref()));
    }
    let containers = status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    containers.filter_map(waiting).next().map(|(reason, message)| sentence(name, &reason, message.as_deref()))
}

/// What the containers of a pod said when they failed.
pub(super) fn last_words(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let containers = status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    let mut ended = containers.filter_map(|container| {
        let state = container.state.as_ref()?.terminated.as_ref()?;
        (state.exit_code != 0).then(|| {
            let reason = state.reason.as_deref().unwrap_or("Error");
            let words = state.message.as_deref().map(last_line).unwrap_or_default();
            let words = if words.is_empty() { String::new() } else { format!(": {words}") };
            format!("container {} ended with exit code {} ({reason}){words}", container.name, state.exit_code)
        })
    });
    ended.next_back().or_else(|| status.message.clone().or_else(|| status.reason.clone()))
}

/// Reasons that stand for work in progress, not for trouble.
const PROGRESS: [&str; 2] = ["ContainerCreating", "PodInitializing"];

fn waiting(container: &ContainerStatus) -> Option<(String, Option<String>)> {
    let state = container.state.as_ref()?.waiting.as_ref()?;
    let reason = state.reason.clone().filter(|reason| !PROGRESS.contains(&reason.as_str()))?;
    Some((reason, state.message.clone()))
}

fn sentence(pod: &str, reason: &str, message: Option<&str>) -> String {
    match message.filter(|message| !message.is_empty()) {
        Some(message) => format!("pod {pod}: {reason}: {message}"),
        None => format!("pod {pod}: {reason}"),
    }
}

/// Termination messages may be pages of log: the last line that says something is the one to show.
fn last_line(text: &str) -> String {
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    line.chars().take(500).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(status: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {"containers": []}, "status": status}))
            .unwrap()
    }

    #[test]
    fn the_reason_is_the_one_that_kubernetes_gives() {
        let unscheduled = json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."}]});
        let pulling = json!({"containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false,
            "restartCount": 0, "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]});
        let creating = json!({"containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false,
            "restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}}]});
        let cases = [
            (unscheduled, Some("pod p: Unschedulable: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu.")),
            (pulling, Some("pod p: ImagePullBackOff: no such image")),
            (creating, None),
        ];
        for (status, expected) in cases {
            assert_eq!(trouble(&pod(status)).as_deref(), expected);
        }
    }

    #[test]
    fn the_last_line_of_a_failure_is_shown() {
        let status = json!({"containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false,
            "restartCount": 0, "state": {"terminated": {"exitCode": 1, "reason": "Error",
            "message": "Traceback\nline\n401 Unauthorized\n\n"}}}]});
        assert_eq!(last_words(&pod(status)).unwrap(), "container c ended with exit code 1 (Error): 401 Unauthorized");
    }
}
