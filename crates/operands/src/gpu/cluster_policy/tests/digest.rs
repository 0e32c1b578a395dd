//! What changes the identity of a driver, and what does not.

use super::*;

/// The digest that a driver of such a policy carries, the same in every container that carries one.
fn digest(more: Value) -> String {
    let plan = on_ubuntu(more);
    let daemon = daemon(&plan, "nvidia-driver-daemonset");
    let digests: Vec<String> = ["k8s-driver-manager", "nvidia-driver-ctr"]
        .iter()
        .map(|name| env(container(daemon, name).unwrap())["DRIVER_CONFIG_DIGEST"].to_owned())
        .collect();
    assert_eq!(digests[0], digests[1]);
    digests[0].clone()
}

#[test]
fn what_nodes_load_changes_it() {
    let usual = digest(json!({}));
    let cases = [
        json!({"driver": {"image": "r.io/driver:2"}}),
        json!({"driver": {"manager": {"image": "r.io/manager:2"}}}),
        json!({"driver": {"manager": {"env": [{"name": "A", "value": "1"}]}}}),
        json!({"driver": {"args": ["--foo"]}}),
        json!({"driver": {"env": [{"name": "A", "value": "1"}]}}),
        json!({"driver": {"kernelModuleType": "open"}}),
        json!({"driver": {"rdma": {"enabled": true}}}),
        json!({"driver": {"licensingConfig": {"secretName": "s"}}}),
        json!({"driver": {"virtualTopology": {"config": "t"}}}),
        json!({"gds": {"enabled": true}}),
        json!({"gdrcopy": {"enabled": true}}),
        json!({"hostPaths": {"rootFS": "/host"}}),
    ];
    for case in cases {
        assert_ne!(digest(case.clone()), usual, "{case}");
    }
}

#[test]
fn how_the_pod_runs_does_not_change_it() {
    let usual = digest(json!({}));
    let cases = [
        json!({"driver": {"resources": {"limits": {"cpu": "2"}}}}),
        json!({"driver": {"startupProbe": {"periodSeconds": 3}, "livenessProbe": {"periodSeconds": 3}}}),
        json!({"driver": {"imagePullPolicy": "Always", "imagePullSecrets": ["a"]}}),
        json!({"driver": {"hostNetwork": true}}),
        json!({"daemonsets": {"tolerations": [{"operator": "Exists"}], "priorityClassName": "p",
            "labels": {"a": "b"}, "annotations": {"a": "b"}, "podSecurityContext": {"fsGroup": 1}}}),
        json!({"validator": {"image": "r.io/v:2"}}),
    ];
    for case in cases {
        assert_eq!(digest(case.clone()), usual, "{case}");
    }
}

#[test]
fn the_order_of_variables_does_not_change_it() {
    let with =
        |names: [&str; 2]| digest(json!({"driver": {"env": names.map(|name| json!({"name": name, "value": "1"}))}}));
    assert_eq!(with(["A", "B"]), with(["B", "A"]));
}

#[test]
fn the_container_that_builds_on_openshift_carries_it_too() {
    let plan = fresh(&policy(json!({})), &openshift(&["9.6.1"]));
    let daemon = daemon(&plan, "nvidia-driver-daemonset-9.6.1");
    let of = |name: &str| env(container(daemon, name).unwrap())["DRIVER_CONFIG_DIGEST"];
    assert_eq!(of("openshift-driver-toolkit-ctr"), of("nvidia-driver-ctr"));
}
