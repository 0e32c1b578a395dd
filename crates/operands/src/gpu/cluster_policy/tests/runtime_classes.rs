//! Runtime classes, and which pods use them.

use super::*;

fn classes(more: Value) -> Vec<(String, String)> {
    let plan = on_ubuntu(more);
    let all = objects(&plan).iter().filter(|one| one.reference.gvk.kind == "RuntimeClass");
    all.map(|one| (one.reference.name.clone(), one.body["handler"].as_str().unwrap().to_owned())).collect()
}

fn pairs(names: &[&str]) -> Vec<(String, String)> {
    names.iter().map(|name| ((*name).to_owned(), (*name).to_owned())).collect()
}

#[test]
fn there_are_three_with_cdi_one_without_and_none_with_the_nri_plugin() {
    assert_eq!(classes(json!({})), pairs(&["nvidia", "nvidia-cdi", "nvidia-legacy"]));
    assert_eq!(classes(json!({"operator": {"runtimeClass": "gpu"}})), pairs(&["gpu", "nvidia-cdi", "nvidia-legacy"]));
    assert_eq!(classes(json!({"cdi": {"enabled": false}})), pairs(&["nvidia"]));
    assert_eq!(classes(json!({"cdi": {"nriPluginEnabled": true}})), pairs(&[]));
    let plan = on_ubuntu(json!({}));
    assert_eq!(
        find(&plan, "RuntimeClass", "nvidia").unwrap()["metadata"]["labels"]["app.kubernetes.io/component"],
        "gpu-operator"
    );
}

/// Names of runtime classes that go when a policy changes, besides those of somebody else.
fn gone(more: Value) -> Vec<String> {
    let cluster = ubuntu();
    let mut live = applied(&fresh(&policy(json!({})), &cluster), 1, 1);
    let (reference, body) = live.live.iter().find(|(one, _)| one.name == "nvidia-legacy").unwrap();
    let (reference, mut body) = (reference.clone(), (**body).clone());
    body["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    live.live.insert(reference, Arc::new(body));
    let after = plan(&policy(more), &live, &cluster);
    let gone = diff("u1", objects(&after), &live.live).delete.into_iter();
    gone.filter(|one| one.reference.gvk.kind == "RuntimeClass").map(|one| one.reference.name).collect()
}

#[test]
fn classes_that_are_no_longer_wanted_go_unless_somebody_else_brought_them() {
    assert_eq!(gone(json!({"cdi": {"nriPluginEnabled": true}})), ["nvidia", "nvidia-cdi"]);
    assert_eq!(gone(json!({"cdi": {"enabled": false}})), ["nvidia-cdi"]);
    assert_eq!(gone(json!({"operator": {"runtimeClass": "gpu"}})), ["nvidia"]);
}

/// DaemonSets whose pods see GPUs, and the container that does.
const SEEING: [(&str, &str); 7] = [
    ("gpu-feature-discovery", "gpu-feature-discovery"),
    ("nvidia-device-plugin-daemonset", "nvidia-device-plugin"),
    ("nvidia-device-plugin-mps-control-daemon", "mps-control-daemon-ctr"),
    ("nvidia-dcgm", "nvidia-dcgm-ctr"),
    ("nvidia-dcgm-exporter", "nvidia-dcgm-exporter"),
    ("nvidia-mig-manager", "nvidia-mig-manager"),
    ("nvidia-operator-validator", "toolkit-validation"),
];

#[test]
fn pods_see_gpus_through_the_class_or_through_the_plugin() {
    let crio = |more: Value| {
        let mut node = node("n1", ("ubuntu", "24.04"), "k");
        node["status"]["nodeInfo"]["containerRuntimeVersion"] = "cri-o://1.32".into();
        fresh(&policy(more), &cluster(&[node]))
    };
    let (usual, own) = (on_ubuntu(json!({})), on_ubuntu(json!({"operator": {"runtimeClass": "gpu"}})));
    let modern = crio(json!({}));
    let hooks = crio(json!({"cdi": {"enabled": false}}));
    let plugin = on_ubuntu(json!({"cdi": {"nriPluginEnabled": true}}));
    for (name, main) in SEEING {
        let class = |plan| pod(daemon(plan, name))["runtimeClassName"].clone();
        assert_eq!((class(&usual), class(&own), class(&modern)), (json!("nvidia"), json!("gpu"), json!("nvidia")));
        assert_eq!((class(&hooks), class(&plugin)), (Value::Null, Value::Null), "{name}");
        let annotations = &daemon(&plugin, name)["spec"]["template"]["metadata"]["annotations"];
        assert_eq!(
            *annotations,
            json!({format!("nvidia.cdi.k8s.io/container.{main}"): "management.nvidia.com/gpu=all"}),
            "{name}"
        );
    }
    for name in ["nvidia-driver-daemonset", "nvidia-container-toolkit-daemonset"] {
        assert!(pod(daemon(&usual, name))["runtimeClassName"].is_null());
    }
}
