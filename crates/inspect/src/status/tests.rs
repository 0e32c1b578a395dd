//! Statuses of small snapshots.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use serde_json::{Value, json};

use super::tree::{Tree, tree};
use super::{plain, text};
use crate::snapshot::Snapshot;

const TAKEN: &str = "2026-11-01T10:10:00Z";

fn cluster() -> Snapshot {
    let mut snapshot = Snapshot { taken: Some(TAKEN.parse().unwrap()), ..Snapshot::default() };
    snapshot.add(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusterpolicies.nvidia.com"}}));
    snapshot
}

fn policy(state: &str, conditions: Value) -> Value {
    let parts = json!({"operator": {}, "daemonsets": {}, "driver": {}, "toolkit": {}, "devicePlugin": {}, "dcgm": {},
        "dcgmExporter": {}, "gfd": {}, "nodeStatusExporter": {}});
    json!({"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy",
        "metadata": {"name": "cluster-policy", "creationTimestamp": "2026-11-01T10:00:00Z"},
        "spec": parts, "status": {"state": state, "conditions": conditions}})
}

fn ready_policy() -> Value {
    policy(
        "ready",
        json!([{"type": "Ready", "status": "True", "reason": "Reconciled", "message": "all is well"},
            {"type": "Driver", "status": "True", "reason": "Ready", "message": "2 of 2 nodes"},
            {"type": "DevicePlugin", "status": "True", "reason": "Ready", "message": "2 of 2 nodes"}]),
    )
}

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "creationTimestamp": "2026-11-01T09:00:00Z", "labels": {
            "feature.node.kubernetes.io/pci-10de.present": "true", "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.deploy.driver": "true", "nvidia.com/gpu.deploy.device-plugin": "true"}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"nvidia.com/gpu": "8"}}})
}

fn driver(node: &str, status: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": node}, "status": status, "metadata": {
        "name": format!("nvidia-driver-{node}"), "namespace": "capstan", "creationTimestamp": "2026-11-01T10:00:00Z",
        "labels": {"app.kubernetes.io/component": "nvidia-driver"}}})
}

fn runs() -> Value {
    json!({"phase": "Running", "containerStatuses": [{"name": "c", "ready": true}]})
}

