//! Every row makes sense, and what nobody reads is dropped.

use std::collections::BTreeSet;

use capstan_plan::kit::hash;
use serde_json::{Value, json};

use super::*;

fn row(kind: &str) -> &'static Kind {
    KINDS.iter().find(|row| row.kind == kind).unwrap()
}

#[test]
fn every_kind_and_every_slice_has_one_row() {
    let names: BTreeSet<_> = KINDS.iter().map(|row| (row.group, row.kind, row.slice)).collect();
    assert_eq!(names.len(), KINDS.len());
}

#[test]
fn what_nobody_reads_is_dropped() {
    let cases = [
        (
            "Secret",
            json!({"data": {"NGC_API_KEY": "c2VjcmV0"}}),
            json!({"data": {"NGC_API_KEY": hash("\"c2VjcmV0\"")}}),
        ),
        ("CustomResourceDefinition", json!({"spec": {"group": "x"}}), json!({})),
        ("ConfigMap", json!({"data": {"a": "b"}}), json!({"data": {"a": "b"}})),
    ];
    for (kind, mut object, mut expected) in cases {
        let applied = "kubectl.kubernetes.io/last-applied-configuration";
        object["metadata"] = json!({"name": "a", "managedFields": [], "annotations": {applied: "long", "short": ""}});
        row(kind).trim(&mut object);
        expected["apiVersion"] = row(kind).gvk().api_version().into();
        expected["kind"] = kind.into();
        expected["metadata"] = json!({"name": "a", "annotations": {"short": ""}});
        assert_eq!(object, expected, "{kind}");
    }
}

/// A node as they are: feature discovery says a hundred things about its processor, the kubelet fifty about images.
fn node() -> Value {
    let mut labels: serde_json::Map<String, Value> =
        (0..80).map(|number| (format!("{CPU_FEATURES}FEATURE{number}"), "true".into())).collect();
    for (key, value) in [
        ("feature.node.kubernetes.io/pci-10de.present", "true"),
        ("feature.node.kubernetes.io/kernel-version.full", "6.8.0-45-generic"),
        ("kubernetes.io/hostname", "gpu-node-0000"),
        ("nvidia.com/gpu.product", "NVIDIA-H200"),
    ] {
        labels.insert(key.into(), value.into());
    }
    for number in 0..12 {
        labels.insert(format!("nvidia.com/gpu.deploy.operand-{number}"), "true".into());
    }
    let image = |number: i32| json!({"names": [format!("example.com/{number}@sha256:{number:064}")], "sizeBytes": 1});
    let condition = |type_: &str| {
        json!({
            "type": type_, "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let conditions = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"].map(condition);
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": "gpu-node-0000", "uid": "2269c984-db9a-4b0e-9fd5-86df0ad269f7", "resourceVersion": "1000000",
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels,
            "annotations": {"nfd.node.kubernetes.io/feature-labels": "x".repeat(3000), "nvidia.com/a": "b"},
            "managedFields": [{"fieldsV1": {"f:labels": "x".repeat(5000)}}],
        },
        "spec": {"podCIDR": "10.0.0.0/24", "providerID": "x://y", "taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {
            "images": (0..50).map(image).collect::<Vec<_>>(),
            "conditions": conditions,
            "nodeInfo": {"containerRuntimeVersion": "containerd://2.1.0", "bootID": "x".repeat(36)},
            "allocatable": {"cpu": "32", "memory": "256Gi", "nvidia.com/gpu": "8"},
        },
    })
}

#[test]
fn of_a_node_that_is_kept_which_decisions_read() {
    let mut node = node();
    row("Node").trim(&mut node);
    for kept in [
        "/metadata/labels/nvidia.com~1gpu.product",
        "/metadata/labels/feature.node.kubernetes.io~1kernel-version.full",
        "/metadata/annotations/nvidia.com~1a",
        "/spec/taints/0/key",
        "/status/allocatable/nvidia.com~1gpu",
        "/status/nodeInfo/containerRuntimeVersion",
    ] {
        assert!(node.pointer(kept).is_some(), "{kept} is gone");
    }
    assert_eq!(node["status"]["conditions"][0]["type"], "Ready");
    for dropped in ["/metadata/managedFields", "/status/images", "/status/allocatable/cpu", "/spec/podCIDR"] {
        assert!(node.pointer(dropped).is_none(), "{dropped} is kept");
    }
}

#[test]
fn a_node_takes_less_than_two_thousand_bytes() {
    let mut node = node();
    let before = node.to_string().len();
    row("Node").trim(&mut node);
    let after = node.to_string().len();
    assert!(before > 15_000 && after < 2_000, "{before} bytes, and {after} are kept");
}

#[test]
fn paths_are_those_of_the_api() {
    assert_eq!(row("Deployment").path("ns"), "/apis/apps/v1/namespaces/ns/deployments");
    assert_eq!(row("Pod").path(""), "/api/v1/pods");
    assert_eq!(row("Node").path("ns"), "/api/v1/nodes");
}

#[test]
fn workloads_are_selected_by_our_label() {
    assert_eq!(
        row("Deployment").label_selector().unwrap(),
        "app.kubernetes.io/managed-by in (k8s-nim-operator,gpu-operator)"
    );
    assert!(row("Deployment").selects(&json!({"metadata": {"labels": {MANAGED_BY: "k8s-nim-operator"}}})));
    assert!(!row("Deployment").selects(&json!({"metadata": {"labels": {MANAGED_BY: "Helm"}}})));
    assert!(row("Role").selects(&json!({})));
}
