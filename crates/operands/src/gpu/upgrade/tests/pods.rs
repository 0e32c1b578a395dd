//! Which pods use GPUs, and what a cached pod says.

use serde_json::{Value, json};

use super::*;

fn pod(spec: Value) -> Value {
    json!({"metadata": {"namespace": "work", "name": "p", "uid": "u"}, "spec": spec, "status": {"phase": "Running"}})
}

fn container(kind: &str, resource: &str) -> Value {
    json!({"name": "c", "resources": {kind: {resource: "1"}}})
}

fn claim(driver: &str, admin: bool) -> Value {
    json!({"status": {"allocation": {"devices": {"results": [{"driver": driver, "adminAccess": admin}]}}}})
}

fn uses(pod: &Value) -> bool {
    uses_gpu(pod, |_| None)
}

#[test]
fn resources_of_containers_count() {
    let cases = [
        ("requests", "nvidia.com/gpu", true),
        ("limits", "nvidia.com/gpu", true),
        ("limits", "nvidia.com/gpu.shared", true),
        ("limits", "nvidia.com/mig-1g.5gb", true),
        ("limits", "nvidia.com/pgpu", false),
        ("limits", "amd.com/gpu", false),
        ("requests", "cpu", false),
    ];
    for (kind, resource, expected) in cases {
        assert_eq!(uses(&pod(json!({"containers": [container(kind, resource)]}))), expected, "{kind} {resource}");
        let init = pod(json!({"containers": [], "initContainers": [container(kind, resource)]}));
        assert_eq!(uses(&init), expected, "init {kind} {resource}");
    }
}

#[test]
fn only_pods_that_run_or_will_count() {
    for (phase, expected) in
        [("Running", true), ("Pending", true), ("Succeeded", false), ("Failed", false), ("Unknown", false)]
    {
        let mut pod = pod(json!({"containers": [container("limits", "nvidia.com/gpu")]}));
        pod["status"]["phase"] = phase.into();
        assert_eq!(uses(&pod), expected, "{phase}");
    }
}

#[test]
fn claims_count_when_they_got_a_gpu_for_use() {
    let direct = pod(json!({"containers": [], "resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]}));
    let mut template =
        pod(json!({"containers": [], "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}));
    assert!(!uses(&template), "a claim that is not made yet holds nothing");
    template["status"]["resourceClaimStatuses"] = json!([{"name": "gpu", "resourceClaimName": "mine"}]);
    let (gpu, admin, other) =
        (claim("gpu.nvidia.com", false), claim("gpu.nvidia.com", true), claim("net.example.com", false));
    let unallocated = json!({"status": {}});
    for pod in [&direct, &template] {
        for (claim, expected) in [(&gpu, true), (&admin, false), (&other, false), (&unallocated, false)] {
            assert_eq!(uses_gpu(pod, |name| (name == "mine").then_some(claim)), expected, "{claim}");
        }
        assert!(uses_gpu(pod, |_| None), "a claim that cannot be read counts");
    }
}

#[test]
fn claims_in_use_keep_the_dra_driver() {
    let (gpu, admin) = (claim("gpu.nvidia.com", false), claim("gpu.nvidia.com", true));
    let mut pod = pod(json!({"containers": [], "resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]}));
    assert!(claims_in_use([&pod], |_, _| Some(&gpu)));
    assert!(claims_in_use([&pod], |_, _| Some(&admin)), "monitoring has to give its claim back, too");
    assert!(claims_in_use([&pod], |_, _| None));
    pod["status"]["phase"] = "Succeeded".into();
    assert!(!claims_in_use([&pod], |_, _| Some(&gpu)));
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    assert!(claims_in_use([&pod], |_, _| Some(&gpu)), "one that is going has not given it back");
}

#[test]
fn a_cached_pod_says_who_brings_it_back() {
    let view = |metadata: Value| {
        let pod =
            json!({"metadata": metadata, "spec": {"volumes": [{"emptyDir": {}}]}, "status": {"phase": "Running"}});
        let view = PodView::of(&pod, |_| None);
        (view.controller, view.empty_dir, view.terminating)
    };
    let owner = |kind: &str| json!({"ownerReferences": [{"kind": kind, "controller": true}]});
    assert_eq!(view(json!({})), (PodController::None, true, false));
    assert_eq!(view(owner("ReplicaSet")).0, PodController::Controller);
    assert_eq!(view(owner("DaemonSet")).0, PodController::DaemonSet);
    assert_eq!(view(json!({"annotations": {"kubernetes.io/config.mirror": "x"}})).0, PodController::Kubelet);
    assert!(view(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"})).2);
}

#[test]
fn checks_of_our_own_are_not_evicted() {
    let check = PodOf {
        controller: PodController::DaemonSet,
        labels: [("app".into(), "nvidia-cuda-validator".into())].into(),
        ..PodOf::new("p")
    };
    let machine =
        Machine::old("a").state(State::PodDeletion).cordoned().with(|machine| machine.pods = Some(vec![check]));
    assert_eq!(after(&generous(), &machine, NOW).0.current(), State::PodRestart);
}

fn driver_pod() -> Value {
    json!({
        "metadata": {
            "namespace": "gpu", "name": "driver", "uid": "u",
            "labels": {"controller-revision-hash": "abc"},
            "ownerReferences": [{"kind": "DaemonSet", "uid": "ds"}],
        },
        "spec": {
            "initContainers": [{"name": "m", "env": [{"name": "DRIVER_CONFIG_DIGEST", "value": "42"}]}],
            "containers": [{"name": "d", "env": [{"name": "DRIVER_CONFIG_DIGEST", "value": "43"}]}],
        },
        "status": {
            "phase": "Running",
            "initContainerStatuses": [{"name": "m", "image": "", "imageID": "", "ready": true, "restartCount": 99}],
            "containerStatuses": [{"name": "d", "image": "", "imageID": "", "ready": true, "restartCount": 3}],
        },
    })
}

#[test]
fn a_cached_driver_pod_is_read() {
    let mut pod = driver_pod();
    {
        let view = DriverPod::of(&pod);
        assert_eq!((view.owner, view.revision, view.digest), (Some("ds"), "abc", "42"));
        assert!(view.health.ready && !view.terminating);
    }
    pod["status"]["containerStatuses"][0]["ready"] = false.into();
    pod["status"]["containerStatuses"][0]["state"] =
        json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}});
    let health = DriverPod::of(&pod).health;
    assert_eq!((health.ready, health.restarts), (false, 3), "containers that are done do not count");
    assert_eq!(health.why, "container d: ImagePullBackOff: no such image");
    pod["status"] = json!({"phase": "Running", "containerStatuses": []});
    assert!(!DriverPod::of(&pod).health.ready, "no container is not all containers");
    pod["metadata"]["ownerReferences"] = json!([]);
    assert_eq!(DriverPod::of(&pod).owner, None);
}

#[test]
fn a_cached_node_is_read() {
    let node = json!({
        "metadata": {"name": "a", "resourceVersion": "7", "labels": {keys::STATE: "upgrade-done"}},
        "spec": {"unschedulable": true},
        "status": {"conditions": [{"type": "MemoryPressure", "status": "True"}, {"type": "Ready", "status": "Unknown"}]},
    });
    let view = NodeView::of(&node);
    assert_eq!((view.node.name, view.resource_version, view.ready, view.node.unschedulable), ("a", "7", false, true));
    assert_eq!(State::of(view.node.labels), State::Done);
}
