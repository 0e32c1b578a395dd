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
struct Fixture {
    cluster: Cluster,
    link: Link,
    runtime: Runtime,
    llama: Ref,
    uid: String,
}

impl Fixture {
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
    let fixture = Fixture::start().await;
    let wanted = [fixture.map("a", "1"), fixture.map("b", "1")];
    assert_eq!(fixture.apply(&wanted).await.applied, 2);
    assert_eq!(fixture.link.writes().len(), 2);
    // The answers are in the cache: not even the watch has to be waited for.
    for _ in 0..3 {
        assert!(fixture.diff(&wanted).is_empty());
        assert_eq!(fixture.apply(&wanted).await.applied, 0);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(fixture.link.requests("/configmaps").is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_somebody_edits_is_repaired_and_what_is_no_longer_wanted_goes() {
    let fixture = Fixture::start().await;
    fixture.apply(&[fixture.map("a", "1"), fixture.map("b", "1")]).await.result().unwrap();
    fixture.cluster.apply(config_map("a", "edited")).await;
    until(5, "seen", || fixture.runtime.cache.get(&reference("a")).unwrap()["data"]["key"] == "edited").await;
    let outcome = fixture.apply(&[fixture.map("a", "1")]).await;
    assert_eq!((outcome.applied, outcome.deleted), (1, 1));
    assert_eq!(fixture.cluster.get(&config_map("a", "")).await.unwrap()["data"]["key"], "1");
    assert_eq!(fixture.cluster.get(&config_map("b", "")).await, None);
    assert!(fixture.diff(&[fixture.map("a", "1")]).is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_object_of_somebody_else_is_named_and_left_alone() {
    let fixture = Fixture::start().await;
    // Without our label, so that no watch shows it.
    let mut theirs = deployment();
    theirs["metadata"]["labels"] = json!({"team": "other"});
    let before = fixture.cluster.apply(theirs).await;
    let conflicts = fixture.apply(&[fixture.deployment()]).await.result().unwrap();
    assert_eq!(
        refusal(&conflicts[0]),
        "refuses to overwrite Deployment default/llama, which was not made by this operator"
    );
    assert_eq!(fixture.cluster.get(&deployment()).await, Some(before.clone()));
    // Nobody shows it to us, so the server had to refuse us once; from then on it is looked at first.
    assert_eq!(fixture.link.writes().len(), 1);
    assert_eq!(fixture.apply(&[fixture.deployment()]).await.conflicts.len(), 1);
    assert!(fixture.link.writes().is_empty());
    assert_eq!(fixture.cluster.get(&deployment()).await, Some(before));
}

#[tokio::test(start_paused = true)]
async fn what_was_in_the_way_is_made_when_it_is_gone() {
    let fixture = Fixture::start().await;
    let mut theirs = deployment();
    theirs["metadata"]["labels"] = json!({"team": "other"});
    fixture.cluster.apply(theirs).await;
    assert_eq!(fixture.apply(&[fixture.deployment()]).await.conflicts.len(), 1);
    fixture.cluster.delete(&deployment()).await;
    assert_eq!(fixture.apply(&[fixture.deployment()]).await.applied, 1);
}

#[tokio::test(start_paused = true)]
async fn making_an_object_is_one_request_and_a_field_that_is_no_longer_set_goes() {
    let fixture = Fixture::start().await;
    let mut more = fixture.map("a", "1");
    more.body["data"]["extra"] = "x".into();
    fixture.link.requests("/configmaps");
    assert_eq!(fixture.apply(&[more]).await.applied, 1);
    assert_eq!(fixture.link.requests("/configmaps").len(), 1);
    assert_eq!(fixture.apply(&[fixture.map("a", "2")]).await.applied, 1);
    let now = fixture.cluster.get(&config_map("a", "")).await.unwrap();
    assert_eq!(now["data"], json!({"key": "2"}));
    let managers = now["metadata"]["managedFields"].as_array().unwrap();
    let ours: Vec<_> = managers.iter().map(|one| (&one["manager"], &one["operation"])).collect();
    assert_eq!(ours, [(&json!("capstan"), &json!("Apply"))]);
}

#[tokio::test(start_paused = true)]
async fn an_object_of_another_owner_is_named_with_its_owner() {
    let fixture = Fixture::start().await;
    let mut theirs = config_map("a", "theirs");
    theirs["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "NIMCache", "name": "other", "uid": fixture.uid.replace('-', "0"), "controller": true}]);
    // Not collected in the meantime: the owner is in no registry.
    let conflict = {
        fixture.cluster.apply(theirs).await;
        fixture.apply(&[fixture.map("a", "1")]).await.result().unwrap().remove(0)
    };
    assert_eq!(refusal(&conflict), "refuses to overwrite ConfigMap default/a, which belongs to NIMCache other");
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_there_is_used_and_not_asked_for_again() {
    let fixture = Fixture::start().await;
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "models", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    fixture.cluster.apply(claim.clone()).await;
    let reference = Ref::of::<PersistentVolumeClaim>("default", "models");
    until(5, "seen", || fixture.runtime.cache.get(&reference).is_some()).await;
    let typed: PersistentVolumeClaim = serde_json::from_value(claim).unwrap();
    let wanted = fixture.owned(Object::new(&typed)).create_once();
    fixture.link.writes();
    let outcome = fixture.apply(&[wanted]).await;
    assert_eq!((outcome.applied, outcome.conflicts.len(), outcome.failures.len()), (0, 0, 0));
    assert!(fixture.link.requests("/persistentvolumeclaims").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_is_behind_makes_nothing_twice() {
    let fixture = Fixture::start().await;
    let wanted = [fixture.map("a", "1")];
    let create = fixture.diff(&wanted);
    fixture.fall_behind().await;
    // Another process of ours was faster, and this one cannot see it.
    fixture.apply(&wanted).await.result().unwrap();
    let made = fixture.cluster.get(&config_map("a", "")).await;
    let fresh = runtime(&fixture.link, Gate::open());
    let _ = tokio::time::timeout(Duration::from_secs(5), fresh).await;
    fixture.link.writes();
    assert_eq!(fixture.runtime.writer.apply(create).await.applied, 0);
    assert!(fixture.link.writes().is_empty());
    assert_eq!(fixture.cluster.get(&config_map("a", "")).await, made);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_found_at_the_next_try() {
    let fixture = Fixture::start().await;
    let wanted = [fixture.map("a", "1")];
    fixture.fall_behind().await;
    let patches = Matcher::new().verb(Verb::Patch).resource("configmaps");
    fixture.cluster.server.faults().add(Fault::lose_answer(patches).nth(1));
    assert_eq!(fixture.apply(&wanted).await.failures[0].error.class(), Class::Unavailable);
    let made = fixture.cluster.get(&config_map("a", "")).await;
    assert!(made.is_some());
    assert_eq!(fixture.apply(&wanted).await.applied, 0);
    assert_eq!(fixture.cluster.get(&config_map("a", "")).await, made);
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_is_behind_deletes_nothing_newer() {
    let fixture = Fixture::start().await;
    fixture.apply(&[fixture.map("a", "1")]).await.result().unwrap();
    let mut delete = fixture.diff(&[]);
    assert_eq!(delete.delete.len(), 1);
    fixture.fall_behind().await;
    fixture.cluster.apply(config_map("a", "newer")).await;
    let outcome = fixture.runtime.writer.apply(delete.clone()).await;
    assert_eq!(outcome.failures[0].error.class(), Class::Conflict);
    // The same name, another object.
    fixture.cluster.delete(&config_map("a", "")).await;
    let other = fixture.cluster.apply(config_map("a", "other")).await;
    let version = other["metadata"]["resourceVersion"].as_str().unwrap();
    let seen = delete.delete.remove(0);
    delete.delete = vec![Deletion { resource_version: version.into(), ..seen }];
    let outcome = fixture.runtime.writer.apply(delete).await;
    assert_eq!(outcome.failures[0].error.class(), Class::Conflict);
    assert_eq!(fixture.cluster.get(&config_map("a", "")).await.unwrap()["data"]["key"], "other");
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_is_behind_overwrites_no_other_object() {
    let fixture = Fixture::start().await;
    fixture.apply(&[fixture.map("a", "1")]).await.result().unwrap();
    let change = fixture.diff(&[fixture.map("a", "2")]);
    fixture.fall_behind().await;
    fixture.cluster.delete(&config_map("a", "")).await;
    fixture.cluster.apply(config_map("a", "theirs")).await;
    let outcome = fixture.runtime.writer.apply(change).await;
    assert_eq!(outcome.failures[0].error.class(), Class::Conflict);
    assert_eq!(fixture.cluster.get(&config_map("a", "")).await.unwrap()["data"]["key"], "theirs");
}

#[tokio::test(start_paused = true)]
async fn what_is_being_deleted_is_left_to_go() {
    let fixture = Fixture::start().await;
    let mut held = fixture.map("a", "1");
    held.body["metadata"]["finalizers"] = json!(["example.com/wait"]);
    fixture.apply(&[held]).await.result().unwrap();
    fixture.cluster.delete(&config_map("a", "")).await;
    until(5, "going", || {
        !fixture.runtime.cache.get(&reference("a")).unwrap()["metadata"]["deletionTimestamp"].is_null()
    })
    .await;
    fixture.link.writes();
    assert_eq!(fixture.apply(&[fixture.map("a", "2")]).await.applied, 0);
    assert!(fixture.link.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_failure_ends_the_waves_after_its_own() {
    let fixture = Fixture::start().await;
    let maps = Matcher::new().verb(Verb::Patch).resource("configmaps").name("bad");
    let refused = capstan_apiserver::error::Status::new(422, "Invalid", "no");
    fixture.cluster.server.faults().add(Fault::fail(maps, refused));
    let outcome = fixture.apply(&[fixture.map("bad", "1"), fixture.map("good", "1"), fixture.deployment()]).await;
    assert_eq!(outcome.failures.len(), 1);
    assert_eq!(outcome.failures[0].error.class(), Class::Invalid);
    assert!(fixture.cluster.get(&config_map("good", "")).await.is_some());
    assert!(fixture.cluster.get(&deployment()).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_status_is_written_when_it_changes_and_never_again() {
    let fixture = Fixture::start().await;
    let status = json!({"state": "Ready", "availableReplicas": 1});
    assert_eq!(fixture.runtime.writer.status(&fixture.llama, &status).await.unwrap(), Sent::Yes);
    for _ in 0..3 {
        assert_eq!(fixture.runtime.writer.status(&fixture.llama, &status).await.unwrap(), Sent::No);
    }
    let next = json!({"state": "NotReady"});
    assert_eq!(fixture.runtime.writer.status(&fixture.llama, &next).await.unwrap(), Sent::Yes);
    assert_eq!(fixture.link.writes().len(), 2);
    let there = fixture.cluster.get(&nim_service("llama")).await.unwrap();
    assert_eq!(there["status"], next);
    assert_eq!(there["metadata"]["generation"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_status_of_an_older_spec_is_refused() {
    let fixture = Fixture::start().await;
    fixture.fall_behind().await;
    let mut edited = nim_service("llama");
    edited["spec"]["image"]["tag"] = "2".into();
    fixture.cluster.apply(edited).await;
    let error = fixture.runtime.writer.status(&fixture.llama, &json!({"state": "Ready"})).await.unwrap_err();
    assert_eq!(error.class(), Class::Conflict);
}

#[tokio::test(start_paused = true)]
async fn finalizers_come_and_go_without_touching_others() {
    let fixture = Fixture::start().await;
    let ours = "finalizer.nimservice.apps.nvidia.com";
    let mut with_theirs = nim_service("llama");
    with_theirs["metadata"]["finalizers"] = json!(["example.com/theirs"]);
    fixture.cluster.apply(with_theirs).await;
    until(5, "seen", || fixture.runtime.cache.get(&fixture.llama).unwrap()["metadata"]["finalizers"].is_array()).await;
    let writer = &fixture.runtime.writer;
    assert_eq!(writer.add_finalizer(&fixture.llama, ours).await.unwrap(), Sent::Yes);
    assert_eq!(writer.add_finalizer(&fixture.llama, ours).await.unwrap(), Sent::No);
    assert_eq!(writer.remove_finalizer(&fixture.llama, ours).await.unwrap(), Sent::Yes);
    assert_eq!(writer.remove_finalizer(&fixture.llama, ours).await.unwrap(), Sent::No);
    let there = fixture.cluster.get(&nim_service("llama")).await.unwrap();
    assert_eq!(there["metadata"]["finalizers"], json!(["example.com/theirs"]));
    assert_eq!(fixture.link.writes().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_closed_gate_lets_no_write_out() {
    let gate = Gate::closed();
    let fixture = Fixture::with(gate.clone()).await;
    let wanted = [fixture.map("a", "1")];
    let refused = fixture.apply(&wanted).await;
    assert_eq!(refused.failures[0].error.class(), Class::NotLeader);
    let refused = fixture.runtime.writer.status(&fixture.llama, &json!({"state": "Ready"})).await;
    assert_eq!(refused.unwrap_err().class(), Class::NotLeader);
    assert!(fixture.link.writes().is_empty());
    gate.open_until(Instant::now() + Duration::from_secs(5));
    assert_eq!(fixture.apply(&wanted).await.applied, 1);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(fixture.apply(&[fixture.map("a", "2")]).await.failures[0].error.class(), Class::NotLeader);
}
