//! What is written, what is not, and what is refused.

use std::time::Duration;

use capstan_api::nim::NimService;
use capstan_apiserver::faults::{Fault, Matcher, Verb};
use capstan_plan::{Deletion, Diff, Object, Ref, diff};
use capstan_runtime::writer::{Sent, refusal};
use capstan_runtime::{Class, Gate, Runtime};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{Cluster, Link, config_map, nim_service, reference, runtime, until};

/// A cluster, a NIMService `llama` in it, and a runtime that knows it.
struct Scene {
    cluster: Cluster,
    link: Link,
    runtime: Runtime,
    llama: Ref,
    uid: String,
}

impl Scene {
    async fn start() -> Self {
        Self::with(Gate::open()).await
    }

    async fn with(gate: Gate) -> Self {
        let cluster = Cluster::start().await;
        cluster.install("nimservice").await;
        let owner = cluster.apply(nim_service("llama")).await;
        let link = cluster.link();
        let (runtime, _) = runtime(&link, gate).await;
        let uid = owner["metadata"]["uid"].as_str().unwrap().to_owned();
        link.writes();
        Self { cluster, link, runtime, llama: Ref::of::<NimService>("default", "llama"), uid }
    }

    fn owned(&self, object: Object) -> Object {
        let owner = json!({
            "apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NIMService", "name": "llama", "uid": self.uid,
            "controller": true, "blockOwnerDeletion": true,
        });
        object.owned_by(&serde_json::from_value(owner).unwrap())
    }

    fn map(&self, name: &str, value: &str) -> Object {
        let typed: ConfigMap = serde_json::from_value(config_map(name, value)).unwrap();
        self.owned(Object::new(&typed))
    }

    fn deployment(&self) -> Object {
        let typed: Deployment = serde_json::from_value(deployment()).unwrap();
        self.owned(Object::new(&typed))
    }

    fn diff(&self, wanted: &[Object]) -> Diff {
        diff(&self.uid, wanted, &self.runtime.cache.owned_by(&self.uid))
    }

    async fn apply(&self, wanted: &[Object]) -> capstan_runtime::writer::Outcome {
        self.runtime.writer.apply(self.diff(wanted)).await
    }

    /// Cuts the watches, so that the cache falls behind; requests go on.
    async fn fall_behind(&self) {
        let watches = Matcher::new().user("operator").verb(Verb::Watch);
        self.cluster.server.faults().cut_off(watches);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "llama", "namespace": "default",
            "labels": {"app.kubernetes.io/managed-by": "k8s-nim-operator"}},
        "spec": {
            "selector": {"matchLabels": {"app": "llama"}},
            "template": {
                "metadata": {"labels": {"app": "llama"}},
                "spec": {"containers": [{"name": "nim", "image": "nim:1"}]},
            },
        },
    })
}

