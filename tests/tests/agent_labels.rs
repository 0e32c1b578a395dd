//! What feature discovery writes through an API server: its own labels, no others, and nothing that is there already.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use capstan_agent::discovery::{FeatureObject, NodeLabels, NodeReport, Publisher};
use capstan_tests::world::World;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

const GROUP: &str = "nfd.k8s-sigs.io/v1alpha1";

fn said(labels: &[(&str, &str)]) -> NodeReport {
    let labels = labels.iter().map(|(name, value)| (format!("nvidia.com/{name}"), (*value).to_owned())).collect();
    NodeReport { labels, node: None }
}

/// A world, and the name of one of its nodes.
async fn started() -> (World, String) {
    let world = World::start().await;
    let node = world.list("v1", "Node").await[0]["metadata"]["name"].as_str().unwrap().to_owned();
    (world, node)
}

#[tokio::test(start_paused = true)]
async fn labels_of_others_stay_and_ours_go() {
    let (world, name) = started().await;
    let nodes: Api<Node> = Api::all(world.admin.clone());
    world.patch("v1", "Node", &name, json!({"metadata": {"labels": {"nvidia.com/by-hand": "x"}}})).await;
    let ours = NodeLabels { api: nodes.clone(), node: name.clone() };
    let labelled = async || {
        let node = nodes.get_metadata(&name).await.unwrap();
        let find = |label: &str| node.labels().get(&format!("nvidia.com/{label}")).cloned();
        [find("gpu.count"), find("mig.strategy"), find("by-hand")].map(Option::unwrap_or_default).join(" ")
    };
    ours.publish(&said(&[("gpu.count", "8"), ("mig.strategy", "mixed")])).await.unwrap();
    assert_eq!(labelled().await, "8 mixed x");
    ours.publish(&said(&[("gpu.count", "7")])).await.unwrap();
    assert_eq!(labelled().await, "7  x");
    ours.withdraw().await.unwrap();
    assert_eq!(labelled().await, "  x");
}

#[tokio::test(start_paused = true)]
async fn an_object_says_it_for_the_node_and_is_written_only_when_it_changes() {
    let (world, name) = started().await;
    world.install("nfd.k8s-sigs.io", "v1alpha1", "NodeFeature", "nodefeatures").await;
    let uid = world.list("v1", "Node").await.into_iter().find(|node| node["metadata"]["name"] == name.as_str());
    let ours = FeatureObject::new(world.admin.clone(), &name, &world.namespace, "").await;
    let objects = async || world.list(GROUP, "NodeFeature").await;
    let version = |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap().to_owned();

    ours.publish(&said(&[("gpu.count", "8"), ("mig.strategy", "mixed")])).await.unwrap();
    let first = objects().await.remove(0);
    assert_eq!(first["metadata"]["name"], format!("nvidia-features-for-{name}"));
    assert_eq!(first["metadata"]["labels"]["nfd.node.kubernetes.io/node-name"], name.as_str());
    assert_eq!(
        first["metadata"]["ownerReferences"][0]["uid"],
        uid.unwrap()["metadata"]["uid"],
        "it goes with the node"
    );
    assert_eq!(first["spec"]["labels"], json!({"nvidia.com/gpu.count": "8", "nvidia.com/mig.strategy": "mixed"}));

    ours.publish(&said(&[("gpu.count", "8"), ("mig.strategy", "mixed")])).await.unwrap();
    assert_eq!(version(&objects().await[0]), version(&first), "nothing new was said");
    ours.publish(&said(&[("gpu.count", "7")])).await.unwrap();
    assert_eq!(objects().await[0]["spec"]["labels"], json!({"nvidia.com/gpu.count": "7"}));
    ours.withdraw().await.unwrap();
    ours.withdraw().await.expect("already gone");
    assert_eq!(objects().await, [] as [Value; 0]);
}
