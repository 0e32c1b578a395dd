//! Every file of `examples/gpu`, applied to virtual nodes until it is ready, and then nothing is written. What the
//! operator applies for it is as reviewed.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use capstan_tests::gpu::{ALPHA, API, example};
use capstan_tests::nim::{condition, state};
use capstan_tests::rendered::assert_rendered;
use capstan_tests::wire::Fault;
use capstan_tests::world::World;
use serde_json::{Value, json};

macro_rules! examples {
    ($($name:ident: $file:literal, $labels:tt, $check:expr;)*) => {
        const FILES: &[&str] = &[$($file),*];
        $(
            #[tokio::test(start_paused = true)]
            async fn $name() {
                let world = applied($file, json!($labels)).await;
                let nodes = world.list("v1", "Node").await;
                let check: fn(&[Value]) -> bool = $check;
                assert!(check(&nodes), "{nodes:#?}");
            }
        )*
    };
}

fn label<'a>(node: &'a Value, key: &str) -> &'a str {
    node["metadata"]["labels"][key].as_str().unwrap_or_default()
}

fn offers_gpus(node: &Value) -> bool {
    node["status"]["allocatable"]["nvidia.com/gpu"] == "8"
}

examples! {
    cluster_policy: "clusterpolicy", {}, |nodes| nodes.iter().all(offers_gpus);
    gpu_cluster: "gpucluster", {}, |nodes| {
        nodes.iter().all(|node| label(node, "nvidia.com/gpu.deploy.dra-driver") == "true")
    };
    mig: "mig", {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, |nodes| {
        label(&nodes[1], "nvidia.com/mig.config") == "all-disabled"
    };
    minimal: "minimal", {}, |nodes| nodes.iter().all(offers_gpus);
    nvidia_driver: "nvidiadriver", {"pool": "long-term"}, |nodes| {
        let owner = |node| label(node, "nvidia.com/gpu-operator.driver.owner");
        nodes.iter().all(offers_gpus) && (owner(&nodes[0]), owner(&nodes[1])) == ("default", "long-term")
    };
    time_slicing: "time-slicing", {}, |nodes| nodes.iter().all(offers_gpus);
    upgrade: "upgrade", {}, |nodes| nodes.iter().all(offers_gpus);
    virtual_machines: "virtual-machines", {"nvidia.com/gpu.workload.config": "vm-passthrough"}, |nodes| {
        offers_gpus(&nodes[0]) && !offers_gpus(&nodes[1])
            && label(&nodes[1], "nvidia.com/gpu.deploy.vfio-manager") == "true"
    };
}

#[test]
fn every_example_is_a_story() {
    let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/gpu")).unwrap();
    let mut there: Vec<String> =
        folder.map(|file| file.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned()).collect();
    there.sort();
    assert_eq!(there, FILES);
}

/// Two nodes, the second with these labels, and an example that became ready.
async fn applied(file: &str, labels: Value) -> World {
    // Images that nobody names come from the environment, or for the one that needs none from the operator's own.
    let world = World::start_bare_in_virtual_time(2).await;
    let world = if file == "minimal" { world.with_own_image() } else { world };
    let operator = world.operator(Fault::None).await;
    operator.wire.record_applies();
    world.patch("v1", "Node", "gpu-1", json!({"metadata": {"labels": labels}})).await;
    let objects = example(file);
    for object in &objects {
        world.apply(object.clone()).await;
    }
    for object in objects.iter().filter(|one| one["apiVersion"] == API || one["apiVersion"] == ALPHA) {
        let (kind, name) = (object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
        let ready = world.until(object["apiVersion"].as_str().unwrap(), kind, name, state("ready")).await;
        assert_eq!(condition(&ready, "Ready")["reason"], "Reconciled", "{ready:#}");
    }
    let writes = world.settled(&operator).await;
    world.rest().await;
    assert_eq!(operator.wire.writes(), writes, "settled");
    assert_rendered(&format!("gpu/{file}"), &operator);
    world
}
