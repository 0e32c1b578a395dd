//! StatefulSets: order, identity, partitions, claims.

use std::sync::{Arc, Mutex};

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use serde_json::{Value, json};

use crate::world::{World, is_ready, pods, template};

fn stateful_set(replicas: i32, image: &str, more: Value) -> Value {
    let mut spec = json!({
        "replicas": replicas,
        "serviceName": "db",
        "selector": {"matchLabels": {"app": "db"}},
        "template": template("db", image),
    });
    spec.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    json!({"metadata": {"name": "db"}, "spec": spec})
}

fn status(world: &World) -> StatefulSetStatus {
    world.caches().stateful_sets.get("default/db").unwrap().status.clone().unwrap_or_default()
}

async fn ready(world: &World, count: i32) {
    world
        .until("as many are ready", |caches| {
            let set = caches.stateful_sets.get("default/db").unwrap();
            let status = set.status.clone().unwrap_or_default();
            status.ready_replicas.unwrap_or(0) == count
                && status.replicas == count
                && status.observed_generation == set.metadata.generation
        })
        .await;
}

/// Pod events in order: `+name` created, `!name` ready, `-name` deleted.
fn diary(world: &World) -> Arc<Mutex<Vec<String>>> {
    let diary = Arc::new(Mutex::new(Vec::new()));
    let notes = diary.clone();
    world.caches().pods.subscribe(move |change| {
        let name = change.last().metadata.name.clone().unwrap();
        let was_ready = change.old.is_some_and(|pod| is_ready(pod));
        let mark = match (change.old, change.new) {
            (None, _) => "+",
            (_, None) => "-",
            (_, Some(pod)) if is_ready(pod) && !was_ready => "!",
            _ => return,
        };
        notes.lock().unwrap().push(format!("{mark}{name}"));
    });
    diary
}

fn take(diary: &Mutex<Vec<String>>) -> String {
    std::mem::take(&mut *diary.lock().unwrap()).join(" ")
}

#[tokio::test(start_paused = true)]
async fn pods_come_and_go_one_after_the_other() {
    let world = World::new(2).await;
    let diary = diary(&world);
    world.create::<StatefulSet>(stateful_set(3, "v1", json!({}))).await;
    ready(&world, 3).await;
    assert_eq!(take(&diary), "+db-0 !db-0 +db-1 !db-1 +db-2 !db-2");
    world.patch::<StatefulSet>("db", json!({"spec": {"replicas": 1}})).await;
    ready(&world, 1).await;
    assert_eq!(take(&diary), "-db-2 -db-1");
    let pod = &world.pods("app", "db")[0];
    let spec = pod.spec.as_ref().unwrap();
    assert_eq!((spec.hostname.as_deref(), spec.subdomain.as_deref()), (Some("db-0"), Some("db")));
    let labels = pod.metadata.labels.as_ref().unwrap();
    assert_eq!(labels["apps.kubernetes.io/pod-index"], "0");
    assert_eq!(labels["controller-revision-hash"], status(&world).current_revision.unwrap());
    world.assert_settled().await;
    let events = world.events("db").await;
    assert_eq!(events[0], "SuccessfulCreate: create Pod db-0 in StatefulSet db successful");
}

#[tokio::test(start_paused = true)]
async fn parallel_pods_come_at_once() {
    let world = World::new(2).await;
    let diary = diary(&world);
    world.create::<StatefulSet>(stateful_set(3, "v1", json!({"podManagementPolicy": "Parallel"}))).await;
    ready(&world, 3).await;
    assert_eq!(take(&diary), "+db-0 +db-1 +db-2 !db-0 !db-1 !db-2");
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn an_update_goes_from_the_highest_down_to_the_partition() {
    let world = World::new(2).await;
    let partition = json!({"updateStrategy": {"rollingUpdate": {"partition": 1}}});
    world.create::<StatefulSet>(stateful_set(3, "v1", partition)).await;
    ready(&world, 3).await;
    let old = status(&world).current_revision.unwrap();
    let diary = diary(&world);
    take(&diary);
    world.patch::<StatefulSet>("db", json!({"spec": {"template": template("db", "v2")}})).await;
    world.wait(60).await;
    assert_eq!(take(&diary), "-db-2 +db-2 !db-2 -db-1 +db-1 !db-1");
    let now = status(&world);
    assert_eq!((now.updated_replicas, now.current_replicas), (Some(2), Some(1)));
    assert_eq!(now.current_revision.as_ref(), Some(&old));
    world.assert_settled().await;
    // A pod below the partition keeps its template, also when it is replaced.
    let first = world.pods("app", "db").into_iter().find(|pod| pod.metadata.name.as_deref() == Some("db-0")).unwrap();
    world.delete(&*first).await.unwrap();
    world.wait(30).await;
    let first = world.caches().pods.get("default/db-0").unwrap();
    assert_eq!(first.metadata.labels.as_ref().unwrap()["controller-revision-hash"], old);

    world.patch::<StatefulSet>("db", json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}})).await;
    world.wait(60).await;
    let now = status(&world);
    assert_eq!((now.updated_replicas, now.current_replicas), (Some(3), Some(3)));
    assert_eq!(now.current_revision, now.update_revision);
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn claims_outlive_their_pods_unless_the_policy_says_otherwise() {
    let world = World::new(1).await;
    world.add_storage_class("Immediate").await;
    let claims = json!({
        "volumeClaimTemplates": [{
            "metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }],
    });
    world.create::<StatefulSet>(stateful_set(2, "v1", claims)).await;
    ready(&world, 2).await;
    let names = |world: &World| -> Vec<String> {
        world.caches().volume_claims.list().iter().map(|claim| claim.metadata.name.clone().unwrap()).collect()
    };
    assert_eq!(names(&world), ["data-db-0", "data-db-1"]);
    world.patch::<StatefulSet>("db", json!({"spec": {"replicas": 1}})).await;
    ready(&world, 1).await;
    assert_eq!(names(&world), ["data-db-0", "data-db-1"]);
    let policy = json!({"spec": {
        "replicas": 2, "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete", "whenDeleted": "Delete"},
    }});
    world.patch::<StatefulSet>("db", policy).await;
    ready(&world, 2).await;
    world.patch::<StatefulSet>("db", json!({"spec": {"replicas": 1}})).await;
    ready(&world, 1).await;
    world.wait(30).await;
    assert_eq!(names(&world), ["data-db-0"]);
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_pod_comes_back_under_its_name() {
    let world = World::new(1).await;
    world.create::<StatefulSet>(stateful_set(1, "v1", json!({}))).await;
    ready(&world, 1).await;
    let first = world.caches().pods.get("default/db-0").unwrap();
    let body = json!({"status": {"phase": "Failed"}});
    let kind = capstan_apiserver::ops::PatchKind::Merge;
    world.user.patch::<capstan_sim::Pod>(Some("default"), "db-0", Some("status"), kind, body).await.unwrap();
    world
        .until("another pod", |caches| {
            let now = caches.pods.get("default/db-0");
            now.is_some_and(|pod| pod.metadata.uid != first.metadata.uid && is_ready(&pod))
        })
        .await;
    assert_eq!(pods(world.caches(), "app", "db").len(), 1);
    world.assert_settled().await;
}
