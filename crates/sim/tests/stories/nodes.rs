//! Unreachable nodes, and the eviction of their pods.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use capstan_apiserver::ops::{PatchKind, Target, WriteOptions};
use capstan_sim::Pod;
use capstan_sim::controllers::{NodeGracePeriods, Settings};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use serde_json::json;

use crate::world::{World, is_ready, settings, template};

/// A cluster whose nodes renew their leases while the switch is on.
async fn world(nodes: usize) -> (World, Vec<Arc<AtomicBool>>) {
    let world = World::with(Settings { node_grace: Some(NodeGracePeriods::default()), ..settings() }, nodes).await;
    let mut switches = Vec::new();
    for index in 0..nodes {
        let on = Arc::new(AtomicBool::new(true));
        switches.push(on.clone());
        let (server, caller) = (world.cluster.server.clone(), world.user.caller().clone());
        world.cluster.context().spawn(async move {
            let name = format!("node-{index}");
            let leases = server.registry().lookup("coordination.k8s.io", "v1", "leases").unwrap();
            let target = Target::all(leases.clone(), Some("kube-node-lease"));
            let body = json!({"metadata": {"name": name}, "spec": {"holderIdentity": name}});
            server.create(&caller, &target, body.into(), &WriteOptions::default()).await.unwrap();
            loop {
                tokio::time::sleep(Duration::from_secs(10)).await;
                if on.load(Ordering::Relaxed) {
                    let one = Target::one(leases.clone(), Some("kube-node-lease"), &name);
                    let body = json!({"spec": {"renewTime": server.clock().rfc3339_micro()}});
                    let patch = capstan_apiserver::ops::Patch { kind: PatchKind::Merge, body: body.into() };
                    server.patch(&caller, &one, patch, &WriteOptions::default()).await.unwrap();
                }
            }
        });
    }
    (world, switches)
}

fn taints(node: &Node) -> Vec<String> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    taints.iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect()
}

fn ready(node: &Node) -> String {
    let conditions = node.status.as_ref().unwrap().conditions.as_ref().unwrap();
    conditions.iter().find(|one| one.type_ == "Ready").unwrap().status.clone()
}

fn deployment(replicas: i32) -> serde_json::Value {
    json!({"metadata": {"name": "web"}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template("web", "v1"),
    }})
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_is_tainted_and_its_pods_move_after_five_minutes() {
    let (world, switches) = world(4).await;
    world.create::<Deployment>(deployment(8)).await;
    world.wait(30).await;
    let on = |world: &World, node: &str| world.caches().pods.on_node(node).len();
    assert_eq!(on(&world, "node-1"), 2);
    switches[1].store(false, Ordering::Relaxed);
    world.wait(40).await;
    let node = || world.caches().nodes.get("node-1").unwrap();
    assert_eq!((ready(&node()), taints(&node()).len()), ("True".into(), 0));
    world.wait(30).await;
    assert_eq!(ready(&node()), "Unknown");
    let expected =
        ["node.kubernetes.io/unreachable:NoSchedule", "node.kubernetes.io/unreachable:NoExecute"].map(str::to_owned);
    assert_eq!(taints(&node()), expected);
    let pods = world.caches().pods.on_node("node-1");
    assert!(pods.iter().all(|pod| !is_ready(pod)));
    assert_eq!(world.pods("app", "web").len(), 8);
    world.wait(310).await;
    assert_eq!((on(&world, "node-1"), world.pods("app", "web").len()), (0, 8));
    assert!(world.pods("app", "web").iter().all(|pod| is_ready(pod)));
    let moved = pods[0].metadata.name.clone().unwrap();
    let events = world.events(&moved).await;
    assert!(events.contains(&format!("TaintManagerEviction: Marking for deletion Pod default/{moved}")), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_heard_of_again_keeps_its_pods() {
    let (world, switches) = world(3).await;
    world.create::<Deployment>(deployment(3)).await;
    world.wait(30).await;
    let before = world.caches().pods.on_node("node-0");
    switches[0].store(false, Ordering::Relaxed);
    world.wait(120).await;
    let node = || world.caches().nodes.get("node-0").unwrap();
    assert_eq!(ready(&node()), "Unknown");
    switches[0].store(true, Ordering::Relaxed);
    let body = json!({"status": {"conditions": [{
        "type": "Ready", "status": "True", "lastHeartbeatTime": world.cluster.server.clock().rfc3339(),
    }]}});
    world.user.patch::<Node>(None, "node-0", Some("status"), PatchKind::Merge, body).await.unwrap();
    world.wait(600).await;
    assert_eq!((ready(&node()), taints(&node()).len()), ("True".into(), 0));
    let after = world.caches().pods.on_node("node-0");
    assert_eq!(before[0].metadata.uid, after[0].metadata.uid);
}

#[tokio::test(start_paused = true)]
async fn nobody_moves_when_all_nodes_are_silent() {
    let (world, switches) = world(3).await;
    world.create::<Deployment>(deployment(3)).await;
    world.wait(30).await;
    switches.iter().for_each(|on| on.store(false, Ordering::Relaxed));
    world.wait(1800).await;
    assert_eq!(world.pods("app", "web").len(), 3);
    let node = world.caches().nodes.get("node-0").unwrap();
    assert_eq!(taints(&node), ["node.kubernetes.io/unreachable:NoSchedule"]);
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_deleted_node_are_collected() {
    let world = World::new(2).await;
    world.create::<Deployment>(deployment(4)).await;
    world.wait(10).await;
    let node = world.caches().nodes.get("node-0").unwrap();
    world.delete(&*node).await.unwrap();
    world.wait(30).await;
    assert_eq!(world.caches().pods.on_node("node-0").len(), 2);
    world.wait(30).await;
    assert!(world.caches().pods.on_node("node-0").is_empty());
    assert_eq!(world.pods("app", "web").len(), 4);
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn a_taint_moves_pods_that_do_not_tolerate_it() {
    let world = World::new(2).await;
    world.create::<Deployment>(deployment(2)).await;
    let patient = json!({"metadata": {"name": "patient", "labels": {"app": "patient"}}, "spec": {
        "nodeName": "node-0", "containers": [{"name": "main", "image": "v1"}],
        "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}],
    }});
    world.create::<Pod>(patient).await;
    world.wait(10).await;
    let body = json!({"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}});
    world.user.patch::<Node>(None, "node-0", None, PatchKind::Merge, body).await.unwrap();
    world.wait(20).await;
    let names = |world: &World| world.caches().pods.on_node("node-0").len();
    assert_eq!(names(&world), 1);
    world.wait(60).await;
    assert_eq!(names(&world), 0);
    assert_eq!(world.pods("app", "web").len(), 2);
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn a_cordoned_node_is_tainted() {
    let world = World::new(1).await;
    for (unschedulable, expected) in [(true, vec!["node.kubernetes.io/unschedulable:NoSchedule"]), (false, vec![])] {
        let body = json!({"spec": {"unschedulable": unschedulable}});
        world.user.patch::<Node>(None, "node-0", None, PatchKind::Merge, body).await.unwrap();
        world.wait(5).await;
        assert_eq!(taints(&world.caches().nodes.get("node-0").unwrap()), expected);
    }
    world.assert_settled().await;
}
