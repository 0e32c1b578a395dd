//! What a policy says of itself.

use capstan_api::gpu::cluster_policy::ClusterPolicyState::{Ignored, NotReady, Ready};

use super::*;

/// The plan after everything of an empty policy was written, and `change` to each DaemonSet.
fn after(change: impl Fn(&mut Value)) -> Plan<ClusterPolicyStatus> {
    let (policy, cluster) = (policy(json!({})), ubuntu());
    let mut live = applied(&fresh(&policy, &cluster), 1, 1);
    let daemons: Vec<_> = live
        .live
        .iter()
        .filter(|(one, _)| one.gvk.kind == "DaemonSet")
        .map(|(one, body)| (one.clone(), (**body).clone()))
        .collect();
    for (reference, mut body) in daemons {
        change(&mut body);
        live.live.insert(reference, Arc::new(body));
    }
    plan(&policy, &live, &cluster)
}

#[test]
fn everything_in_place_is_ready() {
    let plan = after(|_| {});
    assert_eq!(plan.status.state, Ready);
    let message = "ClusterPolicy is ready as all resources have been successfully reconciled";
    assert_eq!(condition(&plan, "Ready").unwrap(), ("True", "Reconciled", message));
    assert_eq!(condition(&plan, "Error").unwrap(), ("False", "Ready", ""));
    assert_eq!((plan.status.namespace.as_deref(), plan.requeue), (Some("gpu-operator"), None));
    assert!(plan.status.conditions.unwrap().iter().all(|one| one.observed_generation == Some(1)));
}

#[test]
fn a_daemon_set_counts_when_it_was_observed_updated_and_is_available() {
    for (field, value) in
        [("observedGeneration", json!(0)), ("updatedNumberScheduled", json!(0)), ("numberAvailable", json!(0))]
    {
        let plan = after(|body| body["status"][field] = value.clone());
        assert_eq!(plan.status.state, NotReady, "{field}");
    }
    // Just made: nobody has written its status yet.
    let plan = after(|body| body["status"] = json!({}));
    assert_eq!(plan.status.state, NotReady);
    assert!(condition(&plan, "Dcgm").unwrap().2.contains("not looked at by Kubernetes yet"));
}

#[test]
fn a_daemon_set_without_nodes_is_fine() {
    let plan = after(|body| {
        body["status"] = json!({"observedGeneration": 1, "desiredNumberScheduled": 0, "updatedNumberScheduled": 0, "numberAvailable": 0});
    });
    assert_eq!(plan.status.state, Ready);
}

#[test]
fn what_is_not_ready_is_named_in_order() {
    let plan = after(|body| {
        if ["nvidia-dcgm", "nvidia-driver-daemonset"].iter().any(|name| body["metadata"]["name"] == *name) {
            body["status"]["numberAvailable"] = 0.into();
        }
    });
    let message = "ClusterPolicy is not ready; states not ready: [state-driver state-dcgm]";
    assert_eq!(condition(&plan, "Error").unwrap(), ("True", "OperandNotReady", message));
    assert_eq!(condition(&plan, "Ready").unwrap(), ("False", "Error", ""));
    assert_eq!(condition(&plan, "Driver").unwrap(), ("False", "NotReady", "0 of 1 nodes"));
    assert_eq!(condition(&plan, "Toolkit"), None);
    assert_eq!(condition(&plan, "ContainerToolkit").unwrap().0, "True");
}

#[test]
fn an_operand_that_is_off_hides_none_that_is_not_ready() {
    let cluster = ubuntu();
    let off = policy(json!({"gfd": {"enabled": false}, "migManager": {"enabled": false}}));
    let live = applied(&fresh(&off, &cluster), 1, 0);
    let plan = plan(&off, &live, &cluster);
    assert_eq!(plan.status.state, NotReady);
    assert_eq!(condition(&plan, "FeatureDiscovery"), None);
}

#[test]
fn a_change_is_not_ready_until_it_is_written() {
    let cluster = ubuntu();
    let live = applied(&fresh(&policy(json!({})), &cluster), 1, 1);
    let plan = plan(&policy(json!({"dcgm": {"image": "r.io/dcgm:2"}})), &live, &cluster);
    assert_eq!(condition(&plan, "Error").unwrap().2, "ClusterPolicy is not ready; states not ready: [state-dcgm]");
}