#[tokio::test(start_paused = true)]
async fn what_is_wanted_is_made_once_and_then_costs_nothing() {
    let scene = Scene::start().await;
    let wanted = [scene.map("a", "1"), scene.map("b", "1")];
    assert_eq!(scene.apply(&wanted).await.applied, 2);
    assert_eq!(scene.link.writes().len(), 2);
    // The answers are in the cache: not even the watch has to be waited for.
    for _ in 0..3 {
        assert!(scene.diff(&wanted).is_empty());
        assert_eq!(scene.apply(&wanted).await.applied, 0);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(scene.link.requests("/configmaps").is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_somebody_edits_is_repaired_and_what_is_no_longer_wanted_goes() {
    let scene = Scene::start().await;
    scene.apply(&[scene.map("a", "1"), scene.map("b", "1")]).await.result().unwrap();
    scene.cluster.apply(config_map("a", "edited")).await;
    until(5, "seen", || scene.runtime.cache.get(&reference("a")).unwrap()["data"]["key"] == "edited").await;
    let outcome = scene.apply(&[scene.map("a", "1")]).await;
    assert_eq!((outcome.applied, outcome.deleted), (1, 1));
    assert_eq!(scene.cluster.get(&config_map("a", "")).await.unwrap()["data"]["key"], "1");
    assert_eq!(scene.cluster.get(&config_map("b", "")).await, None);
    assert!(scene.diff(&[scene.map("a", "1")]).is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_object_of_somebody_else_is_named_and_left_alone() {
    let scene = Scene::start().await;
    // Without our label, so that no watch shows it.
    let mut theirs = deployment();
    theirs["metadata"]["labels"] = json!({"team": "other"});
    let before = scene.cluster.apply(theirs).await;
    let conflicts = scene.apply(&[scene.deployment()]).await.result().unwrap();
    assert_eq!(
        refusal(&conflicts[0]),
        "refuses to overwrite Deployment default/llama, which was not made by this operator"
    );
    assert_eq!(scene.cluster.get(&deployment()).await, Some(before.clone()));
    // Nobody shows it to us, so the server had to refuse us once; from then on it is looked at first.
    assert_eq!(scene.link.writes().len(), 1);
    assert_eq!(scene.apply(&[scene.deployment()]).await.conflicts.len(), 1);
    assert!(scene.link.writes().is_empty());
    assert_eq!(scene.cluster.get(&deployment()).await, Some(before));
}

#[tokio::test(start_paused = true)]
async fn what_was_in_the_way_is_made_when_it_is_gone() {
    let scene = Scene::start().await;
    let mut theirs = deployment();
    theirs["metadata"]["labels"] = json!({"team": "other"});
    scene.cluster.apply(theirs).await;
    assert_eq!(scene.apply(&[scene.deployment()]).await.conflicts.len(), 1);
    scene.cluster.delete(&deployment()).await;
    assert_eq!(scene.apply(&[scene.deployment()]).await.applied, 1);
}

#[tokio::test(start_paused = true)]
async fn making_an_object_is_one_request_and_a_field_that_is_no_longer_set_goes() {
    let scene = Scene::start().await;
    let mut more = scene.map("a", "1");
    more.body["data"]["extra"] = "x".into();
    scene.link.requests("/configmaps");
    assert_eq!(scene.apply(&[more]).await.applied, 1);
    assert_eq!(scene.link.requests("/configmaps").len(), 1);
    assert_eq!(scene.apply(&[scene.map("a", "2")]).await.applied, 1);
    let now = scene.cluster.get(&config_map("a", "")).await.unwrap();
    assert_eq!(now["data"], json!({"key": "2"}));
    let managers = now["metadata"]["managedFields"].as_array().unwrap();
    let ours: Vec<_> = managers.iter().map(|one| (&one["manager"], &one["operation"])).collect();
    assert_eq!(ours, [(&json!("capstan"), &json!("Apply"))]);
}

#[tokio::test(start_paused = true)]
async fn an_object_of_another_owner_is_named_with_its_owner() {
    let scene = Scene::start().await;
    let mut theirs = config_map("a", "theirs");
    theirs["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "NIMCache", "name": "other", "uid": scene.uid.replace('-', "0"), "controller": true}]);
    // Not collected in the meantime: the owner is in no registry.
    let conflict = {
        scene.cluster.apply(theirs).await;
        scene.apply(&[scene.map("a", "1")]).await.result().unwrap().remove(0)
    };
    assert_eq!(refusal(&conflict), "refuses to overwrite ConfigMap default/a, which belongs to NIMCache other");
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_there_is_used_and_not_asked_for_again() {
    let scene = Scene::start().await;
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "models", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    scene.cluster.apply(claim.clone()).await;
    let reference = Ref::of::<PersistentVolumeClaim>("default", "models");
    until(5, "seen", || scene.runtime.cache.get(&reference).is_some()).await;
    let typed: PersistentVolumeClaim = serde_json::from_value(claim).unwrap();
    let wanted = scene.owned(Object::new(&typed)).create_once();
    scene.link.writes();
    let outcome = scene.apply(&[wanted]).await;
    assert_eq!((outcome.applied, outcome.conflicts.len(), outcome.failures.len()), (0, 0, 0));
    assert!(scene.link.requests("/persistentvolumeclaims").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_is_behind_makes_nothing_twice() {
    let scene = Scene::start().await;
    let wanted = [scene.map("a", "1")];
    let create = scene.diff(&wanted);
    scene.fall_behind().await;
    // Another process of ours was faster, and this one cannot see it.
    scene.apply(&wanted).await.result().unwrap();
    let made = scene.cluster.get(&config_map("a", "")).await;
    let fresh = runtime(&scene.link, Gate::open());
    let _ = tokio::time::timeout(Duration::from_secs(5), fresh).await;
    scene.link.writes();
    assert_eq!(scene.runtime.writer.apply(create).await.applied, 0);
    assert!(scene.link.writes().is_empty());
    assert_eq!(scene.cluster.get(&config_map("a", "")).await, made);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_found_at_the_next_try() {
    let scene = Scene::start().await;
    let wanted = [scene.map("a", "1")];
    scene.fall_behind().await;
    let patches = Matcher::new().verb(Verb::Patch).resource("configmaps");
    scene.cluster.server.faults().add(Fault::lose_answer(patches).nth(1));
    assert_eq!(scene.apply(&wanted).await.failures[0].error.class(), Class::Unavailable);
    let made = scene.cluster.get(&config_map("a", "")).await;
    assert!(made.is_some());
    assert_eq!(scene.apply(&wanted).await.applied, 0);
    assert_eq!(scene.cluster.get(&config_map("a", "")).await, made);
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_is_behind_deletes_nothing_newer() {
    let scene = Scene::start().await;
    scene.apply(&[scene.map("a", "1")]).await.result().unwrap();
    let mut delete = scene.diff(&[]);
    assert_eq!(delete.delete.len(), 1);
    scene.fall_behind().await;
    scene.cluster.apply(config_map("a", "newer")).await;
    let outcome = scene.runtime.writer.apply(delete.clone()).await;
    assert_eq!(outcome.failures[0].error.class(), Class::Conflict);
    // The same name, another object.
    scene.cluster.delete(&config_map("a", "")).await;
    let other = scene.cluster.apply(config_map("a", "other")).await;
    let version = other["metadata"]["resourceVersion"].as_str().unwrap();
    let seen = delete.delete.remove(0);
    delete.delete = vec![Deletion { resource_version: version.into(), ..seen }];
    let outcome = scene.runtime.writer.apply(delete).await;
    assert_eq!(outcome.failures[0].error.class(), Class::Conflict);
    assert_eq!(scene.cluster.get(&config_map("a", "")).await.unwrap()["data"]["key"], "other");
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_is_behind_overwrites_no_other_object() {
    let scene = Scene::start().await;
    scene.apply(&[scene.map("a", "1")]).await.result().unwrap();
    let change = scene.diff(&[scene.map("a", "2")]);
    scene.fall_behind().await;
    scene.cluster.delete(&config_map("a", "")).await;
    scene.cluster.apply(config_map("a", "theirs")).await;
    let outcome = scene.runtime.writer.apply(change).await;
    assert_eq!(outcome.failures[0].error.class(), Class::Conflict);
    assert_eq!(scene.cluster.get(&config_map("a", "")).await.unwrap()["data"]["key"], "theirs");
}

#[tokio::test(start_paused = true)]
async fn what_is_being_deleted_is_left_to_go() {
    let scene = Scene::start().await;
    let mut held = scene.map("a", "1");
    held.body["metadata"]["finalizers"] = json!(["example.com/wait"]);
    scene.apply(&[held]).await.result().unwrap();
    scene.cluster.delete(&config_map("a", "")).await;
    until(5, "going", || !scene.runtime.cache.get(&reference("a")).unwrap()["metadata"]["deletionTimestamp"].is_null())
        .await;
    scene.link.writes();
    assert_eq!(scene.apply(&[scene.map("a", "2")]).await.applied, 0);
    assert!(scene.link.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_failure_ends_the_waves_after_its_own() {
    let scene = Scene::start().await;
    let maps = Matcher::new().verb(Verb::Patch).resource("configmaps").name("bad");
    let refused = capstan_apiserver::error::Status::new(422, "Invalid", "no");
    scene.cluster.server.faults().add(Fault::fail(maps, refused));
    let outcome = scene.apply(&[scene.map("bad", "1"), scene.map("good", "1"), scene.deployment()]).await;
    assert_eq!(outcome.failures.len(), 1);
    assert_eq!(outcome.failures[0].error.class(), Class::Invalid);
    assert!(scene.cluster.get(&config_map("good", "")).await.is_some());
    assert!(scene.cluster.get(&deployment()).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_status_is_written_when_it_changes_and_never_again() {
    let scene = Scene::start().await;
    let status = json!({"state": "Ready", "availableReplicas": 1});
    assert_eq!(scene.runtime.writer.status(&scene.llama, &status).await.unwrap(), Sent::Yes);
    for _ in 0..3 {
        assert_eq!(scene.runtime.writer.status(&scene.llama, &status).await.unwrap(), Sent::No);
    }
    let next = json!({"state": "NotReady"});
    assert_eq!(scene.runtime.writer.status(&scene.llama, &next).await.unwrap(), Sent::Yes);
    assert_eq!(scene.link.writes().len(), 2);
    let there = scene.cluster.get(&nim_service("llama")).await.unwrap();
    assert_eq!(there["status"], next);
    assert_eq!(there["metadata"]["generation"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_status_of_an_older_spec_is_refused() {
    let scene = Scene::start().await;
    scene.fall_behind().await;
    let mut edited = nim_service("llama");
    edited["spec"]["image"]["tag"] = "2".into();
    scene.cluster.apply(edited).await;
    let error = scene.runtime.writer.status(&scene.llama, &json!({"state": "Ready"})).await.unwrap_err();
    assert_eq!(error.class(), Class::Conflict);
}

#[tokio::test(start_paused = true)]
async fn finalizers_come_and_go_without_touching_others() {
    let scene = Scene::start().await;
    let ours = "finalizer.nimservice.apps.nvidia.com";
    let mut with_theirs = nim_service("llama");
    with_theirs["metadata"]["finalizers"] = json!(["example.com/theirs"]);
    scene.cluster.apply(with_theirs).await;
    until(5, "seen", || scene.runtime.cache.get(&scene.llama).unwrap()["metadata"]["finalizers"].is_array()).await;
    let writer = &scene.runtime.writer;
    assert_eq!(writer.add_finalizer(&scene.llama, ours).await.unwrap(), Sent::Yes);
    assert_eq!(writer.add_finalizer(&scene.llama, ours).await.unwrap(), Sent::No);
    assert_eq!(writer.remove_finalizer(&scene.llama, ours).await.unwrap(), Sent::Yes);
    assert_eq!(writer.remove_finalizer(&scene.llama, ours).await.unwrap(), Sent::No);
    let there = scene.cluster.get(&nim_service("llama")).await.unwrap();
    assert_eq!(there["metadata"]["finalizers"], json!(["example.com/theirs"]));
    assert_eq!(scene.link.writes().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_closed_gate_lets_no_write_out() {
    let gate = Gate::closed();
    let scene = Scene::with(gate.clone()).await;
    let wanted = [scene.map("a", "1")];
    let refused = scene.apply(&wanted).await;
    assert_eq!(refused.failures[0].error.class(), Class::NotLeader);
    let refused = scene.runtime.writer.status(&scene.llama, &json!({"state": "Ready"})).await;
    assert_eq!(refused.unwrap_err().class(), Class::NotLeader);
    assert!(scene.link.writes().is_empty());
    gate.open_until(Instant::now() + Duration::from_secs(5));
    assert_eq!(scene.apply(&wanted).await.applied, 1);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(scene.apply(&[scene.map("a", "2")]).await.failures[0].error.class(), Class::NotLeader);
}
