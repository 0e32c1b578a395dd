//! Stories of ClusterPolicies, on virtual nodes whose operands wait for each other as on real ones.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use capstan_tests::gpu::{API, driver, footprint, policy};
use capstan_tests::nim::{condition, state};
use capstan_tests::wire::Fault;
use capstan_tests::world::World;
use serde_json::{Value, json};

#[tokio::test(start_paused = true)]
async fn a_policy_makes_the_gpus_of_every_node_usable_and_then_writes_nothing() {
    let world = World::start_bare(2).await;
    let operator = world.operator(Fault::None).await;
    world.apply(policy()).await;
    let ready = world.until(API, "ClusterPolicy", "cluster-policy", state("ready")).await;
    assert_eq!(condition(&ready, "Ready")["reason"], "Reconciled");
    assert_eq!(condition(&ready, "DevicePlugin")["message"], "2 of 2 nodes");
    for node in world.list("v1", "Node").await {
        assert_eq!(node["status"]["allocatable"]["nvidia.com/gpu"], "8");
        assert_eq!(node["metadata"]["labels"]["nvidia.com/gpu.deploy.driver"], "true");
    }
    let writes = world.settled(&operator).await;
    world.rest().await;
    assert_eq!(operator.wire.writes(), writes);
}

#[tokio::test(start_paused = true)]
async fn an_uninstalled_policy_leaves_the_cluster_as_it_was() {
    let world = World::start_bare(2).await;
    let operator = world.operator(Fault::None).await;
    world.settled(&operator).await;
    let before = footprint(&world).await;
    let mut policy = policy();
    policy["spec"]["psa"] = json!({"enabled": true});
    world.apply(policy).await;
    world.until(API, "ClusterPolicy", "cluster-policy", state("ready")).await;
    assert_ne!(footprint(&world).await, before);
    world.delete(API, "ClusterPolicy", "cluster-policy").await;
    world.until_gone("apps/v1", "DaemonSet", "nvidia-driver-daemonset").await;
    world.settled(&operator).await;
    assert_eq!(footprint(&world).await, before);
}

#[tokio::test(start_paused = true)]
async fn drivers_move_over_to_an_nvidia_driver_without_a_restart() {
    let world = World::start_bare(2).await;
    let operator = world.operator(Fault::None).await;
    world.apply(policy()).await;
    world.until(API, "ClusterPolicy", "cluster-policy", state("ready")).await;
    let pods = |all: Vec<Value>| -> Vec<Value> {
        let drivers = all.into_iter().filter(|pod| {
            pod["metadata"]["labels"]["app.kubernetes.io/component"] == "nvidia-driver"
                && pod["status"]["phase"] == "Running"
        });
        drivers.map(|pod| pod["metadata"]["uid"].clone()).collect()
    };
    let before = pods(world.list("v1", "Pod").await);
    assert_eq!(before.len(), 2);
    world.apply(driver("default", json!({"default": true, "upgradePolicy": {"autoUpgrade": false}}))).await;
    world
        .patch(API, "ClusterPolicy", "cluster-policy", json!({"spec": {"driver": {"useNvidiaDriverCRD": true}}}))
        .await;
    world.until_gone("apps/v1", "DaemonSet", "nvidia-driver-daemonset").await;
    world.settled(&operator).await;
    assert_eq!(pods(world.list("v1", "Pod").await), before, "the drivers that run are left alone");
    for node in world.list("v1", "Node").await {
        assert_eq!(node["metadata"]["labels"]["nvidia.com/gpu-operator.driver.owner"], "default");
    }
    let sets = world.list("apps/v1", "DaemonSet").await;
    assert!(
        sets.iter().any(|set| set["metadata"]["name"].as_str().unwrap().starts_with("nvidia-gpu-driver-ubuntu24.04-"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_that_joins_later_is_labelled_and_made_usable() {
    let world = World::start_bare(1).await;
    let operator = world.operator(Fault::None).await;
    world.apply(policy()).await;
    world.until(API, "ClusterPolicy", "cluster-policy", state("ready")).await;
    world.nodes().add(capstan_gpu_sim::gpu_node("late", 4)).await.unwrap();
    world.until("v1", "Node", "late", |node| node["status"]["allocatable"]["nvidia.com/gpu"] == "4").await;
    let ready = world.until(API, "ClusterPolicy", "cluster-policy", state("ready")).await;
    world.settled(&operator).await;
    assert_eq!(condition(&ready, "Ready")["status"], "True");
}
