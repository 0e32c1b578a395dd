//! Printer of pods, whose status column is derived from their containers.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::format::{NONE, has_condition, list, number, since, text, text_or};
use super::{AGE, Column, NAME, Printer, age, name};
use crate::registry::Resource;

const COLUMNS: &[Column] = &[
    NAME,
    Column::own("Ready", "string", "The aggregate readiness state of this pod for accepting traffic."),
    Column::own("Status", "string", "The aggregate status of the containers in this pod."),
    Column::own(
        "Restarts",
        "string",
        "The number of times the containers in this pod have been restarted and when the last container in this pod \
         has restarted.",
    ),
    AGE,
    Column::of("IP", "string", "core.v1.PodStatus", "podIP").wide(),
    Column::of("Node", "string", "core.v1.PodSpec", "nodeName").wide(),
    Column::of("Nominated Node", "string", "core.v1.PodStatus", "nominatedNodeName").wide(),
    Column::of("Readiness Gates", "string", "core.v1.PodSpec", "readinessGates").wide(),
];

pub(super) fn printer(group: &str, kind: &str) -> Option<Printer> {
    (group.is_empty() && kind == "Pod").then_some(Printer { columns: COLUMNS, cells })
}

/// The row condition of a completed pod.
pub(super) fn conditions(resource: &Resource, pod: &Value) -> Option<Value> {
    if !resource.group.is_empty() || &*resource.kind != "Pod" {
        return None;
    }
    let (reason, message) = match text(pod, "/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

/// Summary of the container statuses.
#[derive(Default)]
struct Summary {
    reason: String,
    ready: i64,
    restarts: i64,
    /// When a container last terminated.
    last_restart: Option<Timestamp>,
}

impl Summary {
    fn restarted(&mut self, container: &Value) {
        self.restarts += number(container, "/restartCount");
        let ended: Option<Timestamp> = text(container, "/lastState/terminated/finishedAt").parse().ok();
        self.last_restart = self.last_restart.max(ended);
    }
}

fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let sidecars = list(pod, "/spec/initContainers").iter().filter(|container| is_sidecar(container)).count();
    let total = list(pod, "/spec/containers").len() + sidecars;
    let mut summary = Summary { reason: phase(pod), ..Summary::default() };
    let (initializing, sidecar) = initialize(pod, &mut summary);
    if !initializing || has_condition(pod, "Initialized") {
        summary.restarts = sidecar.restarts;
        summary.last_restart = sidecar.last_restart;
        run(pod, &mut summary);
    }
    let deleting = !pod["metadata"]["deletionTimestamp"].is_null();
    if deleting && text(pod, "/status/reason") == "NodeLost" {
        summary.reason = "Unknown".into();
    } else if deleting && !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed") {
        summary.reason = "Terminating".into();
    }
    let restarts = match summary.last_restart.filter(|_| summary.restarts != 0) {
        Some(last) => format!("{} ({} ago)", summary.restarts, since(&last.to_string().into(), now)),
        None => summary.restarts.to_string(),
    };
    vec![
        name(pod),
        format!("{}/{total}", summary.ready).into(),
        summary.reason.into(),
        restarts.into(),
        age(pod, now),
        text_or(pod, "/status/podIPs/0/ip", text_or(pod, "/status/podIP", NONE)).into(),
        text_or(pod, "/spec/nodeName", NONE).into(),
        text_or(pod, "/status/nominatedNodeName", NONE).into(),
        readiness_gates(pod).into(),
    ]
}

