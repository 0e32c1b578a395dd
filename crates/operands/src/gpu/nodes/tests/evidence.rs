//! How far a node is, by its pods.

use jiff::Timestamp;

use super::super::evidence::*;
use super::*;

const BORN: &str = "2026-01-01T00:00:00Z";

fn node(allocatable: Value) -> Value {
    let labels = json!({
        PCI: "true", "nvidia.com/gpu.present": "true", "nvidia.com/gpu.deploy.driver": "true",
        "nvidia.com/gpu.deploy.device-plugin": "true", "nvidia.com/gpu.deploy.operator-validator": "true",
    });
    json!({
        "metadata": {"name": "a", "creationTimestamp": BORN, "labels": labels},
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn pod(name: &str, ready: bool) -> Value {
    json!({
        "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:05Z"},
        "status": {
            "phase": "Running", "containerStatuses": [{"name": "main", "ready": ready}],
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" },
                "lastTransitionTime": "2026-01-01T00:01:30Z"}],
        },
    })
}

fn validator(ends: &[(&str, Option<&str>)], ready: bool) -> Value {
    let mut pod = pod("validator", ready);
    let check = |(name, end): &(&str, Option<&str>)| match end {
        Some(end) => json!({"name": name, "state": {"terminated": {"exitCode": 0, "finishedAt": end}}}),
        None => json!({"name": name, "state": {"running": {}}}),
    };
    pod["status"]["initContainerStatuses"] = ends.iter().map(check).collect();
    pod
}

fn done() -> Value {
    let ends = [
        ("driver-validation", Some("2026-01-01T00:01:00Z")),
        ("toolkit-validation", Some("2026-01-01T00:01:10Z")),
        ("cuda-validation", Some("2026-01-01T00:01:15Z")),
        ("plugin-validation", Some("2026-01-01T00:01:20Z")),
    ];
    validator(&ends, true)
}

fn gpus() -> Value {
    json!({"nvidia.com/gpu": "8"})
}

/// Status, reason and message of the condition.
fn told(wanted: &Wanted, node: &Value, evidence: &Evidence<'_>) -> [String; 3] {
    let readiness = Readiness { condition: true, taint: None };
    let now = "2026-01-01T00:02:00Z".parse::<Timestamp>().unwrap();
    let patch = readiness.condition_update(wanted, node, evidence, now).patch.unwrap_or_default();
    let condition = &patch["status"]["conditions"][0];
    ["status", "reason", "message"].map(|field| condition[field].as_str().unwrap_or_default().to_owned())
}

#[test]
fn the_first_phase_that_is_open_is_told() {
    let wanted = policy(json!({}));
    let (starting, running) = (pod("driver", false), pod("driver", true));
    let waiting =
        validator(&[("driver-validation", Some("2026-01-01T00:01:00Z")), ("toolkit-validation", None)], false);
    let finished = done();
    let table = [
        (vec![], vec![], gpus(), "DriverNotReady", "waits for driver: no pod on this node yet"),
        (vec![&starting], vec![&finished], gpus(), "DriverNotReady", "waits for driver: pod driver"),
        (vec![&running], vec![], gpus(), "ValidationNotReady", "waits for validation: no pod on this node yet"),
        (
            vec![&running],
            vec![&waiting],
            gpus(),
            "ContainerToolkitNotReady",
            "waits for container toolkit: toolkit-validation of pod validator is not over",
        ),
        (
            vec![&running],
            vec![&finished],
            json!({"nvidia.com/gpu": "0"}),
            "DevicePluginNotReady",
            "waits for device plugin: the kubelet offers no GPUs",
        ),
        (vec![&running], vec![&finished], json!({"nvidia.com/mig-1g.10gb": "7"}), "Ready", "GPUs can be used"),
    ];
    for (drivers, validators, allocatable, reason, message) in table {
        let evidence = Evidence { drivers, validators, faults: None };
        let [_, found, said] = told(&wanted, &node(allocatable), &evidence);
        assert!(found == reason && said.starts_with(message), "{found}: {said}, not {reason}: {message}");
    }
}

