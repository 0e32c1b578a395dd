//! Which objects there are, and when.

use capstan_api::gpu::cluster_policy::ClusterPolicyState;
use capstan_plan::diff;
use serde_json::json;

use super::*;

fn names(plan: &Plan<ClusterPolicyStatus>, kind: &str) -> Vec<String> {
    let all = objects(plan).iter().filter(|object| object.reference.gvk.kind == kind);
    all.map(|object| object.reference.name.clone()).collect()
}

#[test]
fn an_empty_policy_deploys_what_is_on_by_default() {
    let plan = fresh(&policy(json!({})), &ubuntu());
    assert_eq!(condition(&plan, "Error").unwrap().1, "OperandNotReady");
    assert_eq!(
        names(&plan, "DaemonSet"),
        [
            "nvidia-driver-daemonset",
            "nvidia-container-toolkit-daemonset",
            "nvidia-operator-validator",
            "nvidia-device-plugin-daemonset",
            "nvidia-device-plugin-mps-control-daemon",
            "nvidia-dcgm",
            "nvidia-dcgm-exporter",
            "gpu-feature-discovery",
            "nvidia-mig-manager",
        ]
    );
    assert_eq!(names(&plan, "RuntimeClass"), ["nvidia", "nvidia-cdi", "nvidia-legacy"]);
}

#[test]
fn without_gpu_nodes_there_is_everything_but_daemon_sets_and_the_policy_is_ready() {
    let mut empty = cluster(&[]);
    let plan = fresh(&policy(json!({})), &empty);
    assert!(names(&plan, "DaemonSet").is_empty() && !names(&plan, "ServiceAccount").is_empty());
    assert_eq!(plan.status.state, ClusterPolicyState::NotReady);
    let plan = super::plan(&policy(json!({})), &applied(&plan, 0, 0), &empty);
    assert_eq!(plan.status.state, ClusterPolicyState::Ready);
    assert_eq!(condition(&plan, "Ready").unwrap(), ("True", "NFDLabelsMissing", "No NFD labels found"));
    assert_eq!(plan.requeue, Some(std::time::Duration::from_secs(45)));
    empty.fleet.discovered = true;
    let plan = super::plan(&policy(json!({})), &applied(&plan, 0, 0), &empty);
    assert_eq!(condition(&plan, "Ready").unwrap().1, "NoGPUNodes");
    assert_eq!(plan.requeue, None);
}

#[test]
fn a_second_look_writes_nothing_and_ready_means_available_on_every_node() {
    let (policy, mut cluster) = (policy(json!({})), ubuntu());
    let first = fresh(&policy, &cluster);
    for label in [
        "driver",
        "container-toolkit",
        "operator-validator",
        "device-plugin",
        "dcgm",
        "dcgm-exporter",
        "gpu-feature-discovery",
    ] {
        cluster.fleet.deploy.insert(label.into(), 1);
    }
    let facts = applied(&first, 1, 1);
    let second = super::plan(&policy, &facts, &cluster);
    assert!(diff("u1", objects(&second), &facts.live).is_empty());
    assert_eq!(second.status.state, ClusterPolicyState::Ready, "{:?}", second.status.conditions);
    let waiting = super::plan(&policy, &applied(&first, 1, 0), &cluster);
    assert_eq!(waiting.status.state, ClusterPolicyState::NotReady);
    assert_eq!(condition(&waiting, "Driver").unwrap(), ("False", "NotReady", "0 of 1 nodes"));
    cluster.fleet.deploy.insert("driver".into(), 2);
    let short = super::plan(&policy, &facts, &cluster);
    assert!(condition(&short, "Driver").unwrap().2.contains("cannot run it"), "{:?}", condition(&short, "Driver"));
}

#[test]
fn what_is_switched_off_goes_and_the_rest_stays() {
    let cluster = ubuntu();
    let before = applied(&fresh(&policy(json!({})), &cluster), 1, 1);
    let after = super::plan(&policy(json!({"devicePlugin": {"enabled": false}})), &before, &cluster);
    let gone: Vec<String> =
        diff("u1", objects(&after), &before.live).delete.into_iter().map(|one| one.reference.name).collect();
    assert!(gone.iter().all(|name| name.starts_with("nvidia-device-plugin")), "{gone:?}");
    assert!(gone.contains(&"nvidia-device-plugin-daemonset".into()));
    assert!(container(daemon(&after, "nvidia-operator-validator"), "plugin-validation").is_none());
}

#[test]
fn while_an_operand_cannot_be_decided_nothing_goes() {
    let cluster = ubuntu();
    let before = applied(&fresh(&policy(json!({})), &cluster), 1, 1);
    let broken = policy(json!({"driver": {"repository": "r.io"}, "devicePlugin": {"enabled": false}}));
    let after = super::plan(&broken, &before, &cluster);
    assert!(diff("u1", objects(&after), &before.live).delete.is_empty());
    let (status, reason, message) = condition(&after, "Error").unwrap();
    assert_eq!((status, reason), ("True", "ReconcileFailed"));
    assert!(message.starts_with("Failed to reconcile state-driver: invalid image specification"), "{message}");
}

#[test]
fn drivers_that_nvidia_drivers_take_over_leave_their_pods_behind() {
    let cluster = ubuntu();
    let before = applied(&fresh(&policy(json!({})), &cluster), 1, 1);
    let after = super::plan(&policy(json!({"driver": {"useNvidiaDriverCRD": true}})), &before, &cluster);
    let gone = diff("u1", objects(&after), &before.live).delete;
    let driver = gone.iter().find(|one| one.reference.name == "nvidia-driver-daemonset").unwrap();
    assert_eq!(driver.propagation, capstan_plan::PropagationPolicy::Orphan);
}

#[test]
fn only_the_oldest_policy_is_acted_on() {
    let mut cluster = ubuntu();
    cluster.policies.push(("2025-01-01T00:00:00Z".into(), "first".into()));
    let plan = fresh(&policy(json!({})), &cluster);
    assert_eq!((plan.status.state, plan.objects), (ClusterPolicyState::Ignored, None));
}
