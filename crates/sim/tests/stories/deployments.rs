//! Deployments: rollouts, rollbacks, scaling.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use serde_json::{Value, json};

use crate::world::{World, is_ready, pods, template};

fn deployment(replicas: i32, image: &str, more: Value) -> Value {
    let mut spec = json!({
        "replicas": replicas,
        "selector": {"matchLabels": {"app": "web"}},
        "template": template("web", image),
    });
    spec.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    json!({"metadata": {"name": "web"}, "spec": spec})
}

fn live(world: &World) -> Arc<Deployment> {
    world.caches().deployments.get("default/web").unwrap()
}

fn condition(deployment: &Deployment, kind: &str) -> (String, String) {
    let conditions = deployment.status.as_ref().and_then(|status| status.conditions.as_ref());
    let found = conditions.into_iter().flatten().find(|one| one.type_.as_deref() == Some(kind));
    let found = found.cloned().unwrap_or_default();
    (found.status.unwrap_or_default(), found.reason.unwrap_or_default())
}

/// What `kubectl rollout status` waits for.
fn is_rolled_out(deployment: &Deployment) -> bool {
    let status = deployment.status.clone().unwrap_or_default();
    let wanted = deployment.spec.replicas;
    status.observed_generation >= deployment.metadata.generation
        && status.updated_replicas == wanted
        && status.replicas == wanted
        && status.available_replicas == wanted
}

async fn rolled_out(world: &World) {
    world.until("rolled out", |caches| is_rolled_out(&caches.deployments.get("default/web").unwrap())).await;
}

fn image(world: &World) -> Vec<String> {
    let mut images: Vec<String> = world
        .pods("app", "web")
        .iter()
        .map(|pod| pod.spec.as_ref().unwrap().containers[0].image.clone().unwrap())
        .collect();
    images.dedup();
    images
}

#[tokio::test(start_paused = true)]
async fn a_rollout_keeps_to_its_bounds_and_ends() {
    let world = World::new(3).await;
    let strategy = json!({"strategy": {"rollingUpdate": {"maxSurge": 2, "maxUnavailable": 1}}});
    world.create::<Deployment>(deployment(6, "v1", strategy)).await;
    rolled_out(&world).await;
    assert_eq!(world.pods("app", "web").len(), 6);
    assert_eq!(condition(&live(&world), "Progressing"), ("True".into(), "NewReplicaSetAvailable".into()));
    assert_eq!(condition(&live(&world), "Available"), ("True".into(), "MinimumReplicasAvailable".into()));

    let (most, fewest) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(usize::MAX)));
    let (up, down, caches) = (most.clone(), fewest.clone(), world.cluster.context().caches.clone());
    world.caches().pods.subscribe(move |_| {
        let sizes = caches.replica_sets.list().iter().map(|set| set.spec.replicas.unwrap()).sum::<i32>();
        up.fetch_max(usize::try_from(sizes).unwrap(), Ordering::Relaxed);
        let ready = pods(&caches, "app", "web").iter().filter(|pod| is_ready(pod)).count();
        down.fetch_min(ready, Ordering::Relaxed);
    });
    world.patch::<Deployment>("web", json!({"spec": {"template": template("web", "v2")}})).await;
    rolled_out(&world).await;
    assert_eq!(image(&world), ["v2"]);
    assert_eq!((most.load(Ordering::Relaxed), fewest.load(Ordering::Relaxed)), (8, 5));
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn an_undo_brings_the_old_replica_set_back_as_a_new_revision() {
    let world = World::new(1).await;
    world.create::<Deployment>(deployment(2, "v1", json!({}))).await;
    rolled_out(&world).await;
    let first = world.caches().replica_sets.list()[0].clone();
    world.patch::<Deployment>("web", json!({"spec": {"template": template("web", "v2")}})).await;
    rolled_out(&world).await;
    world.patch::<Deployment>("web", json!({"spec": {"template": template("web", "v1")}})).await;
    rolled_out(&world).await;

    let sets = world.caches().replica_sets.list();
    assert_eq!(sets.len(), 2);
    let again = sets.iter().find(|set| set.metadata.uid == first.metadata.uid).unwrap();
    let note = |set: &ReplicaSet, key: &str| set.metadata.annotations.as_ref().unwrap().get(key).cloned();
    assert_eq!(note(again, "deployment.kubernetes.io/revision").as_deref(), Some("3"));
    assert_eq!(note(again, "deployment.kubernetes.io/revision-history").as_deref(), Some("1"));
    let annotations = live(&world).metadata.annotations.clone().unwrap();
    assert_eq!(annotations["deployment.kubernetes.io/revision"], "3");
    assert_eq!(image(&world), ["v1"]);
    world.assert_settled().await;
    let name = again.metadata.name.as_deref().unwrap();
    let events = world.events("web").await;
    assert_eq!(events[0], format!("ScalingReplicaSet: Scaled up replica set {name} from 0 to 2"));
}