#[test]
fn what_cannot_be_decided_is_told_in_the_words_of_the_policy() {
    let status = json!({"conditions": [
        {"type": "Driver", "status": "False", "reason": "Failed", "message": "no ConfigMap of that name"},
        {"type": "Dcgm", "status": "False", "reason": "NotReady", "message": "1 of 2 nodes"},
    ]});
    let faults = faults(&json!({"status": status}));
    assert_eq!(faults.len(), 1);
    let evidence = Evidence { faults: Some(&faults), ..Evidence::default() };
    let [_, reason, message] = told(&policy(json!({})), &node(gpus()), &evidence);
    assert_eq!((&*reason, &*message), ("DriverNotReady", "waits for driver: no ConfigMap of that name"));
}

#[test]
fn a_driver_of_the_host_is_not_waited_for() {
    let finished = done();
    let evidence = Evidence { validators: vec![&finished], ..Evidence::default() };
    assert_eq!(told(&policy(json!({"driver": {"enabled": false}})), &node(gpus()), &evidence)[1], "Ready");
    let mut own = node(gpus());
    own["metadata"]["labels"]["nvidia.com/gpu.deploy.driver"] = "pre-installed".into();
    assert_eq!(told(&policy(json!({})), &own, &evidence)[1], "Ready");
}

#[test]
fn pods_of_a_node_of_the_same_name_that_went_before_tell_nothing() {
    let (running, mut finished) = (pod("driver", true), done());
    finished["metadata"]["creationTimestamp"] = "2025-12-31T00:00:00Z".into();
    let evidence = Evidence { drivers: vec![&running], validators: vec![&finished], faults: None };
    assert_eq!(told(&policy(json!({})), &node(gpus()), &evidence)[1], "ValidationNotReady");
}

#[test]
fn a_kubelet_that_falls_silent_changes_nothing() {
    let mut silent = node(gpus());
    silent["status"]["conditions"] = json!([{"type": "Ready", "status": "Unknown"}]);
    let wanted = policy(json!({}));
    assert_eq!(told(&wanted, &silent, &Evidence::default())[1], "KubeletNotReady", "a new node says what it waits for");
    let known = json!({"type": "GPUReady", "status": "True", "reason": "Ready", "message": "GPUs can be used"});
    silent["status"]["conditions"].as_array_mut().unwrap().push(known);
    let readiness = Readiness { condition: true, taint: Some(StartupTaint::parse("k").unwrap()) };
    let condition_update = readiness.condition_update(&wanted, &silent, &Evidence::default(), Timestamp::UNIX_EPOCH);
    assert_eq!(condition_update, crate::gpu::nodes::ready::ConditionUpdate::default());
    let (running, finished) = (pod("driver", true), done());
    let evidence = Evidence { drivers: vec![&running], validators: vec![&finished], faults: None };
    silent["spec"]["taints"] = json!([{"key": "k", "effect": "NoSchedule"}]);
    let mut patch = NodePatch::default();
    readiness.taint(&wanted, &silent, &evidence, &mut patch);
    assert_eq!(patch.taints, None, "what was well before the kubelet fell silent frees nobody");
}

#[test]
fn nodes_that_are_none_of_ours_say_nothing() {
    let known = json!({"type": "GPUReady", "status": "True", "reason": "Ready", "message": "GPUs can be used"});
    let mut node = node(gpus());
    node["status"]["conditions"].as_array_mut().unwrap().push(known);
    let off = Readiness::default();
    let on = Readiness { condition: true, taint: None };
    let nothing = Wanted::of(None, None, &[]);
    let gone = |readiness: &Readiness, wanted: &Wanted, node: &Value| {
        let patch = readiness.condition_update(wanted, node, &Evidence::default(), Timestamp::UNIX_EPOCH).patch;
        patch.is_some_and(|patch| patch["status"]["conditions"][0]["$patch"] == "delete")
    };
    assert!(gone(&off, &policy(json!({})), &node), "nobody asks for it any more");
    assert!(gone(&on, &nothing, &node), "nothing is installed any more");
    let mut kept_out = node.clone();
    kept_out["metadata"]["labels"]["nvidia.com/gpu.deploy.operands"] = "false".into();
    assert!(gone(&on, &policy(json!({})), &kept_out));
    assert!(!gone(&on, &policy(json!({})), &node));
}
