//! create and update.

use super::*;
use crate::ops::admission::Request;
use futures::future::BoxFuture;

#[tokio::test(start_paused = true)]
async fn a_new_object_gets_what_the_server_says() {
    let bench = Bench::new().await;
    let pod = bench
        .pod("web", json!({"metadata": {"uid": "mine", "generation": 9, "creationTimestamp": "2001-01-01T00:00:00Z"}}))
        .await;
    let meta = &pod["metadata"];
    assert_eq!(meta["creationTimestamp"], "2030-01-01T00:00:00Z");
    assert_eq!(meta["namespace"], "default");
    assert_eq!(meta["generation"], 1);
    assert_eq!(meta["resourceVersion"], "4");
    assert_eq!(meta["uid"].as_str().unwrap().len(), 36);
    assert_eq!(pod["status"]["phase"], "Pending");
    assert_eq!((&pod["apiVersion"], &pod["kind"]), (&json!("v1"), &json!("Pod")));
}

#[tokio::test]
async fn a_name_is_generated_and_names_are_unique() {
    let bench = Bench::new().await;
    let body = json!({"metadata": {"generateName": "web-"}});
    let one = bench.create("configmaps", Some("default"), body.clone()).await.unwrap();
    let two = bench.create("configmaps", Some("default"), body).await.unwrap();
    let (one, two) = (one["metadata"]["name"].as_str().unwrap(), two["metadata"]["name"].as_str().unwrap());
    assert!(one.starts_with("web-") && one.len() == 9 && one != two);
    let again = bench.create("configmaps", Some("default"), json!({"metadata": {"name": one}})).await.unwrap_err();
    assert_eq!((again.code, again.reason), (409, "AlreadyExists"));
    assert_eq!(again.message, format!("configmaps \"{one}\" already exists"));
}

#[tokio::test]
async fn bad_requests_are_refused_in_the_words_of_the_real_server() {
    let bench = Bench::new().await;
    let cases = [
        ("configmaps", Some("absent"), json!({"metadata": {"name": "a"}}), 404, "namespaces \"absent\" not found"),
        (
            "configmaps",
            Some("default"),
            json!({"metadata": {"name": "a", "namespace": "other"}}),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            "configmaps",
            Some("default"),
            json!({"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "a"}}),
            400,
            "ConfigMap in version \"v2\" cannot be handled as a ConfigMap: no kind \"ConfigMap\" is registered for version \"v2\" in scheme \"pkg/runtime/scheme.go:111\"",
        ),
        (
            "configmaps",
            Some("default"),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}}),
            400,
            "Deployment in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Deployment) to (core.ConfigMap): unknown conversion",
        ),
        (
            "horizontalpodautoscalers",
            Some("default"),
            json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"}}),
            400,
            "the API version in the data (autoscaling/v2) does not match the expected API version (autoscaling/v1)",
        ),
        (
            "configmaps",
            Some("default"),
            json!({"metadata": {"name": "a"}, "data": [1]}),
            400,
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string",
        ),
        (
            "configmaps",
            Some("default"),
            json!({"metadata": {}}),
            422,
            "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required",
        ),
        (
            "configmaps",
            Some("default"),
            json!({"metadata": {"name": "A"}}),
            422,
            "ConfigMap \"A\" is invalid: metadata.name: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        ),
        (
            "configmaps",
            Some("default"),
            json!({"metadata": {"name": "a", "resourceVersion": "7"}}),
            500,
            "resourceVersion should not be set on objects to be created",
        ),
        (
            "configmaps",
            Some("default"),
            json!({"metadata": {"name": "a", "finalizers": ["odd"]}}),
            422,
            "ConfigMap \"a\" is invalid: metadata.finalizers[0]: Invalid value: \"odd\": name is neither a standard finalizer name nor is it fully qualified",
        ),
    ];
    for (resource, namespace, body, code, message) in cases {
        let status = bench.create(resource, namespace, body).await.unwrap_err();
        assert_eq!((status.code, status.message.as_str()), (code, message));
    }
}

