//! Versions of small snapshots.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use serde_json::{Value, json};

use super::{plain, versions};
use crate::snapshot::Snapshot;

fn daemon_set(image: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "driver", "namespace": "capstan",
        "labels": {"app.kubernetes.io/managed-by": "gpu-operator"}},
        "spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}})
}

fn pod(name: &str, image: &str, id: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "capstan",
        "ownerReferences": [{"kind": "DaemonSet", "name": "driver"}]},
        "spec": {"containers": [{"name": "c", "image": image}]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "c", "imageID": id}]}})
}

fn node(name: &str, driver: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {
        "feature.node.kubernetes.io/pci-10de.present": "true", "nvidia.com/gpu.product": "NVIDIA-H200",
        "nvidia.com/cuda.driver-version.full": driver, "nvidia.com/cuda.runtime.major": "13", "nvidia.com/cuda.runtime.minor": "0"}},
        "status": {"nodeInfo": {"containerRuntimeVersion": "containerd://2.1.0", "kubeletVersion": "v1.37.1"}}})
}

fn cluster(objects: impl IntoIterator<Item = Value>) -> Snapshot {
    let mut snapshot = Snapshot { server_version: "v1.37.1".into(), ..Snapshot::default() };
    objects.into_iter().for_each(|object| snapshot.add(object));
    snapshot
}

#[test]
fn wanted_and_running_are_compared_pod_by_pod() {
    let found = versions(&cluster([
        daemon_set("r.io/driver:2"),
        pod("a", "r.io/driver:2", "r.io/driver@sha256:22"),
        pod("b", "r.io/driver:1", "r.io/driver@sha256:11"),
        pod("c", "r.io/driver:2", "r.io/driver@sha256:22"),
    ]));
    let one = &found.components[0];
    assert!(one.differs);
    let running: Vec<_> = one.running.iter().map(|one| (one.version.as_str(), one.digest.as_str(), one.pods)).collect();
    assert_eq!(running, [("1", "sha256:11", 1), ("2", "sha256:22", 2)]);
}

#[test]
fn one_tag_with_two_contents_is_marked() {
    let all = [daemon_set("d:2"), pod("a", "d:2", "d@sha256:22"), pod("b", "d:2", "d@sha256:33")];
    assert!(versions(&cluster(all)).components[0].differs);
}

#[test]
fn a_pod_that_has_pulled_nothing_yet_differs_in_nothing() {
    let all = [daemon_set("d:2"), pod("a", "d:2", "d@sha256:22"), pod("b", "d:2", "")];
    assert!(!versions(&cluster(all)).components[0].differs);
}

#[test]
fn workloads_of_others_are_not_listed() {
    let mut other = daemon_set("x:1");
    other["metadata"]["labels"] = json!({});
    assert!(versions(&cluster([other])).components.is_empty());
}

#[test]
fn nodes_that_are_alike_are_one_pool_and_another_driver_is_marked() {
    let policy = json!({"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
        "spec": {"driver": {"version": "580.2"}}});
    let found = versions(&cluster([policy, node("a", "580.2"), node("b", "580.1"), node("c", "580.2")]));
    let pools: Vec<_> = found.drivers.iter().map(|one| (one.running.as_str(), one.nodes, one.differs)).collect();
    assert_eq!(pools, [("580.1", 1, true), ("580.2", 2, false)]);
    assert_eq!((found.drivers[0].cuda.as_str(), found.drivers[0].owner.as_str()), ("13.0", "ClusterPolicy p"));
    assert_eq!(found.runtimes["containerd://2.1.0"], 3);
}

#[test]
fn what_differs_is_marked_in_the_table() {
    let drawn = plain(&cluster([daemon_set("r.io/driver:2"), pod("b", "r.io/driver:1", "r.io/driver@sha256:11")]));
    let line = drawn.lines().find(|line| line.contains("DaemonSet driver")).unwrap();
    assert!(line.starts_with("! capstan") && line.contains("r.io/driver:1") && line.ends_with("sha256:11"), "{drawn}");
}

#[test]
fn an_operator_of_another_version_is_marked() {
    let operator = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "capstan", "namespace": "capstan",
        "labels": {"app.kubernetes.io/name": "capstan", "app.kubernetes.io/version": "9.9.9"}},
        "spec": {"template": {"spec": {"containers": [{"name": "operator", "image": "r.io/capstan:9.9.9"}]}}}});
    let snapshot = cluster([operator]);
    assert_eq!(versions(&snapshot).components[0].wanted.version, "9.9.9");
    let drawn = plain(&snapshot);
    assert!(drawn.contains("operator    9.9.9  ! this program is "), "{drawn}");
}

#[test]
fn crds_of_another_version_say_what_to_do() {
    let mut crd =
        serde_json::to_value(capstan_api::kinds().find(|kind| kind.kind == "NIMCache").unwrap().definition()).unwrap();
    crd["apiVersion"] = json!("apiextensions.k8s.io/v1");
    crd["kind"] = json!("CustomResourceDefinition");
    assert_eq!(versions(&cluster([crd.clone()])).crds[0].differs, None);
    let schema = crd.pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties").unwrap();
    schema.as_object_mut().unwrap().remove("storage");
    let differs = versions(&cluster([crd])).crds[0].differs.clone().unwrap();
    assert!(differs.contains("spec.storage") && differs.contains("capstan crds --apply"), "{differs}");
}
