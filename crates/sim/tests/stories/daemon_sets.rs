//! DaemonSets: one pod per node, and rollouts.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use capstan_apiserver::error::Status;
use capstan_apiserver::faults::{Fault, Matcher, Verb};
use capstan_apiserver::ops::{Admission, Operation, Request};
use capstan_apiserver::store::{Selection, TableKey};
use capstan_sim::controllers::Settings;
use futures::future::BoxFuture;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetStatus};
use k8s_openapi::api::core::v1::{Node, PodCondition, ResourceQuota};
use serde_json::{Value, json};

use crate::world::{World, is_ready, pods, settings, template};

fn daemon_set(image: &str, strategy: Value, more: Value) -> Value {
    let mut template = template("agent", image);
    template["spec"].as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    json!({"metadata": {"name": "agent"}, "spec": {
        "selector": {"matchLabels": {"app": "agent"}}, "template": template, "updateStrategy": strategy,
    }})
}

fn status(world: &World) -> DaemonSetStatus {
    world.caches().daemon_sets.get("default/agent").unwrap().status.clone().unwrap_or_default()
}

async fn all_updated(world: &World) {
    world
        .until("all pods are new and available", |caches| {
            let set = caches.daemon_sets.get("default/agent").unwrap();
            let status = set.status.clone().unwrap_or_default();
            let wanted = Some(status.desired_number_scheduled);
            status.observed_generation == set.metadata.generation
                && status.updated_number_scheduled == wanted
                && status.number_available == wanted
        })
        .await;
}

fn images(world: &World) -> Vec<String> {
    let pods = world.pods("app", "agent");
    let mut images: Vec<_> =
        pods.iter().map(|pod| pod.spec.as_ref().unwrap().containers[0].image.clone().unwrap()).collect();
    images.sort();
    images.dedup();
    images
}