#[tokio::test(start_paused = true)]
async fn old_replica_sets_beyond_the_limit_go() {
    let world = World::new(1).await;
    world.create::<Deployment>(deployment(1, "v1", json!({"revisionHistoryLimit": 1}))).await;
    rolled_out(&world).await;
    for image in ["v2", "v3", "v4"] {
        world.patch::<Deployment>("web", json!({"spec": {"template": template("web", image)}})).await;
        rolled_out(&world).await;
    }
    world.wait(10).await;
    assert_eq!(world.caches().replica_sets.len(), 2);
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn a_recreation_has_no_old_pods_beside_new_ones() {
    let world = World::new(1).await;
    world.create::<Deployment>(deployment(3, "v1", json!({"strategy": {"type": "Recreate"}}))).await;
    rolled_out(&world).await;
    let caches = world.cluster.context().caches.clone();
    let mixed = Arc::new(AtomicUsize::new(0));
    let seen = mixed.clone();
    world.caches().pods.subscribe(move |_| {
        let all = caches.pods.in_namespace("default");
        let mut images: Vec<_> = all.iter().map(|pod| pod.spec.as_ref().unwrap().containers[0].image.clone()).collect();
        images.sort();
        images.dedup();
        seen.fetch_max(images.len(), Ordering::Relaxed);
    });
    world.patch::<Deployment>("web", json!({"spec": {"template": template("web", "v2")}})).await;
    rolled_out(&world).await;
    assert_eq!((mixed.load(Ordering::Relaxed), image(&world)), (1, vec!["v2".to_owned()]));
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn a_rollout_that_does_not_progress_says_so_in_time() {
    let world = World::new(1).await;
    world.create::<Deployment>(deployment(2, "v1", json!({"progressDeadlineSeconds": 60}))).await;
    rolled_out(&world).await;
    world.patch::<Deployment>("web", json!({"spec": {"template": template("web", "never")}})).await;
    world.wait(50).await;
    assert_eq!(condition(&live(&world), "Progressing").0, "True");
    world.wait(30).await;
    assert_eq!(condition(&live(&world), "Progressing"), ("False".into(), "ProgressDeadlineExceeded".into()));
    assert_eq!(live(&world).status.as_ref().unwrap().available_replicas, Some(2));
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_deployment_scales_but_does_not_roll() {
    let world = World::new(1).await;
    world.create::<Deployment>(deployment(2, "v1", json!({}))).await;
    rolled_out(&world).await;
    let template = template("web", "v2");
    world.patch::<Deployment>("web", json!({"spec": {"paused": true, "replicas": 4, "template": template}})).await;
    world.until("four pods", |caches| pods(caches, "app", "web").len() == 4).await;
    world.wait(20).await;
    assert_eq!(image(&world), ["v1"]);
    assert_eq!(condition(&live(&world), "Progressing"), ("Unknown".into(), "DeploymentPaused".into()));
    world.assert_settled().await;
    world.patch::<Deployment>("web", json!({"spec": {"paused": false}})).await;
    rolled_out(&world).await;
    assert_eq!(image(&world), ["v2"]);
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_pod_comes_back_and_a_released_one_stays() {
    let world = World::new(1).await;
    world.create::<Deployment>(deployment(2, "v1", json!({}))).await;
    rolled_out(&world).await;
    let pods = world.pods("app", "web");
    world.delete(&*pods[0]).await.unwrap();
    let name = pods[1].metadata.name.clone().unwrap();
    world.patch::<capstan_sim::Pod>(&name, json!({"metadata": {"labels": {"app": "other"}}})).await;
    world.wait(20).await;
    assert_eq!(world.pods("app", "web").len(), 2);
    let released = world.pods("app", "other");
    assert_eq!(released.len(), 1);
    assert!(released[0].metadata.owner_references.iter().flatten().next().is_none());
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn scaling_during_a_rollout_is_shared_in_proportion() {
    let world = World::new(1).await;
    let strategy = json!({
        "strategy": {"rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}},
        "progressDeadlineSeconds": 30,
    });
    world.create::<Deployment>(deployment(10, "v1", strategy)).await;
    rolled_out(&world).await;
    world.patch::<Deployment>("web", json!({"spec": {"template": template("web", "never")}})).await;
    world.wait(30).await;
    let sizes = |world: &World| {
        let mut sizes: Vec<_> =
            world.caches().replica_sets.list().iter().map(|set| set.spec.replicas.unwrap()).collect();
        sizes.sort_unstable();
        sizes
    };
    assert_eq!(sizes(&world), [5, 8]);
    world.patch::<Deployment>("web", json!({"spec": {"replicas": 15}})).await;
    world.wait(30).await;
    assert_eq!(sizes(&world), [7, 11]);
    world.assert_settled().await;
}