#[tokio::test]
async fn an_update_keeps_what_the_server_said() {
    let bench = Bench::new().await;
    let target = bench.one("configmaps", Some("default"), "a");
    let old = bench.create("configmaps", Some("default"), json!({"metadata": {"name": "a"}})).await.unwrap();
    let new = bench.put(&target, json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await.unwrap();
    assert_eq!(new["data"]["k"], "v");
    let fields = ["uid", "creationTimestamp", "namespace", "name"];
    assert_eq!(fields.map(|field| &new["metadata"][field]), fields.map(|field| &old["metadata"][field]));
    assert_ne!(new["metadata"]["resourceVersion"], old["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn an_update_that_changes_nothing_writes_nothing() {
    let bench = Bench::new().await;
    let target = bench.one("configmaps", Some("default"), "a");
    let old = bench.create("configmaps", Some("default"), json!({"metadata": {"name": "a"}})).await.unwrap();
    let before = bench.server.store().revision();
    let new = bench.put(&target, old.clone()).await.unwrap();
    assert_eq!((new, bench.server.store().revision()), (old, before));
}

#[tokio::test]
async fn updates_that_saw_something_else_conflict() {
    let bench = Bench::new().await;
    let target = bench.one("configmaps", Some("default"), "a");
    let old = bench.create("configmaps", Some("default"), json!({"metadata": {"name": "a"}})).await.unwrap();
    let mut new = old.clone();
    new["data"] = json!({"k": "1"});
    bench.put(&target, new.clone()).await.unwrap();
    new["data"] = json!({"k": "2"});
    let stale = bench.put(&target, new).await.unwrap_err();
    assert_eq!(
        (stale.code, stale.message.as_str()),
        (
            409,
            "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again"
        )
    );
    let other = bench.put(&target, json!({"metadata": {"name": "a", "uid": "other"}})).await.unwrap_err();
    assert_eq!((other.code, other.reason), (409, "Conflict"));
    let absent = bench
        .put(&bench.one("configmaps", Some("default"), "b"), json!({"metadata": {"name": "b"}}))
        .await
        .unwrap_err();
    assert_eq!((absent.code, absent.message.as_str()), (404, "configmaps \"b\" not found"));
    let elsewhere = bench.put(&target, json!({"metadata": {"name": "b"}})).await.unwrap_err();
    assert_eq!(elsewhere.message, "the name of the object (b) does not match the name on the URL (a)");
}

#[tokio::test]
async fn some_kinds_must_say_what_they_saw_and_some_may_be_created_by_an_update() {
    let bench = Bench::new().await;
    let names = json!({"plural": "a", "singular": "a", "kind": "A", "listKind": "AList"});
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let versions = json!([{"name": "v1", "served": true, "storage": true, "schema": schema}]);
    let spec = json!({"group": "b.c", "scope": "Cluster", "names": names, "versions": versions});
    let crd = json!({"metadata": {"name": "a.b.c"}, "spec": spec});
    bench.create("customresourcedefinitions", None, crd.clone()).await.unwrap();
    let status = bench.put(&bench.one("customresourcedefinitions", None, "a.b.c"), crd).await.unwrap_err();
    assert_eq!(
        (status.code, status.message.as_str()),
        (
            422,
            "customresourcedefinitions.apiextensions.k8s.io \"a.b.c\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"
        )
    );
    let lease = bench.one("leases", Some("default"), "l");
    assert_eq!(bench.put(&lease, json!({"metadata": {"name": "l"}})).await.unwrap()["metadata"]["name"], "l");
}

#[tokio::test]
async fn the_generation_grows_with_the_spec_only() {
    let bench = Bench::new().await;
    let target = bench.one("daemonsets", Some("default"), "a");
    let mut object = bench
        .create("daemonsets", Some("default"), json!({"metadata": {"name": "a"}, "spec": {"minReadySeconds": 1}}))
        .await
        .unwrap();
    object["metadata"]["labels"] = json!({"l": "1"});
    object["status"] = json!({"numberReady": 1});
    let labelled = bench.put(&target, object.clone()).await.unwrap();
    assert_eq!((&labelled["metadata"]["generation"], &labelled["status"]["numberReady"]), (&json!(1), &json!(0)));
    object = labelled;
    object["spec"]["minReadySeconds"] = 2.into();
    assert_eq!(bench.put(&target, object).await.unwrap()["metadata"]["generation"], 2);
}

#[tokio::test]
async fn a_status_write_changes_the_status_only() {
    let bench = Bench::new().await;
    let main = bench.one("daemonsets", Some("default"), "a");
    let status = main.clone().sub("status");
    let mut object = bench
        .create("daemonsets", Some("default"), json!({"metadata": {"name": "a"}, "spec": {"minReadySeconds": 1}}))
        .await
        .unwrap();
    object["spec"]["minReadySeconds"] = 2.into();
    object["status"] = json!({"numberReady": 1});
    let written = bench.put(&status, object).await.unwrap();
    assert_eq!((&written["spec"]["minReadySeconds"], &written["status"]["numberReady"]), (&json!(1), &json!(1)));
    assert_eq!(written["metadata"]["generation"], 1);
}

#[tokio::test]
async fn a_dry_run_says_what_would_be_and_writes_nothing() {
    let bench = Bench::new().await;
    let before = bench.server.store().revision();
    let options = WriteOptions { dry_run: true, ..WriteOptions::default() };
    let all = bench.all("configmaps", Some("default"));
    let body = json!({"metadata": {"name": "a"}});
    let written = bench.server.create(&bench.caller, &all, body.into(), &options).await.unwrap();
    assert!(written.object.value()["metadata"]["resourceVersion"].is_null());
    assert_eq!(bench.server.store().revision(), before);
    assert_eq!(bench.get(&bench.one("configmaps", Some("default"), "a")).await.unwrap_err().code, 404);
}

#[tokio::test]
async fn an_owner_is_named_once() {
    let bench = Bench::new().await;
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"});
    let body = json!({"metadata": {"name": "a", "ownerReferences": [owner, owner]}});
    let all = bench.all("configmaps", Some("default"));
    let written = bench.server.create(&bench.caller, &all, body.into(), &WriteOptions::default()).await.unwrap();
    assert_eq!(written.object.owners.len(), 1);
    assert!(written.warnings[0].ends_with("duplicate UID(s) observed: u"));
}

struct Plugin;

impl Admission for Plugin {
    fn handles(&self, request: &Request) -> bool {
        *request.target.resource.plural == *"configmaps"
    }

    fn mutate<'a>(&'a self, request: &'a Request, mut object: Value) -> BoxFuture<'a, Result<Value>> {
        object["data"]["by"] = request.caller.user.name.as_str().into();
        request.warn("changed");
        Box::pin(std::future::ready(Ok(object)))
    }

    fn validate<'a>(&'a self, request: &'a Request, object: Option<&'a Value>) -> BoxFuture<'a, Result<()>> {
        let refused = object.is_none_or(|object| object["data"]["bad"] == "yes");
        let status = crate::error::Status::forbidden(&request.target.resource, "a", "no");
        Box::pin(std::future::ready(if refused { Err(status) } else { Ok(()) }))
    }
}

#[tokio::test]
async fn admission_changes_and_refuses() {
    let bench = Bench::new().await;
    bench.server.add_admission(Arc::new(Plugin));
    let all = bench.all("configmaps", Some("default"));
    let body = json!({"metadata": {"name": "a"}});
    let written = bench.server.create(&bench.caller, &all, body.into(), &WriteOptions::default()).await.unwrap();
    assert_eq!(written.object.value()["data"]["by"], "kubernetes-admin");
    assert_eq!(written.warnings, ["changed"]);
    let one = bench.one("configmaps", Some("default"), "a");
    let refused = bench.put(&one, json!({"metadata": {"name": "a"}, "data": {"bad": "yes"}})).await.unwrap_err();
    assert_eq!((refused.code, refused.message.as_str()), (403, "configmaps \"a\" is forbidden: no"));
    assert_eq!(bench.delete(&one, DeleteOptions::default()).await.unwrap_err().code, 403);
}

#[tokio::test]
async fn an_event_is_one_object_in_two_groups() {
    let bench = Bench::new().await;
    let body = json!({"metadata": {"name": "e"}, "involvedObject": {"name": "p", "uid": "u"}, "message": "hello"});
    bench.create("events", Some("default"), body).await.unwrap();
    let resource = bench.server.registry().lookup("events.k8s.io", "v1", "events").unwrap();
    let event = bench.get(&Target::one(resource.clone(), Some("default"), "e")).await.unwrap();
    assert_eq!((&event["note"], &event["apiVersion"]), (&json!("hello"), &json!("events.k8s.io/v1")));
    let options = ListOptions { field_selector: "regarding.uid=u".into(), ..ListOptions::default() };
    let listing = bench.list(&Target::all(resource, Some("default")), options).await.unwrap();
    assert_eq!(listing.items[0].value()["regarding"]["name"], "p");
}

#[tokio::test]
async fn odd_fields_are_ignored_warned_about_or_refused() {
    let bench = Bench::new().await;
    let all = bench.all("configmaps", Some("default"));
    let text = r#"{"metadata":{"name":"a"},"dta":{},"data":{"k":"1","k":"2"}}"#;
    let cases = [
        (FieldValidation::Ignore, Ok(vec![])),
        (FieldValidation::Warn, Ok(vec!["duplicate field \"data.k\"", "unknown field \"dta\""])),
        (
            FieldValidation::Strict,
            Err(
                "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: duplicate field \"data.k\", unknown field \"dta\"",
            ),
        ),
    ];
    for (field_validation, expected) in cases {
        let options = WriteOptions { field_validation, dry_run: true, ..WriteOptions::default() };
        let body = Payload::Json(text.as_bytes().into());
        let written = bench.server.create(&bench.caller, &all, body, &options).await;
        match (written, expected) {
            (Ok(written), Ok(warnings)) => assert_eq!(written.warnings, warnings),
            (Err(status), Err(message)) => assert_eq!((status.code, status.message.as_str()), (400, message)),
            (written, expected) => panic!("{written:?} instead of {expected:?}"),
        }
    }
}

#[tokio::test]
async fn an_object_is_adjusted_past_admission_and_only_if_that_changes_it() {
    let bench = Bench::new().await;
    bench.pod("web", json!({})).await;
    let target = bench.one("pods", Some("default"), "web");
    let body = json!({"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running"}});
    let object = bench.server.merge_patch(&bench.caller, &target, &body, None).await.unwrap();
    assert_eq!((object.label("a"), object.fields.get("status.phase")), (Some("b"), Some("Running")));
    let again = bench.server.merge_patch(&bench.caller, &target, &body, Some(object.revision)).await.unwrap();
    assert_eq!(again.revision, object.revision);
    let older = Some(object.revision - 1);
    assert_eq!(bench.server.merge_patch(&bench.caller, &target, &body, older).await.unwrap_err().code, 409);
    let absent = bench.one("pods", Some("default"), "none");
    assert_eq!(bench.server.merge_patch(&bench.caller, &absent, &body, None).await.unwrap_err().code, 404);
}

