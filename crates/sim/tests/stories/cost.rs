//! Cost of a pod: writes and bytes, measured on a small cluster.

use std::time::Duration;

use capstan_apiserver::store::{Selection, Start, TableKey, Watch};
use capstan_sim::{Cluster, node, scheduler};
use futures::StreamExt;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::world::{settings, template};

const NODES: usize = 20;
const SETS: usize = 3;
const REPLICAS: usize = 140;
const PODS: usize = NODES * SETS + REPLICAS;

async fn start() -> Cluster {
    let nodes = node::Settings {
        nodes: (0..NODES).map(|i| node::NodeTemplate::new(format!("node-{i}"))).collect(),
        events: node::Events::Warnings,
        heartbeat: Duration::from_secs(3600),
        ..node::Settings::default()
    };
    let scheduler = scheduler::Settings { report_success: false, ..scheduler::Settings::default() };
    let builder = Cluster::builder().seed(7).node_settings(nodes).scheduler_settings(scheduler);
    builder.controller_settings(settings()).start().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_pod_costs_three_writes_and_its_owner_few() {
    let cluster = start().await;
    let (store, client) = (cluster.server.store(), cluster.client());
    tokio::time::sleep(Duration::from_secs(60)).await;
    let watch =
        |plural: &str, group: &str| store.watch(&TableKey::new(group, plural), Selection::default(), Start::Now);
    let [pods, sets, replica_sets, events] =
        [("pods", ""), ("daemonsets", "apps"), ("replicasets", "apps"), ("events", "")]
            .map(|(p, g)| watch(p, g).unwrap());
    let (before, held) = (store.revision(), store.counts());

    for index in 0..SETS {
        let name = format!("agent-{index}");
        let spec = json!({"selector": {"matchLabels": {"app": name}}, "template": template(&name, "agent:1")});
        let set: DaemonSet = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
        Api::default_namespaced(client.clone()).create(&PostParams::default(), &set).await.unwrap();
    }
    let selector = json!({"matchLabels": {"app": "web"}});
    let spec = json!({"replicas": REPLICAS, "selector": selector, "template": template("web", "web:1")});
    let web: Deployment = serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": spec})).unwrap();
    Api::default_namespaced(client.clone()).create(&PostParams::default(), &web).await.unwrap();
    tokio::time::sleep(Duration::from_secs(120)).await;

    let count = async |mut watch: Watch| {
        let mut seen = 0;
        while let Ok(Some(_)) = tokio::time::timeout(Duration::from_secs(1), watch.next()).await {
            seen += 1;
        }
        seen
    };
    let (total, after) = (store.revision() - before, store.counts());
    assert_eq!(cluster.context().caches.pods.len(), PODS);
    assert_eq!(count(pods).await, 3 * PODS, "create, bind, one status");
    let owners = count(sets).await + count(replica_sets).await;
    assert!(owners < 25 * (SETS + 1), "{owners} writes to {} owners of {PODS} pods", SETS + 1);
    let events = count(events).await;
    assert!(events <= 25 * (SETS + 2), "{events} events: a flood is cut");
    assert!(total < 4 * PODS as u64, "{total} writes for {PODS} pods");
    let bytes = (after.bytes - held.bytes) / PODS;
    assert!(bytes < 6 << 10, "{bytes} bytes of text for a pod, with its share of all else");
}

#[tokio::test(start_paused = true)]
async fn managed_fields_come_with_the_first_apply_where_they_are_not_asked_for() {
    let cluster = Cluster::builder().seed(7).nodes(1).untracked(&["nodes"]).start().await.unwrap();
    let nodes: Api<Node> = Api::all(cluster.client());
    let managers = async || {
        let node = nodes.get("node-0").await.unwrap();
        let managers = node.metadata.managed_fields.unwrap_or_default().into_iter();
        managers.filter_map(|entry| entry.manager).collect::<Vec<_>>()
    };
    let label = |value: &str| json!({"metadata": {"labels": {"zone": value}}});
    nodes.patch("node-0", &PatchParams::default(), &Patch::Merge(label("a"))).await.unwrap();
    assert_eq!(managers().await, Vec::<String>::new());
    let mut config = label("b");
    config["apiVersion"] = json!("v1");
    config["kind"] = json!("Node");
    nodes.patch("node-0", &PatchParams::apply("story").force(), &Patch::Apply(config)).await.unwrap();
    assert!(managers().await.contains(&"story".to_owned()));
    nodes.patch("node-0", &PatchParams::default(), &Patch::Merge(label("c"))).await.unwrap();
    assert!(!managers().await.contains(&"story".to_owned()), "whoever wrote last owns the label");
}
