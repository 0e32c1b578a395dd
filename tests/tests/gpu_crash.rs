//! The crash matrix of GPU nodes: install, switches of modes and uninstall end the same, whatever write was the last one
//! before a crash.
//!
//! Some writes get one of the three troubles, in turn, so that the whole takes minutes; with `CRASH_MATRIX=all` every
//! write gets all of them.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use capstan_tests::crash::{self, InjectedFailure};
use capstan_tests::gpu::{ALPHA, API, POLICY, driver, footprint, gpu_cluster, policy};
use capstan_tests::nim::state;
use capstan_tests::world::World;
use serde_json::{Value, json};

/// So many writes of a story are the last one, unless all are asked for.
const MOST: usize = 5;

macro_rules! stories {
    ($($name:ident => $story:ident, $least:literal writes;)*) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $name() {
                crash::matrix($least, MOST, |trouble| run(trouble, $story)).await;
            }
        )*
    };
}

stories! {
    an_install_may_crash_anywhere => install, 60 writes;
    a_switch_of_modes_may_crash_anywhere => modes, 60 writes;
    an_uninstall_may_crash_anywhere => uninstall, 60 writes;
    claims_may_crash_anywhere => claims, 40 writes;
}

/// Tells a story with that trouble. Returns the end and how many writes the first operator made.
async fn run<F: Future<Output = ()>>(
    trouble: InjectedFailure,
    story: fn(std::sync::Arc<World>) -> F,
) -> (Value, usize) {
    let world = std::sync::Arc::new(World::start_bare_in_virtual_time(1).await);
    let told = async {
        story(world.clone()).await;
        world.rest().await;
    };
    let writes = crash::run(&world, trouble, told).await;
    let mut end = world.end_state().await;
    end["footprint"] = serde_json::to_value(footprint_without_chance(&world).await).unwrap();
    (end, writes)
}

/// What is left, without pods, whose names differ.
async fn footprint_without_chance(world: &World) -> Vec<(String, Value)> {
    let all = footprint(world).await;
    all.into_iter().filter(|(name, _)| !name.starts_with("Pod ")).collect()
}

async fn install(world: std::sync::Arc<World>) {
    world.apply(policy()).await;
    world.until(API, "ClusterPolicy", POLICY, state("ready")).await;
}

/// Containers, then a virtual machine's node, then no driver, then another layout of partitions.
async fn modes(world: std::sync::Arc<World>) {
    let on = json!({"enabled": true});
    let mut policy = policy();
    for section in ["sandboxWorkloads", "vfioManager", "sandboxDevicePlugin"] {
        policy["spec"][section] = on.clone();
    }
    policy["spec"]["migManager"] = json!({"enabled": true, "config": {"default": "all-disabled"}});
    world.apply(policy).await;
    world.until(API, "ClusterPolicy", POLICY, state("ready")).await;
    let label = |key: &str, value: Value| json!({"metadata": {"labels": {key: value}}});
    let workload = "nvidia.com/gpu.workload.config";
    world.patch("v1", "Node", "gpu-0", label(workload, "vm-passthrough".into())).await;
    let labelled = |key: &'static str| move |node: &Value| node["metadata"]["labels"][key] == "true";
    world.until("v1", "Node", "gpu-0", labelled("nvidia.com/gpu.deploy.vfio-manager")).await;
    world.patch("v1", "Node", "gpu-0", label(workload, Value::Null)).await;
    world.until("v1", "Node", "gpu-0", labelled("nvidia.com/gpu.deploy.driver")).await;
    world.patch(API, "ClusterPolicy", POLICY, json!({"spec": {"driver": {"enabled": false}}})).await;
    world.until_gone("apps/v1", "DaemonSet", "nvidia-driver-daemonset").await;
    world.patch("v1", "Node", "gpu-0", label("nvidia.com/mig.capable", "true".into())).await;
    world.until("v1", "Node", "gpu-0", labelled("nvidia.com/gpu.deploy.mig-manager")).await;
    world.patch("v1", "Node", "gpu-0", label("nvidia.com/mig.config", "all-1g.18gb".into())).await;
}

async fn uninstall(world: std::sync::Arc<World>) {
    install(world.clone()).await;
    world.delete(API, "ClusterPolicy", POLICY).await;
    let bare = |node: &Value| node["metadata"]["labels"]["nvidia.com/gpu.present"].is_null();
    world.until("v1", "Node", "gpu-0", bare).await;
    world.until_gone("apps/v1", "DaemonSet", "nvidia-driver-daemonset").await;
}

async fn claims(world: std::sync::Arc<World>) {
    world.apply(driver("default", json!({"default": true}))).await;
    world.apply(gpu_cluster()).await;
    world.until(ALPHA, "GPUCluster", "gpu-cluster", state("ready")).await;
    world.delete(ALPHA, "GPUCluster", "gpu-cluster").await;
    world.until_gone(ALPHA, "GPUCluster", "gpu-cluster").await;
    let bare = |node: &Value| node["metadata"]["labels"]["nvidia.com/gpu.present"].is_null();
    world.until("v1", "Node", "gpu-0", bare).await;
}