#[tokio::test]
async fn a_pod_that_is_placed_is_what_a_binding_makes_of_it() {
    let bench = Bench::new().await;
    let placed = bench.pod("placed", json!({})).await;
    bench.pod("bound", json!({})).await;
    let binding = json!({"metadata": {"name": "bound"}, "target": {"name": "n \"1\""}});
    let target = bench.one("pods", Some("default"), "bound").sub("binding");
    let options = WriteOptions::default();
    bench.server.create(&bench.caller, &target, binding.into(), &options).await.unwrap();
    let bound = bench.get(&bench.one("pods", Some("default"), "bound")).await.unwrap();

    let target = bench.one("pods", Some("default"), "placed");
    let meta = &placed["metadata"];
    let uid = meta["uid"].as_str().unwrap();
    let revision: u64 = meta["resourceVersion"].as_str().unwrap().parse().unwrap();
    let mut status = bound["status"].clone();
    status["podIP"] = "10.0.0.7".into();
    let place = |revision: u64| {
        let (server, caller) = (&bench.server, &bench.caller);
        server.bind_pod(caller, &target, (uid, revision), "n \"1\"", &status, json!({"status": {"podIP": "10.0.0.7"}}))
    };
    assert!(place(revision - 1).await.unwrap().is_none(), "somebody else was faster");
    let object = place(revision).await.unwrap().unwrap();
    assert_eq!(object.fields.get("spec.nodeName"), Some("n \"1\""));
    assert_eq!(object.fields.get("status.podIP"), Some("10.0.0.7"));
    assert_eq!(object.value()["spec"], bound["spec"]);
    assert_eq!(object.value()["status"], status);
    assert!(place(object.revision).await.unwrap().is_none(), "it is on a node");
    let updated = json!({"phase": "Running"});
    let again =
        bench.server.replace_status(&bench.caller, &target, uid, object.revision, &updated, &json!({})).await.unwrap();
    assert_eq!((&again.value()["status"], &again.value()["spec"]), (&updated, &bound["spec"]));
}

