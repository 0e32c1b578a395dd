//! Stories of GPUClusters: GPUs through claims, on virtual nodes.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::time::Duration;

use capstan_tests::gpu::{ALPHA, API, POLICY, driver, footprint, gpu_cluster, policy};
use capstan_tests::nim::{condition, state};
use capstan_tests::wire::Fault;
use capstan_tests::world::{Operator, World};
use serde_json::{Value, json};

const NAME: &str = "gpu-cluster";

/// A cluster whose GPUs can be claimed.
async fn ready() -> (World, Operator) {
    let world = World::start_bare_in_virtual_time(2).await;
    let operator = world.operator(Fault::None).await;
    world.apply(driver("default", json!({"default": true}))).await;
    let mut cluster = gpu_cluster();
    cluster["spec"]["dcgm"] = json!({"enabled": true});
    cluster["spec"]["dcgmExporter"] = json!({});
    world.apply(cluster).await;
    world.until(ALPHA, "GPUCluster", NAME, state("ready")).await;
    (world, operator)
}

#[tokio::test(start_paused = true)]
async fn a_gpu_cluster_makes_gpus_claimable_and_then_writes_nothing() {
    let (world, operator) = ready().await;
    let cluster = world.until(ALPHA, "GPUCluster", NAME, state("ready")).await;
    assert_eq!(condition(&cluster, "DraDriver")["message"], "2 of 2 nodes");
    assert_eq!(condition(&cluster, "Validation")["status"], "True");
    assert_eq!(world.list("resource.k8s.io/v1", "ResourceSlice").await.len(), 2);
    for node in world.list("v1", "Node").await {
        assert_eq!(node["metadata"]["labels"]["nvidia.com/gpu.deploy.dra-driver"], "true");
        assert_eq!(node["metadata"]["labels"]["nvidia.com/gpu.deploy.device-plugin"], Value::Null);
    }
    let writes = world.settled(&operator).await;
    world.rest().await;
    assert_eq!(operator.wire.writes(), writes);
}

#[tokio::test(start_paused = true)]
async fn a_pod_gets_a_gpu_through_a_claim() {
    let (world, _operator) = ready().await;
    world
        .apply(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "one-gpu"},
            "spec": {"spec": {"devices": {"requests": [
                {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}},
            ]}}},
        }))
        .await;
    world
        .apply(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train"},
            "spec": {
                "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
                "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}],
            },
        }))
        .await;
    world.until("v1", "Pod", "train", |pod| pod["status"]["phase"] == "Running").await;
}

#[tokio::test(start_paused = true)]
async fn whoever_holds_claims_goes_before_the_driver_and_nothing_is_left() {
    let world = World::start_bare_in_virtual_time(2).await;
    let operator = world.operator(Fault::None).await;
    world.apply(driver("default", json!({"default": true}))).await;
    world.settled(&operator).await;
    let before = footprint(&world).await;
    world.apply(gpu_cluster()).await;
    world.until(ALPHA, "GPUCluster", NAME, state("ready")).await;
    world.delete(ALPHA, "GPUCluster", NAME).await;
    // Nobody holds a claim where the driver was told to go.
    while !world.list(ALPHA, "GPUCluster").await.is_empty() {
        let nodes = world.list("v1", "Node").await;
        let driven = |node: &Value| node["metadata"]["labels"]["nvidia.com/gpu.deploy.dra-driver"] == "true";
        let left = nodes.iter().filter(|node| !driven(node)).count();
        let pods = world.list("v1", "Pod").await;
        let holders = pods.iter().filter(|pod| pod["spec"]["resourceClaims"].is_array()).count();
        assert!(left == 0 || holders == 0, "{holders} pods hold claims and {left} nodes lose their driver");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    world.settled(&operator).await;
    assert_eq!(footprint(&world).await, before);
}

#[tokio::test(start_paused = true)]
async fn a_policy_and_a_gpu_cluster_name_each_other() {
    let world = World::start_bare_in_virtual_time(1).await;
    let _operator = world.operator(Fault::None).await;
    world.apply(policy()).await;
    world.until(API, "ClusterPolicy", POLICY, state("ready")).await;
    world.apply(gpu_cluster()).await;
    let refused = |object: &Value| condition(object, "Error")["reason"] == "PrerequisiteNotMet";
    world.until(ALPHA, "GPUCluster", NAME, refused).await;
    let policy = world.until(API, "ClusterPolicy", POLICY, state("notReady")).await;
    assert!(condition(&policy, "Error")["message"].as_str().unwrap().contains("\"gpu-cluster\""));
    world.delete(ALPHA, "GPUCluster", NAME).await;
    world.until(API, "ClusterPolicy", POLICY, state("ready")).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_changes_over_keeps_the_driver_until_its_last_claim_is_given_back() {
    let (world, operator) = ready().await;
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "mine"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}},
    });
    world.apply(claim).await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train"},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": "gpu-0"},
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}],
            "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}],
        },
    });
    world.apply(pod).await;
    world.until("v1", "Pod", "train", |pod| pod["status"]["phase"] == "Running").await;
    // The user keeps operands off both nodes: only the one without claims loses its driver.
    let off = json!({"metadata": {"labels": {"nvidia.com/gpu.deploy.operands": "false"}}});
    for node in ["gpu-0", "gpu-1"] {
        world.patch("v1", "Node", node, off.clone()).await;
    }
    let driver = "nvidia.com/gpu.deploy.dra-driver";
    world.until("v1", "Node", "gpu-1", |node| node["metadata"]["labels"][driver].is_null()).await;
    world.settled(&operator).await;
    world.until("v1", "Node", "gpu-0", |node| node["metadata"]["labels"][driver] == "true").await;
    world.delete("v1", "Pod", "train").await;
    world.until("v1", "Node", "gpu-0", |node| node["metadata"]["labels"][driver].is_null()).await;
}

#[tokio::test(start_paused = true)]
async fn classes_and_admission_policies_that_somebody_deletes_come_back_at_once() {
    let (world, operator) = ready().await;
    world.settled(&operator).await;
    let ours = [
        ("resource.k8s.io/v1", "DeviceClass", "gpu.nvidia.com"),
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "resourceslices-policy-nvidia-dra-driver"),
    ];
    for (api, kind, name) in ours {
        let before = world.until(api, kind, name, |_| true).await["metadata"]["uid"].clone();
        world.delete(api, kind, name).await;
        let began = tokio::time::Instant::now();
        world.until(api, kind, name, |object| object["metadata"]["uid"] != before).await;
        assert!(began.elapsed() < Duration::from_secs(5), "{kind} was away for {:?}", began.elapsed());
    }
}
