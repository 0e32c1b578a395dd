//! What virtual nodes leave behind: those that run the roles of our image, and those that imitate them.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::{BTreeMap, BTreeSet};

use capstan_tests::gpu::{API, POLICY, policy};
use capstan_tests::nim::state;
use capstan_tests::wire::Fault;
use capstan_tests::world::World;
use serde_json::Value;

const NODE: &str = "gpu-0";
const VALIDATIONS: &str = "run/nvidia/validations";

/// What roles leave on a node otherwise than their imitations, by what it begins with, and why.
const DIFFERENCES: &[(&str, &str)] = &[
    ("label nvidia.com/cuda.", "an imitation has no driver that says its versions"),
    ("label nvidia.com/gfd.timestamp", "nobody writes labels in an imitation"),
    ("label nvidia.com/gpu.compute.", "an imitation knows the product of its GPUs alone"),
    ("label nvidia.com/gpu.count", "an imitation knows the product of its GPUs alone"),
    ("label nvidia.com/gpu.family", "an imitation knows the product of its GPUs alone"),
    ("label nvidia.com/gpu.machine", "an imitation has no machine"),
    ("label nvidia.com/gpu.memory", "an imitation knows the product of its GPUs alone"),
    ("label nvidia.com/gpu.mode", "an imitation knows the product of its GPUs alone"),
    ("label nvidia.com/gpu.replicas", "an imitation does not share GPUs"),
    ("label nvidia.com/gpu.sharing-strategy", "an imitation does not share GPUs"),
    ("label nvidia.com/mig.", "an imitation has no MIG devices"),
    ("label nvidia.com/gpu.deploy.mig-manager", "follows from nvidia.com/mig.capable"),
    ("label nvidia.com/mps.capable", "an imitation does not share GPUs"),
    ("label nvidia.com/vgpu.present", "an imitation has no PCI devices"),
    ("annotation nfd.node.kubernetes.io/feature-labels", "nobody writes labels in an imitation"),
];

/// What a node has once its GPUs can be used, by kind and name.
async fn left_behind(world: &World) -> BTreeMap<String, String> {
    let operator = world.operator(Fault::None).await;
    world.apply(policy()).await;
    world.until(API, "ClusterPolicy", POLICY, state("ready")).await;
    world.settled(&operator).await;
    let node = world.until("v1", "Node", NODE, |_| true).await;
    let mut all = BTreeMap::new();
    let mut tell = |kind: &str, values: &Value| {
        for (name, value) in values.as_object().into_iter().flatten() {
            all.insert(format!("{kind} {name}"), value.as_str().unwrap().to_owned());
        }
    };
    tell("label", &node["metadata"]["labels"]);
    tell("annotation", &node["metadata"]["annotations"]);
    tell("capacity", &node["status"]["capacity"]);
    tell("allocatable", &node["status"]["allocatable"]);
    for condition in node["status"]["conditions"].as_array().unwrap() {
        let text = |field: &str| condition[field].as_str().unwrap_or_default();
        all.insert(format!("condition {}", text("type")), format!("{} {}", text("status"), text("reason")));
    }
    let host = world.nodes().get(NODE).unwrap().host().clone();
    for name in host.list(VALIDATIONS) {
        let content = host.read(&format!("{VALIDATIONS}/{name}")).unwrap();
        all.insert(format!("file {name}"), String::from_utf8(content.to_vec()).unwrap());
    }
    all
}

#[tokio::test(start_paused = true)]
async fn roles_and_their_imitations_leave_the_same_behind_but_for_what_is_known() {
    let real = left_behind(&World::start_with_roles(1).await).await;
    let imitated = left_behind(&World::start_bare_in_virtual_time(1).await.with_own_image()).await;
    let names: BTreeSet<&String> = real.keys().chain(imitated.keys()).collect();
    let differ: Vec<&String> = names.into_iter().filter(|name| real.get(*name) != imitated.get(*name)).collect();
    let known = |name: &str| DIFFERENCES.iter().any(|(start, _)| name.starts_with(start));
    let unknown: Vec<_> =
        differ.iter().filter(|name| !known(name)).map(|name| (name, real.get(*name), imitated.get(*name))).collect();
    assert!(unknown.is_empty(), "roles and imitations differ: {unknown:#?}");
    let gone: Vec<_> =
        DIFFERENCES.iter().filter(|(start, _)| !differ.iter().any(|name| name.starts_with(start))).collect();
    assert!(gone.is_empty(), "there is no such difference any more: {gone:#?}");
    for file in ["driver-ready", "toolkit-ready", "cuda-ready", "plugin-ready", ".driver-ctr-ready"] {
        assert!(real.contains_key(&format!("file {file}")), "{file}: {real:#?}");
    }
    assert_eq!(real["allocatable nvidia.com/gpu"], "8");
}

#[tokio::test(start_paused = true)]
async fn labels_and_devices_are_those_of_the_hardware() {
    let world = World::start_with_roles(2).await;
    let Some(machine) = world.machine(NODE) else { return };
    let _operator = world.operator(Fault::None).await;
    world.apply(policy()).await;
    world.until(API, "ClusterPolicy", POLICY, state("ready")).await;
    let label = |key: &'static str, value: &'static str| move |node: &Value| node["metadata"]["labels"][key] == value;
    world.until("v1", "Node", NODE, label("nvidia.com/gpu.product", "NVIDIA-H200")).await;
    let node = world.until("v1", "Node", NODE, label("nvidia.com/gpu.count", "8")).await;
    assert_eq!(node["metadata"]["labels"]["nvidia.com/cuda.driver-version.full"], "580.65.06");
    assert_eq!(
        node["status"]["nodeInfo"]["kernelVersion"],
        node["metadata"]["labels"]["feature.node.kubernetes.io/kernel-version.full"]
    );
    // A GPU that falls off the bus is not handed out, and is again when it is back and has been quiet for a while.
    let gpu = machine.uuids().pop().unwrap();
    let offers = |capacity: &'static str, allocatable: &'static str| {
        move |node: &Value| {
            let count = |field: &str| node["status"][field]["nvidia.com/gpu"].clone();
            (count("capacity"), count("allocatable")) == (capacity.into(), allocatable.into())
        }
    };
    world.until("v1", "Node", NODE, offers("8", "8")).await;
    machine.gpus().lose(&gpu);
    world.until("v1", "Node", NODE, offers("8", "7")).await;
    assert!(offers("8", "8")(&world.until("v1", "Node", "gpu-1", |_| true).await), "the other node is well");
    machine.gpus().restore(&gpu);
    world.until("v1", "Node", NODE, offers("8", "8")).await;
}