fn phase(pod: &Value) -> String {
    let gated = list(pod, "/status/conditions")
        .iter()
        .any(|condition| condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated");
    if gated {
        return "SchedulingGated".to_owned();
    }
    text_or(pod, "/status/reason", text(pod, "/status/phase")).to_owned()
}

fn is_sidecar(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

/// Processes the init containers up to the first that blocks the others. Returns whether there is one, and the restarts
/// of sidecars.
fn initialize(pod: &Value, summary: &mut Summary) -> (bool, Summary) {
    let specs = list(pod, "/spec/initContainers");
    let mut sidecars = Summary::default();
    for (index, container) in list(pod, "/status/initContainerStatuses").iter().enumerate() {
        summary.restarted(container);
        let sidecar = specs.iter().any(|spec| spec["name"] == container["name"] && is_sidecar(spec));
        if sidecar {
            sidecars.restarted(container);
        }
        let ended = &container["state"]["terminated"];
        if ended.is_object() && number(ended, "/exitCode") == 0 {
            continue;
        }
        if sidecar && container["started"] == true {
            summary.ready += i64::from(container["ready"] == true);
            continue;
        }
        let waiting = text(container, "/state/waiting/reason");
        summary.reason = if ended.is_object() {
            match text(ended, "/reason") {
                "" => format!("Init:{}", end_of(ended)),
                reason => format!("Init:{reason}"),
            }
        } else if !waiting.is_empty() && waiting != "PodInitializing" {
            format!("Init:{waiting}")
        } else {
            format!("Init:{index}/{}", specs.len())
        };
        return (true, sidecars);
    }
    (false, sidecars)
}

/// Processes the other containers, last first.
fn run(pod: &Value, summary: &mut Summary) {
    let mut running = false;
    for container in list(pod, "/status/containerStatuses").iter().rev() {
        summary.restarted(container);
        let (waiting, ended) = (text(container, "/state/waiting/reason"), &container["state"]["terminated"]);
        if !waiting.is_empty() {
            summary.reason = waiting.to_owned();
        } else if ended.is_object() {
            summary.reason = match text(ended, "/reason") {
                "" => end_of(ended),
                reason => reason.to_owned(),
            };
        } else if container["ready"] == true && container["state"]["running"].is_object() {
            running = true;
            summary.ready += 1;
        }
    }
    // The pod is running if one container is.
    if summary.reason == "Completed" && running {
        let reason = if has_condition(pod, "Ready") { "Running" } else { "NotReady" };
        summary.reason = reason.to_owned();
    }
}

fn end_of(ended: &Value) -> String {
    match number(ended, "/signal") {
        0 => format!("ExitCode:{}", number(ended, "/exitCode")),
        signal => format!("Signal:{signal}"),
    }
}

fn readiness_gates(pod: &Value) -> String {
    let gates = list(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return NONE.to_owned();
    }
    let met = gates.iter().filter(|gate| has_condition(pod, text(gate, "/conditionType"))).count();
    format!("{met}/{}", gates.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(spec: Value, status: Value, deleting: bool) -> [String; 3] {
        let mut pod = json!({"metadata": {"name": "p"}, "spec": spec, "status": status});
        if deleting {
            pod["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z".into();
        }
        let cells = cells(&pod, "2024-01-01T00:10:00Z".parse().unwrap());
        [1, 2, 3].map(|index| cells[index].as_str().unwrap().to_owned())
    }

    #[test]
    fn the_status_tells_what_the_containers_do() {
        let two = json!({"containers": [{"name": "a"}, {"name": "b"}]});
        let init = json!({"containers": [{"name": "a"}], "initContainers": [{"name": "i"}, {"name": "j"}]});
        let sidecar =
            json!({"containers": [{"name": "a"}], "initContainers": [{"name": "s", "restartPolicy": "Always"}]});
        let running = json!({"ready": true, "restartCount": 0, "state": {"running": {}}});
        let cases = [
            (two.clone(), json!({"phase": "Pending"}), false, ["0/2", "Pending", "0"]),
            (
                two.clone(),
                json!({"phase": "Running", "containerStatuses": [running, running]}),
                false,
                ["2/2", "Running", "0"],
            ),
            (two.clone(), json!({"phase": "Running", "containerStatuses": []}), true, ["0/2", "Terminating", "0"]),
            (
                two,
                json!({"phase": "Running", "containerStatuses": [running, {"restartCount": 3,
                    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                    "lastState": {"terminated": {"finishedAt": "2024-01-01T00:05:00Z"}}}]}),
                false,
                ["1/2", "CrashLoopBackOff", "3 (5m ago)"],
            ),
            (
                init.clone(),
                json!({"phase": "Pending", "initContainerStatuses": [
                    {"state": {"terminated": {"exitCode": 0}}}, {"state": {"running": {}}}]}),
                false,
                ["0/1", "Init:1/2", "0"],
            ),
            (
                init,
                json!({"phase": "Pending", "initContainerStatuses": [
                    {"restartCount": 2, "state": {"terminated": {"exitCode": 7}}}]}),
                false,
                ["0/1", "Init:ExitCode:7", "2"],
            ),
            (
                sidecar,
                json!({"phase": "Running",
                    "initContainerStatuses": [{"name": "s", "started": true, "ready": true, "restartCount": 1,
                        "state": {"running": {}}}],
                    "containerStatuses": [running]}),
                false,
                ["2/2", "Running", "1"],
            ),
        ];
        for (spec, status, deleting, expected) in cases {
            assert_eq!(shown(spec, status.clone(), deleting), expected, "{status}");
        }
    }
}