#[tokio::test]
async fn a_copy_is_like_its_pattern_but_for_what_is_its_own() {
    let bench = Bench::new().await;
    let spec =
        json!({"containers": [{"name": "c", "image": "i"}], "nodeSelector": {"a": "b"}, "restartPolicy": "Never"});
    let body = json!({"metadata": {"generateName": "web-", "labels": {"app": "web"}}, "spec": spec});
    let like = bench.create("pods", Some("default"), body).await.unwrap();
    let pattern = ObjectTemplate::new(like.clone(), &["affinity"]);
    let edit = |pod: &mut Value| {
        pod["spec"]["affinity"] = json!({"nodeAffinity": {}});
        pod["spec"]["nodeName"] = "n".into();
    };
    let resource = bench.all("pods", None).resource;
    let copy = bench.server.copy(&bench.caller, &resource, &pattern, edit).await.unwrap();
    let (mut wanted, made) = (like.clone(), copy.value());
    edit(&mut wanted);
    assert_eq!((&made["spec"], &made["status"]), (&wanted["spec"], &wanted["status"]));
    assert_eq!(made["metadata"]["labels"], like["metadata"]["labels"]);
    let own = |field: &str| made["metadata"][field] != like["metadata"][field];
    assert!(own("name") && own("uid") && copy.name().starts_with("web-"));
    assert_eq!((copy.fields.get("spec.nodeName"), copy.fields.get("spec.restartPolicy")), (Some("n"), Some("Never")));
}
