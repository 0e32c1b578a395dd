//! delete and deletecollection.

use super::*;
use crate::store::Deletion;

fn running(node: &str) -> Value {
    json!({"spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": node, "terminationGracePeriodSeconds": 20}})
}

fn grace(seconds: i64) -> DeleteOptions {
    DeleteOptions { grace: Some(seconds), ..DeleteOptions::default() }
}

fn propagation(propagation: Propagation) -> DeleteOptions {
    DeleteOptions { propagation: Some(propagation), ..DeleteOptions::default() }
}

#[tokio::test(start_paused = true)]
async fn a_pod_on_a_node_has_time_to_end() {
    let bench = Bench::new().await;
    let target = bench.one("pods", Some("default"), "web");
    bench.pod("web", running("n")).await;
    let deleted = bench.delete(&target, DeleteOptions::default()).await.unwrap();
    assert!(!deleted.gone && deleted.show_object);
    let meta = &deleted.object.value()["metadata"];
    assert_eq!(meta["deletionTimestamp"], "2030-01-01T00:00:20Z");
    assert_eq!((&meta["deletionGracePeriodSeconds"], &meta["generation"]), (&json!(20), &json!(2)));
    // A longer grace period has no effect, a shorter one does.
    assert_eq!(bench.delete(&target, grace(60)).await.unwrap().object.value()["metadata"], *meta);
    let shorter = bench.delete(&target, grace(5)).await.unwrap().object.value();
    assert_eq!(shorter["metadata"]["deletionTimestamp"], "2030-01-01T00:00:05Z");
    // The kubelet confirms that the pod has terminated.
    assert!(bench.delete(&target, grace(0)).await.unwrap().gone);
    assert_eq!(bench.get(&target).await.unwrap_err().code, 404);
}

#[tokio::test]
async fn a_pod_that_runs_nowhere_goes_at_once() {
    let bench = Bench::new().await;
    bench.pod("web", json!({})).await;
    let deleted = bench.delete(&bench.one("pods", Some("default"), "web"), DeleteOptions::default()).await.unwrap();
    assert!(deleted.gone);
    assert_eq!(deleted.object.value()["metadata"]["deletionGracePeriodSeconds"], 0);
}

#[tokio::test]
async fn an_object_with_finalizers_waits_for_them() {
    let bench = Bench::new().await;
    let target = bench.one("configmaps", Some("default"), "a");
    let body = json!({"metadata": {"name": "a", "finalizers": ["x.io/f", "x.io/g"]}});
    bench.create("configmaps", Some("default"), body).await.unwrap();
    let deleted = bench.delete(&target, DeleteOptions::default()).await.unwrap();
    assert!(!deleted.gone && deleted.show_object);
    let mut object = deleted.object.value();
    assert_eq!(object["metadata"]["deletionGracePeriodSeconds"], 0);

    object["metadata"]["finalizers"] = json!(["x.io/f", "x.io/new"]);
    let refused = bench.put(&target, object.clone()).await.unwrap_err();
    assert_eq!(
        refused.message,
        "ConfigMap \"a\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"x.io/new\"}"
    );
    object["metadata"]["finalizers"] = json!(["x.io/f"]);
    object = bench.put(&target, object).await.unwrap();
    assert!(!object["metadata"]["deletionTimestamp"].is_null());
    object["metadata"].as_object_mut().unwrap().remove("finalizers");
    bench.put(&target, object).await.unwrap();
    assert_eq!(bench.get(&target).await.unwrap_err().code, 404);
}

#[tokio::test]
async fn what_becomes_of_dependents_is_noted_as_a_finalizer() {
    let bench = Bench::new().await;
    let cases: [(DeleteOptions, &[&str], &[&str]); 5] = [
        (propagation(Propagation::Foreground), &[], &["foregroundDeletion"]),
        (propagation(Propagation::Orphan), &["x.io/f"], &["x.io/f", "orphan"]),
        (propagation(Propagation::Orphan), &["foregroundDeletion"], &["orphan"]),
        (propagation(Propagation::Background), &["x.io/f", "orphan"], &["x.io/f"]),
        (DeleteOptions::default(), &["foregroundDeletion"], &["foregroundDeletion"]),
    ];
    for (case, (options, before, after)) in cases.into_iter().enumerate() {
        let name = format!("case-{case}");
        let body = json!({"metadata": {"name": name, "finalizers": before}});
        bench.create("configmaps", Some("default"), body).await.unwrap();
        let deleted = bench.delete(&bench.one("configmaps", Some("default"), &name), options).await.unwrap();
        assert_eq!(deleted.object.value()["metadata"]["finalizers"], json!(after));
    }
}

#[tokio::test]
async fn preconditions_must_hold() {
    let bench = Bench::new().await;
    let target = bench.one("configmaps", Some("default"), "a");
    let object = bench.create("configmaps", Some("default"), json!({"metadata": {"name": "a"}})).await.unwrap();
    let uid = object["metadata"]["uid"].as_str().unwrap();
    let wanted = |uid: Option<&str>, version: Option<&str>| {
        let preconditions = Preconditions { uid: uid.map(Into::into), resource_version: version.map(Into::into) };
        DeleteOptions { preconditions, ..DeleteOptions::default() }
    };
    let other = bench.delete(&target, wanted(Some("u"), None)).await.unwrap_err();
    let message = format!(
        "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition (u) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
    );
    assert_eq!((other.code, other.message), (409, message));
    assert_eq!(bench.delete(&target, wanted(None, Some("1"))).await.unwrap_err().code, 409);
    let gone = bench.delete(&target, wanted(Some(uid), Some("4"))).await.unwrap();
    assert!(gone.gone && !gone.show_object);
}