fn validator(node: &str) -> Value {
    let over =
        |name: &str, time: &str| json!({"name": name, "state": {"terminated": {"exitCode": 0, "finishedAt": time}}});
    json!({"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": node}, "metadata": {
        "name": format!("validator-{node}"), "namespace": "capstan", "creationTimestamp": "2026-11-01T10:00:00Z",
        "labels": {"app": "nvidia-operator-validator"}},
        "status": {"phase": "Running", "containerStatuses": [{"name": "c", "ready": true}],
            "initContainerStatuses": [over("driver-validation", "2026-11-01T10:03:00Z"),
                over("toolkit-validation", "2026-11-01T10:03:20Z"), over("plugin-validation", "2026-11-01T10:04:00Z")],
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-01T10:04:05Z"}]}})
}

fn service(status: Value) -> Value {
    json!({"apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NIMService", "metadata": {"name": "llama", "namespace": "nim"},
        "status": status})
}

fn healthy() -> Snapshot {
    let mut snapshot = cluster();
    snapshot.add(ready_policy());
    for name in ["gpu-0", "gpu-1"] {
        snapshot.add(node(name));
        snapshot.add(driver(name, runs()));
        snapshot.add(validator(name));
    }
    let model = json!({"name": "llama-3", "clusterEndpoint": "10.0.0.1:8000", "externalEndpoint": ""});
    snapshot.add(service(json!({"state": "Ready", "availableReplicas": 1, "model": model})));
    snapshot
}

fn verdict(snapshot: &Snapshot) -> String {
    tree(snapshot).verdict.text
}

#[test]
fn what_works_is_counted() {
    let tree = tree(&healthy());
    assert!(tree.verdict.ready);
    assert_eq!(tree.verdict.text, "ready: 2 of 2 GPU nodes work, 1 of 1 services serve");
}

#[test]
fn a_healthy_cluster_is_drawn_in_a_few_lines() {
    let expected = "\
ready: 2 of 2 GPU nodes work, 1 of 1 services serve

operator  in no pod of this cluster
ClusterPolicy cluster-policy  ready
├─ Driver        ██████████ 2 of 2 nodes
└─ DevicePlugin  ██████████ 2 of 2 nodes
GPU nodes  ██████████ 2 of 2 work  16 nvidia.com/gpu
└─ took  driver 3 min (longest 3 min), container toolkit 20 s (longest 20 s), device plugin 40 s (longest 40 s), \
validation 5 s (longest 5 s)
models
└─ NIMService nim/llama  Ready  llama-3 at 10.0.0.1:8000
";
    assert_eq!(plain(&healthy()), expected);
}

#[test]
fn a_policy_that_is_not_ready_speaks_for_itself() {
    let mut snapshot = cluster();
    let error = "ClusterPolicy is not ready; states not ready: [state-driver]";
    let driver = json!({"type": "Driver", "status": "False", "reason": "NotReady", "message": "1 of 4 nodes"});
    snapshot.add(policy(
        "notReady",
        json!([{"type": "Error", "status": "True", "reason": "OperandNotReady", "message": error}, driver]),
    ));
    let tree = tree(&snapshot);
    assert!(!tree.verdict.ready);
    assert_eq!(tree.verdict.text, format!("not ready: ClusterPolicy cluster-policy: {error} (there are no GPU nodes)"));
    let drawn = plain(&snapshot);
    assert!(drawn.contains("└─ Driver  ██░░░░░░░░ 1 of 4 nodes"), "{drawn}");
}

fn waits(tree: &Tree) -> Vec<(&str, &str, Option<i64>)> {
    tree.nodes.waiting.iter().map(|one| (one.name.as_str(), one.phase, one.seconds)).collect()
}

#[test]
fn nodes_that_do_not_work_say_what_they_wait_for_and_for_how_long() {
    let mut snapshot = cluster();
    snapshot.add(ready_policy());
    let crash = json!({"phase": "Running", "containerStatuses": [{"name": "nvidia-driver-ctr", "ready": false, "image": "i",
        "imageID": "", "restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "message": "no headers for this kernel"}}}]});
    snapshot.add(node("gpu-0"));
    snapshot.add(driver("gpu-0", crash));
    let mut silent = node("gpu-1");
    silent["status"]["conditions"] =
        json!([{"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-11-01T10:09:00Z"}]);
    snapshot.add(silent);
    let mut new = node("gpu-2");
    new["metadata"]["labels"].as_object_mut().unwrap().remove("nvidia.com/gpu.present");
    snapshot.add(new);
    let tree = tree(&snapshot);
    assert_eq!((tree.nodes.working, tree.nodes.total), (0, 3));
    assert_eq!(
        waits(&tree),
        [("gpu-1", "kubelet", Some(60)), ("gpu-2", "labels", Some(600)), ("gpu-0", "driver", Some(600))]
    );
    let why = &tree.nodes.waiting[2].why;
    assert!(why.contains("CrashLoopBackOff") && why.contains("no headers for this kernel"), "{why}");
}

#[test]
fn many_nodes_are_counts_and_a_few_examples() {
    let mut snapshot = cluster();
    snapshot.add(ready_policy());
    (0..30).for_each(|index| snapshot.add(node(&format!("gpu-{index:02}"))));
    let tree = tree(&snapshot);
    assert_eq!(tree.nodes.waiting.len(), 5);
    assert_eq!((tree.nodes.phases[0].phase, tree.nodes.phases[0].nodes), ("driver", 30));
}

#[test]
fn a_node_that_is_kept_out_of_it_does_not_count() {
    let mut snapshot = healthy();
    let mut out = node("gpu-2");
    out["metadata"]["labels"]["nvidia.com/gpu.deploy.operands"] = json!("false");
    snapshot.add(out);
    assert!(verdict(&snapshot).starts_with("ready: 2 of 2 GPU nodes"));
}

#[test]
fn gpu_nodes_that_somebody_else_looks_after_do_not_count() {
    let mut snapshot = cluster();
    snapshot.add(node("gpu-0"));
    snapshot.add(service(json!({"state": "Ready"})));
    assert_eq!(verdict(&snapshot), "ready: 1 of 1 services serve");
}

#[test]
fn a_service_that_fails_says_why() {
    let mut snapshot = cluster();
    let failed = json!([{"type": "Ready", "status": "False", "message": "no"},
        {"type": "Failed", "status": "True", "message": "spec.storage.pvc.size is \"50 GB\": give a size such as 50Gi"}]);
    snapshot.add(service(json!({"state": "Failed", "conditions": failed})));
    let expected = "not ready: NIMService nim/llama: spec.storage.pvc.size is \"50 GB\": give a size such as 50Gi \
                    (0 of 1 services serve)";
    assert_eq!(verdict(&snapshot), expected);
}

#[test]
fn a_cache_that_waits_tells_its_last_step() {
    let mut snapshot = cluster();
    let steps = json!([{"type": "NIM_CACHE_PVC_CREATED", "status": "True", "message": "claim", "lastTransitionTime": "2026-11-01T10:00:00Z"},
        {"type": "NIM_CACHE_JOB_PENDING", "status": "True", "message": "the job waits", "lastTransitionTime": "2026-11-01T10:01:00Z"}]);
    snapshot.add(json!({"apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NIMCache",
        "metadata": {"name": "c", "namespace": "nim"}, "status": {"state": "Pending", "conditions": steps}}));
    assert_eq!(verdict(&snapshot), "not ready: NIMCache nim/c: the job waits (0 of 1 caches are filled)");
}

#[test]
fn what_nobody_looked_at_is_not_ready() {
    let mut snapshot = cluster();
    snapshot.add(service(Value::Null));
    assert_eq!(
        verdict(&snapshot),
        "not ready: NIMService nim/llama: the operator has not looked at it (0 of 1 services serve)"
    );
}

#[test]
fn an_empty_cluster_is_ready_and_one_without_our_crds_is_not() {
    assert!(tree(&cluster()).verdict.ready);
    let without = tree(&Snapshot::default()).verdict;
    assert!(!without.ready && without.text.contains("Capstan is not installed"), "{}", without.text);
}

#[test]
fn a_lease_that_nobody_renews_means_that_nobody_leads() {
    let mut snapshot = healthy();
    snapshot.add(json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "a0715c6e.nvidia.com", "namespace": "capstan"},
        "spec": {"holderIdentity": "capstan-1_ab", "leaseDurationSeconds": 15, "renewTime": "2026-11-01T10:05:00.000000Z"}}));
    let expected = "not ready: no operator leads: its lease was renewed 300 s ago";
    assert!(verdict(&snapshot).starts_with(expected), "{}", verdict(&snapshot));
}

#[test]
fn an_operator_without_a_pod_comes_before_everything_else() {
    let mut snapshot = cluster();
    let labels = json!({"app.kubernetes.io/name": "capstan", "app.kubernetes.io/version": "0.1.0"});
    let containers = json!([{"name": "operator", "image": "i"}]);
    snapshot.add(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "capstan", "namespace": "capstan", "labels": labels},
        "spec": {"replicas": 2, "template": {"spec": {"containers": containers}}}, "status": {}}));
    snapshot.add(service(Value::Null));
    assert!(
        verdict(&snapshot)
            .starts_with("not ready: the operator does not run: Deployment capstan/capstan has no ready pod")
    );
}