#[test]
fn a_younger_policy_is_ignored_and_says_whose_turn_it_is() {
    let mut cluster = ubuntu();
    cluster.policies.push(("2025-01-01T00:00:00Z".into(), "first".into()));
    let plan = fresh(&policy(json!({})), &cluster);
    assert_eq!((plan.status.state, plan.requeue, plan.objects.is_none()), (Ignored, None, true));
    assert!(condition(&plan, "Error").unwrap().2.contains("\"first\""));
}

#[test]
fn of_equally_old_policies_the_first_by_name_counts() {
    for (other, expected) in [("a", Ignored), ("z", NotReady)] {
        let mut cluster = ubuntu();
        cluster.policies.push(("2026-01-01T00:00:00Z".into(), other.into()));
        assert_eq!(fresh(&policy(json!({})), &cluster).status.state, expected, "{other}");
    }
}

#[test]
fn a_gpu_cluster_is_in_the_way_and_nothing_is_tried_again() {
    let cluster = Cluster { gpu_clusters: vec!["gpu-cluster".into()], ..ubuntu() };
    let plan = fresh(&policy(json!({})), &cluster);
    let message =
        "conflicting GPUCluster resource \"gpu-cluster\" detected; ClusterPolicy and GPUCluster cannot co-exist";
    assert_eq!(condition(&plan, "Error").unwrap(), ("True", "ReconcileFailed", message));
    assert_eq!((plan.status.state, plan.requeue, plan.objects.is_none()), (NotReady, None, true));
}

#[test]
fn settings_that_exclude_each_other_are_refused_at_any_time() {
    let table = [
        (json!({"cdi": {"enabled": false, "nriPluginEnabled": true}}), "CDI is disabled"),
        (
            json!({"cdi": {"nriPluginEnabled": true}, "toolkit": {"enabled": false}}),
            "the Container Toolkit is disabled",
        ),
    ];
    let live = applied(&on_ubuntu(json!({})), 1, 1);
    for (more, why) in table {
        let plan = plan(&policy(more), &live, &ubuntu());
        let message = format!("error validating clusterpolicy: the NRI Plugin cannot be enabled when {why}");
        assert_eq!(condition(&plan, "Error").unwrap(), ("True", "ReconcileFailed", message.as_str()));
        assert!(plan.objects.is_none());
    }
}

#[test]
fn a_fault_is_told_once() {
    let broken = || policy(json!({"dcgm": {"repository": "r.io"}}));
    let first = fresh(&broken(), &ubuntu());
    assert_eq!(first.events.len(), 1);
    let mut again = broken();
    again.status = Some(first.status);
    assert!(fresh(&again, &ubuntu()).events.is_empty());
}

#[test]
fn several_faults_are_all_told() {
    let plan = on_ubuntu(json!({"dcgm": {"repository": "r.io"}, "gfd": {"version": "1"}}));
    let message = condition(&plan, "Error").unwrap().2;
    for part in
        ["Failed to reconcile state-dcgm: invalid image", "Failed to reconcile gpu-feature-discovery: invalid image"]
    {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(condition(&plan, "Dcgm").unwrap().1, "Failed");
    assert!(find(&plan, "DaemonSet", "nvidia-dcgm-exporter").is_some());
}

#[test]
fn objects_of_somebody_else_stay_when_an_operand_is_off() {
    let cluster = ubuntu();
    let mut live = applied(&on_ubuntu(json!({})), 1, 1);
    let (reference, body) =
        live.live.iter().find(|(one, _)| one.gvk.kind == "Service" && one.name == "nvidia-dcgm").unwrap();
    let (reference, mut body) = (reference.clone(), (**body).clone());
    body["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    live.live.insert(reference.clone(), Arc::new(body));
    let plan = plan(&policy(json!({"dcgm": {"enabled": false}})), &live, &cluster);
    let gone: Vec<Ref> = diff("u1", objects(&plan), &live.live).delete.into_iter().map(|one| one.reference).collect();
    assert!(!gone.contains(&reference) && gone.iter().any(|one| one.name == "nvidia-dcgm"));
}

#[test]
fn the_last_gpu_node_takes_the_daemon_sets_with_it() {
    let live = applied(&on_ubuntu(json!({})), 1, 1);
    let plan = plan(&policy(json!({})), &live, &cluster(&[]));
    let gone = diff("u1", objects(&plan), &live.live).delete;
    assert!(gone.iter().all(|one| one.reference.gvk.kind == "DaemonSet") && gone.len() == 9, "{gone:?}");
}
