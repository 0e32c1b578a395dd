//! NVIDIADriver: which DaemonSets there are, and what they say.

use capstan_api::gpu::nvidia_driver::NvidiaDriverState;
use capstan_plan::diff;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::gpu::Fleet;

fn driver(more: Value) -> NvidiaDriver {
    let mut spec = json!({
        "default": true, "driverType": "gpu", "repository": "nvcr.io/nvidia", "image": "driver", "version": "580.65.06",
    });
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    serde_json::from_value(json!({
        "apiVersion": "nvidia.com/v1alpha1", "kind": "NVIDIADriver", "spec": spec,
        "metadata": {"name": "default", "uid": "bfac7359-6033-45ce-88d6-53db0078526e", "generation": 1},
    }))
    .unwrap()
}

fn node(name: &str, os: (&str, &str), kernel: &str) -> Value {
    let feature = |name: &str| format!("feature.node.kubernetes.io/{name}");
    json!({"metadata": {"name": name, "labels": {
        "nvidia.com/gpu.present": "true", "nvidia.com/gpu-operator.driver.owner": "default",
        feature("system-os_release.ID"): os.0, feature("system-os_release.VERSION_ID"): os.1,
        feature("kernel-version.full"): kernel,
    }}})
}

fn cluster(nodes: &[Value]) -> Cluster {
    let mut fleet = Fleet::default();
    nodes.iter().for_each(|node| fleet.add(node));
    let images = [("DRIVER_MANAGER_IMAGE".to_owned(), "manager:1".to_owned())].into();
    Cluster { namespace: "gpu-operator".into(), images, fleet, ..Cluster::default() }
}

fn facts() -> Facts {
    Facts::at(Timestamp::from_second(1_800_000_000).unwrap())
}

fn planned(driver: &NvidiaDriver, nodes: &[Value]) -> Plan<NvidiaDriverStatus> {
    plan(driver, &facts(), &cluster(nodes), &Surroundings { root: "/".into(), ..Surroundings::default() })
}

fn daemon_sets(plan: &Plan<NvidiaDriverStatus>) -> Vec<&Object> {
    plan.objects.iter().flatten().filter(|object| object.reference.gvk.kind == "DaemonSet").collect()
}

fn error(plan: &Plan<NvidiaDriverStatus>) -> (&str, &str) {
    let one = plan.status.conditions.as_ref().unwrap().iter().find(|one| one.type_ == "Error").unwrap();
    (&one.reason, &one.message)
}

#[test]
fn nodes_that_share_an_image_share_a_daemon_set() {
    let nodes =
        [node("a", ("rhel", "9.4"), "k1"), node("b", ("rhel", "9.5"), "k2"), node("c", ("ubuntu", "22.04"), "k3")];
    let plan = planned(&driver(json!({})), &nodes);
    let sets = daemon_sets(&plan);
    assert_eq!(sets.len(), 2);
    let selector = |set: &Object| set.body["spec"]["template"]["spec"]["nodeSelector"].clone();
    let version = "feature.node.kubernetes.io/system-os_release.VERSION_ID";
    assert!(sets.iter().any(|set| selector(set)[format!("{version}.major")] == "9"));
    assert!(sets.iter().any(|set| selector(set)[version] == "22.04"));
    for set in sets {
        assert_eq!(selector(set)["nvidia.com/gpu-operator.driver.owner"], "default");
        assert_eq!(set.body["spec"]["updateStrategy"]["type"], "OnDelete");
    }
}

#[test]
fn precompiled_drivers_have_a_daemon_set_per_kernel() {
    let nodes = [node("a", ("ubuntu", "22.04"), "5.15.0-70-generic"), node("b", ("ubuntu", "22.04"), "6.8.0-1")];
    let plan = planned(&driver(json!({"usePrecompiled": true})), &nodes);
    let images: Vec<String> = daemon_sets(&plan)
        .iter()
        .map(|set| set.body["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap().to_owned())
        .collect();
    assert!(images.contains(&"nvcr.io/nvidia/driver:580.65.06-5.15.0-70-generic-ubuntu22.04".to_owned()), "{images:?}");
    assert_eq!(images.len(), 2);
}

#[test]
fn without_nodes_of_its_own_a_driver_is_ready_and_makes_nothing() {
    let plan = planned(&driver(json!({})), &[]);
    assert_eq!((plan.status.state, plan.objects.unwrap().len()), (NvidiaDriverState::Ready, 0));
}

#[test]
fn a_policy_with_drivers_of_its_own_disables_it() {
    let around = Surroundings { disabled: true, ..Surroundings::default() };
    let plan = plan(&driver(json!({})), &facts(), &cluster(&[]), &around);
    assert_eq!((plan.status.state, plan.objects), (NvidiaDriverState::Disabled, None));
}

#[test]
fn what_can_never_work_is_refused_with_the_field() {
    let table = [
        (json!({"repository": "", "version": "", "image": "nvcr.io/nvidia/driver"}), "spec.image is"),
        (json!({"usePrecompiled": true, "version": "sha256:ab"}), "digest is not supported"),
        (json!({"usePrecompiled": true, "gds": {"enabled": true}}), "not supported along with"),
        (json!({"gds": {"enabled": true, "version": "v2.17.5"}}), "spec.kernelModuleType"),
        (json!({"repoConfig": {"name": "gone"}}), "spec.driver.repoConfig"),
        (json!({"secretEnv": "gone"}), "secretEnv"),
    ];
    for (more, expected) in table {
        let plan = planned(&driver(more.clone()), &[node("a", ("ubuntu", "22.04"), "k")]);
        let (reason, message) = error(&plan);
        assert_eq!(reason, "ReconcileFailed", "{more}");
        assert!(message.contains(expected), "{more}: {message}");
    }
}

#[test]
fn a_newer_operator_alone_rolls_no_driver() {
    let (driver, nodes) = (driver(json!({})), [node("a", ("ubuntu", "22.04"), "k")]);
    let first = planned(&driver, &nodes);
    let mut facts = facts();
    for object in diff("bfac7359-6033-45ce-88d6-53db0078526e", first.objects.as_deref().unwrap(), &facts.live).apply {
        facts.live.insert(object.reference.clone(), std::sync::Arc::new(object.body.clone()));
    }
    let mut newer = cluster(&nodes);
    newer.images.insert("DRIVER_MANAGER_IMAGE".into(), "manager:2".into());
    let around = Surroundings { root: "/".into(), ..Surroundings::default() };
    let uid = "bfac7359-6033-45ce-88d6-53db0078526e";
    let kept = plan(&driver, &facts, &newer, &around);
    assert!(diff(uid, kept.objects.as_deref().unwrap(), &facts.live).is_empty());
    let mut changed = driver.clone();
    changed.spec.version = Some("595.1".into());
    let rolled = plan(&changed, &facts, &newer, &around);
    let manager = &daemon_sets(&rolled)[0].body["spec"]["template"]["spec"]["initContainers"][0]["image"];
    assert_eq!(manager, "manager:2");
}