#[test]
fn an_upgrade_shows_states_and_budget() {
    let mut snapshot = cluster();
    let told = json!({"type": "DriverUpgrade", "status": "False", "reason": "InProgress", "message": "the wanted driver works on 1 of 2 nodes"});
    let mut policy = policy("ready", json!([told]));
    policy["spec"]["driver"] = json!({"upgradePolicy": {"autoUpgrade": true, "maxParallelUpgrades": 2}});
    snapshot.add(policy);
    for (name, state) in [("a", "upgrade-done"), ("b", "drain-required")] {
        let mut node = node(name);
        node["metadata"]["labels"]["nvidia.com/gpu-driver-upgrade-state"] = json!(state);
        snapshot.add(node);
    }
    let tree = tree(&snapshot);
    let upgrade = tree.resources[0].upgrade.as_ref().unwrap();
    assert_eq!((upgrade.nodes["upgrade-done"], upgrade.nodes["drain-required"]), (1, 1));
    let drawn = plain(&snapshot);
    let expected = "└─ driver upgrade  █████░░░░░ InProgress  the wanted driver works on 1 of 2 nodes  (2 at a time, at most 25% out of use)";
    assert!(drawn.contains(expected), "{drawn}");
}

#[test]
fn times_are_short() {
    let all = [45, 600, 7260, 180_000].map(text::duration);
    assert_eq!(all, ["45 s", "10 min", "2 h 1 min", "2 d 2 h"]);
}