#[tokio::test(start_paused = true)]
async fn every_node_gets_a_pod_also_a_new_one() {
    let world = World::new(3).await;
    world.create::<DaemonSet>(daemon_set("v1", json!({}), json!({}))).await;
    all_updated(&world).await;
    world.add_node("late", json!({})).await;
    world.until("four pods", |caches| pods(caches, "app", "agent").len() == 4).await;
    all_updated(&world).await;
    let mut nodes: Vec<_> =
        world.pods("app", "agent").iter().map(|pod| pod.spec.as_ref().unwrap().node_name.clone().unwrap()).collect();
    nodes.sort();
    assert_eq!(nodes, ["late", "node-0", "node-1", "node-2"]);
    let expected = DaemonSetStatus {
        current_number_scheduled: 4,
        desired_number_scheduled: 4,
        number_available: Some(4),
        number_ready: 4,
        updated_number_scheduled: Some(4),
        observed_generation: Some(1),
        ..DaemonSetStatus::default()
    };
    assert_eq!(status(&world), expected);
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_no_longer_suits_loses_its_pod() {
    let world = World::new(2).await;
    world.create::<DaemonSet>(daemon_set("v1", json!({}), json!({"nodeSelector": {"gpu": "yes"}}))).await;
    world.wait(10).await;
    assert_eq!(status(&world).desired_number_scheduled, 0);
    let label = |value: Value| json!({"metadata": {"labels": {"gpu": value}}});
    let patch = |body: Value| {
        let user = world.user.clone();
        async move {
            let kind = capstan_apiserver::ops::PatchKind::Merge;
            user.patch::<Node>(None, "node-0", None, kind, body).await.unwrap()
        }
    };
    patch(label(json!("yes"))).await;
    all_updated(&world).await;
    assert_eq!(world.pods("app", "agent").len(), 1);
    patch(label(Value::Null)).await;
    world.wait(10).await;
    assert_eq!(world.pods("app", "agent").len(), 0);
    patch(label(json!("yes"))).await;
    world.wait(10).await;
    patch(json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}})).await;
    world.wait(10).await;
    assert_eq!((world.pods("app", "agent").len(), status(&world).number_misscheduled), (1, 1));
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn a_rolling_update_keeps_to_max_unavailable() {
    let world = World::new(5).await;
    world.create::<DaemonSet>(daemon_set("v1", json!({"rollingUpdate": {"maxUnavailable": 2}}), json!({}))).await;
    all_updated(&world).await;
    let fewest = Arc::new(AtomicUsize::new(usize::MAX));
    let (down, caches) = (fewest.clone(), world.cluster.context().caches.clone());
    world.caches().pods.subscribe(move |_| {
        let ready = pods(&caches, "app", "agent").iter().filter(|pod| is_ready(pod)).count();
        down.fetch_min(ready, Ordering::Relaxed);
    });
    world.patch::<DaemonSet>("agent", json!({"spec": {"template": template("agent", "v2")}})).await;
    all_updated(&world).await;
    assert_eq!((images(&world), fewest.load(Ordering::Relaxed)), (vec!["v2".to_owned()], 3));
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn with_a_surge_no_node_is_ever_without_a_ready_pod() {
    let world = World::new(4).await;
    let strategy = json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    world.create::<DaemonSet>(daemon_set("v1", strategy, json!({}))).await;
    all_updated(&world).await;
    let (fewest, most) = (Arc::new(AtomicUsize::new(usize::MAX)), Arc::new(AtomicUsize::new(0)));
    let (down, up, caches) = (fewest.clone(), most.clone(), world.cluster.context().caches.clone());
    world.caches().pods.subscribe(move |_| {
        let there = pods(&caches, "app", "agent");
        up.fetch_max(there.len(), Ordering::Relaxed);
        down.fetch_min(there.iter().filter(|pod| is_ready(pod)).count(), Ordering::Relaxed);
    });
    world.patch::<DaemonSet>("agent", json!({"spec": {"template": template("agent", "v2")}})).await;
    all_updated(&world).await;
    assert_eq!(images(&world), ["v2"]);
    assert_eq!((fewest.load(Ordering::Relaxed), most.load(Ordering::Relaxed)), (4, 5));
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn on_delete_waits_for_the_user() {
    let world = World::new(2).await;
    world.create::<DaemonSet>(daemon_set("v1", json!({"type": "OnDelete"}), json!({}))).await;
    all_updated(&world).await;
    world.patch::<DaemonSet>("agent", json!({"spec": {"template": template("agent", "v2")}})).await;
    world.wait(60).await;
    assert_eq!((images(&world), status(&world).updated_number_scheduled), (vec!["v1".to_owned()], None));
    world.assert_settled().await;
    for pod in world.pods("app", "agent") {
        world.delete(&*pod).await.unwrap();
    }
    all_updated(&world).await;
    assert_eq!(images(&world), ["v2"]);
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn an_undo_makes_the_old_revision_the_newest() {
    let world = World::new(1).await;
    world.create::<DaemonSet>(daemon_set("v1", json!({}), json!({}))).await;
    all_updated(&world).await;
    for image in ["v2", "v1"] {
        world.patch::<DaemonSet>("agent", json!({"spec": {"template": template("agent", image)}})).await;
        all_updated(&world).await;
    }
    let revisions = world.caches().controller_revisions.list();
    let mut numbers: Vec<_> = revisions
        .iter()
        .map(|one| {
            let image = one.data.0.pointer("/spec/template/spec/containers/0/image").unwrap();
            (one.revision.unwrap(), image.as_str().unwrap().to_owned())
        })
        .collect();
    numbers.sort();
    assert_eq!(numbers, [(2, "v2".to_owned()), (3, "v1".to_owned())]);
    assert_eq!(revisions[0].data.0.pointer("/spec/template/$patch").unwrap(), "replace");
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_pod_is_replaced_ever_more_slowly() {
    let world = World::new(1).await;
    world.create::<DaemonSet>(daemon_set("fail", json!({}), json!({}))).await;
    world.wait(3600).await;
    let failures = world.events("agent").await.iter().filter(|line| line.starts_with("FailedDaemonPod")).count();
    assert!((5..20).contains(&failures), "{failures}");
}

#[tokio::test(start_paused = true)]
async fn copies_are_what_admission_would_have_made_of_them() {
    let spec = json!({"hostNetwork": true, "priorityClassName": "system-node-critical"});
    let play = async |copies: bool| {
        let world = World::with(Settings { copies, ..settings() }, 3).await;
        world.create::<DaemonSet>(daemon_set("v1", json!({}), spec.clone())).await;
        all_updated(&world).await;
        let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "v2"}]}}}});
        world.patch::<DaemonSet>("agent", patch).await;
        all_updated(&world).await;
        let store = world.cluster.server.store();
        let pods = store.select(&TableKey::new("", "pods"), &Selection::default());
        let mut pods: Vec<Value> = pods.iter().map(|pod| pod.value()).collect();
        pods.sort_by_key(|pod| pod["spec"]["nodeName"].to_string());
        (world, pods)
    };
    let (_, admitted) = play(false).await;
    let (world, copied) = play(true).await;
    assert_eq!(copied.len(), 3);
    for (one, other) in admitted.iter().zip(&copied) {
        assert_eq!(shape(one), shape(other));
    }
    let names: BTreeSet<_> = copied.iter().map(|pod| pod["metadata"]["name"].as_str()).collect();
    let uids: BTreeSet<_> = copied.iter().map(|pod| pod["metadata"]["uid"].as_str()).collect();
    assert_eq!((names.len(), uids.len()), (3, 3));
    for pod in &copied {
        let key = format!("default/{}", pod["metadata"]["name"].as_str().unwrap());
        let cached = world.caches().pods.get(&key).unwrap();
        assert_eq!(cached.metadata.uid.as_deref(), pod["metadata"]["uid"].as_str());
    }
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn only_copies_that_ask_for_nothing_are_on_their_nodes_past_the_scheduler() {
    let cpu = |amount: &str| json!({"resources": {"requests": {"cpu": amount}}});
    for (resources, bindings) in [(json!({}), 1), (cpu("100m"), 4)] {
        let world = World::with(Settings { copies: true, ..settings() }, 4).await;
        let bind = Matcher::new().verb(Verb::Create).resource("pods").subresource("binding");
        let counted = world.cluster.server.faults().add(Fault::delay(bind, std::time::Duration::ZERO));
        let mut set = daemon_set("v1", json!({}), json!({}));
        for (key, value) in resources.as_object().unwrap() {
            set["spec"]["template"]["spec"]["containers"][0][key] = value.clone();
        }
        let bound = Arc::new(AtomicUsize::new(0));
        let seen = bound.clone();
        world.caches().pods.subscribe(move |change| {
            let (None, Some(pod)) = (change.old, change.new) else { return };
            let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
            let scheduled = |one: &PodCondition| one.type_ == "PodScheduled" && one.status == "True";
            if conditions.into_iter().flatten().any(scheduled) {
                seen.fetch_add(1, Ordering::Relaxed);
            }
        });
        world.create::<DaemonSet>(set).await;
        all_updated(&world).await;
        let pods = world.pods("app", "agent");
        let nodes: BTreeSet<_> = pods.iter().filter_map(|pod| pod.spec.as_ref()?.node_name.as_deref()).collect();
        let counts = (nodes.len(), counted.hits(), bound.load(Ordering::Relaxed));
        assert_eq!(counts, (4, bindings, 4 - bindings), "{resources}");
    }
}