#[tokio::test]
async fn a_dry_run_deletes_nothing() {
    let bench = Bench::new().await;
    let target = bench.one("pods", Some("default"), "web");
    bench.pod("web", running("n")).await;
    let before = bench.server.store().revision();
    for options in [DeleteOptions::default(), grace(0)] {
        bench.delete(&target, DeleteOptions { dry_run: true, ..options }).await.unwrap();
    }
    assert_eq!(bench.server.store().revision(), before);
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector() {
    let bench = Bench::new().await;
    for (name, app) in [("a", "x"), ("b", "y"), ("c", "x")] {
        let body = json!({"metadata": {"name": name, "labels": {"app": app}}});
        bench.create("configmaps", Some("default"), body).await.unwrap();
    }
    let all = bench.all("configmaps", Some("default"));
    let select = ListOptions { label_selector: "app=x".into(), ..ListOptions::default() };
    let deleted =
        bench.server.delete_collection(&bench.caller, &all, &select, &DeleteOptions::default()).await.unwrap();
    assert_eq!(names(&deleted.items), ["a", "c"]);
    assert_eq!(names(&bench.list(&all, ListOptions::default()).await.unwrap().items), ["b"]);
}

#[tokio::test]
async fn namespaces_are_marked_and_some_are_never_deleted() {
    let bench = Bench::new().await;
    let immortal = bench.delete(&bench.one("namespaces", None, "default"), DeleteOptions::default()).await.unwrap_err();
    assert_eq!(
        (immortal.code, immortal.message.as_str()),
        (403, "namespaces \"default\" is forbidden: this namespace may not be deleted")
    );
    let target = bench.one("namespaces", None, "other");
    let marked = bench.delete(&target, DeleteOptions::default()).await.unwrap();
    let object = marked.object.value();
    assert_eq!((marked.gone, &object["status"]["phase"]), (false, &json!("Terminating")));
    let again = bench.delete(&target, DeleteOptions::default()).await.unwrap();
    assert_eq!((again.gone, again.object.value()), (false, object.clone()));

    let refused = bench.create("configmaps", Some("other"), json!({"metadata": {"name": "a"}})).await.unwrap_err();
    assert_eq!(
        (refused.code, refused.message.as_str()),
        (
            403,
            "configmaps \"a\" is forbidden: unable to create new content in namespace other because it is being terminated"
        )
    );
    assert_eq!(refused.details["causes"][0]["reason"], "NamespaceTerminating");

    let mut finalized = object;
    finalized["spec"]["finalizers"] = json!([]);
    bench.put(&target.clone().sub("finalize"), finalized).await.unwrap();
    assert_eq!(bench.get(&target).await.unwrap_err().code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_runs_is_marked_past_admission_as_a_deletion_would_mark_it() {
    let bench = Bench::new().await;
    let spec = json!({"nodeName": "n", "containers": [{"name": "c", "image": "i"}]});
    for name in ["marked", "deleted", "held"] {
        let meta = if name == "held" { json!({"finalizers": ["x.io/f"]}) } else { json!({}) };
        bench.pod(name, json!({"metadata": meta, "spec": spec})).await;
    }
    let deletion = Deletion { at: "2030-01-01T00:00:30Z".parse().unwrap(), grace: 30 };
    let mark = async |name: &str, late: u64| {
        let target = bench.one("pods", Some("default"), name);
        let live = bench.server.get(&bench.caller, &target, &GetOptions::default()).await.unwrap();
        let marked = bench.server.mark_terminating(&bench.caller, &target, &live.uid, live.revision - late, deletion);
        marked.await.unwrap().map(|object| (object.deleting, object.generation))
    };
    assert_eq!(mark("held", 0).await, None);
    assert_eq!(mark("marked", 1).await, None);
    assert_eq!(mark("marked", 0).await, Some((true, 2)));
    assert_eq!(mark("marked", 0).await, None);
    bench.delete(&bench.one("pods", Some("default"), "deleted"), DeleteOptions::default()).await.unwrap();
    let mut texts = Vec::new();
    for name in ["marked", "deleted"] {
        let mut pod = bench.get(&bench.one("pods", Some("default"), name)).await.unwrap();
        for field in ["name", "uid", "resourceVersion"] {
            pod["metadata"].as_object_mut().unwrap().remove(field);
        }
        texts.push(pod);
    }
    assert_eq!(texts[0], texts[1]);
    let (target, status) = (bench.one("pods", Some("default"), "marked"), json!({"phase": "Running"}));
    let live = bench.server.get(&bench.caller, &target, &GetOptions::default()).await.unwrap();
    let outline = json!({"status": status});
    let updated = bench.server.replace_status(&bench.caller, &target, &live.uid, live.revision, &status, &outline);
    let updated = updated.await.unwrap();
    assert_eq!((&updated.value()["status"], &updated.value()["spec"]), (&status, &texts[0]["spec"]));
    assert_eq!(updated.fields.get("status.phase"), Some("Running"));
}