/// A pod without fields that differ between pods or are untracked.
fn shape(pod: &Value) -> Value {
    let mut pod = pod.clone();
    let meta = pod["metadata"].as_object_mut().unwrap();
    for field in ["name", "uid", "resourceVersion", "creationTimestamp", "managedFields", "ownerReferences"] {
        meta.remove(field);
    }
    for volume in pod["spec"]["volumes"].as_array_mut().into_iter().flatten() {
        volume.as_object_mut().unwrap().remove("name");
    }
    for mount in pod["spec"]["containers"][0]["volumeMounts"].as_array_mut().into_iter().flatten() {
        mount.as_object_mut().unwrap().remove("name");
    }
    pod.as_object_mut().unwrap().remove("status");
    pod
}

/// Counts admitted pods.
#[derive(Default)]
struct Admitted(AtomicUsize);

impl Admission for Admitted {
    fn handles(&self, request: &Request) -> bool {
        let target = &request.target;
        request.operation == Operation::Create && *target.resource.plural == *"pods" && target.subresource.is_none()
    }

    fn validate<'a>(&'a self, _: &'a Request, _: Option<&'a Value>) -> BoxFuture<'a, Result<(), Status>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::ready(Ok(())))
    }
}

#[tokio::test(start_paused = true)]
async fn a_template_is_admitted_once_however_many_nodes_there_are() {
    for nodes in [2, 12] {
        let world = World::with(Settings { copies: true, ..settings() }, nodes).await;
        let admitted = Arc::new(Admitted::default());
        world.cluster.server.add_admission(admitted.clone());
        world.create::<DaemonSet>(daemon_set("v1", json!({}), json!({}))).await;
        all_updated(&world).await;
        assert_eq!((world.pods("app", "agent").len(), admitted.0.load(Ordering::Relaxed)), (nodes, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_quota_counts_every_pod_though_pods_are_copied() {
    let world = World::with(Settings { copies: true, ..settings() }, 3).await;
    world.create::<ResourceQuota>(json!({"metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}})).await;
    world.wait(10).await;
    world.create::<DaemonSet>(daemon_set("v1", json!({}), json!({}))).await;
    world.wait(60).await;
    assert_eq!(world.pods("app", "agent").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_nobody_makes_no_copies() {
    let world = World::with(Settings { copies: true, ..settings() }, 3).await;
    world.create::<DaemonSet>(daemon_set("v1", json!({}), json!({}))).await;
    all_updated(&world).await;
    let creates = Matcher::new().verb(Verb::Create).resource("pods");
    let cut = world.cluster.server.faults().cut_off(creates);
    world.delete(&*world.pods("app", "agent")[0]).await.unwrap();
    world.wait(300).await;
    assert_eq!(world.pods("app", "agent").len(), 2);
    cut.remove();
    all_updated(&world).await;
    assert_eq!(world.pods("app", "agent").len(), 3);
}
