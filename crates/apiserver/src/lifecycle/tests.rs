//! Tests of the controllers.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::ops::tests::Bench;
use crate::ops::{DeleteOptions, ListOptions, Propagation};

struct World {
    bench: Bench,
    _lifecycle: Lifecycle,
}

impl World {
    async fn new() -> Self {
        let bench = Bench::new().await;
        let lifecycle = Lifecycle::start(&bench.server).await.unwrap();
        Self { bench, _lifecycle: lifecycle }
    }

    async fn create(&self, namespace: &str, name: &str, owners: &[(&Value, bool)]) -> Value {
        let owners: Vec<Value> = owners
            .iter()
            .map(|(owner, block)| {
                let meta = &owner["metadata"];
                json!({"apiVersion": "v1", "kind": "ConfigMap", "name": meta["name"], "uid": meta["uid"], "blockOwnerDeletion": block})
            })
            .collect();
        let body = json!({"metadata": {"name": name, "ownerReferences": owners}});
        self.bench.create("configmaps", Some(namespace), body).await.unwrap()
    }

    async fn delete(&self, name: &str, propagation: Option<Propagation>) {
        let target = self.bench.one("configmaps", Some("default"), name);
        self.bench.delete(&target, DeleteOptions { propagation, ..DeleteOptions::default() }).await.unwrap();
    }

    async fn hold(&self, name: &str, finalizers: Value) {
        let target = self.bench.one("configmaps", Some("default"), name);
        let mut object = self.bench.get(&target).await.unwrap();
        object["metadata"]["finalizers"] = finalizers;
        self.bench.put(&target, object).await.unwrap();
    }

    /// All objects once the controllers are idle.
    async fn settled(&self) -> Vec<String> {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let all = self.bench.all("configmaps", Some("default"));
        let listing = self.bench.list(&all, ListOptions::default()).await.unwrap();
        listing
            .items
            .iter()
            .map(|object| format!("{}{}", object.name(), if object.deleting { "!" } else { "" }))
            .collect()
    }
}

#[tokio::test(start_paused = true)]
async fn dependents_go_after_their_owner() {
    let world = World::new().await;
    let owner = world.create("default", "owner", &[]).await;
    let child = world.create("default", "child", &[(&owner, false)]).await;
    world.create("default", "grandchild", &[(&child, false)]).await;
    world.create("default", "bystander", &[]).await;
    world.delete("owner", None).await;
    assert_eq!(world.settled().await, ["bystander"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_with_another_owner_stays() {
    let world = World::new().await;
    let (one, two) = (world.create("default", "one", &[]).await, world.create("default", "two", &[]).await);
    world.create("default", "child", &[(&one, false), (&two, false)]).await;
    world.delete("one", None).await;
    assert_eq!(world.settled().await, ["child", "two"]);
    let child = world.bench.get(&world.bench.one("configmaps", Some("default"), "child")).await.unwrap();
    assert_eq!(child["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
    world.delete("two", None).await;
    assert_eq!(world.settled().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_owner_never_was_goes() {
    let world = World::new().await;
    let absent = json!({"metadata": {"name": "absent", "uid": "u"}});
    world.create("default", "child", &[(&absent, false)]).await;
    let owner = world.create("default", "owner", &[]).await;
    let mut impostor = owner.clone();
    impostor["metadata"]["uid"] = "other".into();
    world.create("default", "fooled", &[(&impostor, false)]).await;
    assert_eq!(world.settled().await, ["owner"]);
}

#[tokio::test(start_paused = true)]
async fn an_owner_of_an_unknown_kind_keeps_its_dependents() {
    let world = World::new().await;
    let owner = json!({"apiVersion": "x.io/v1", "kind": "Unknown", "name": "n", "uid": "u"});
    let body = json!({"metadata": {"name": "child", "ownerReferences": [owner]}});
    world.bench.create("configmaps", Some("default"), body).await.unwrap();
    assert_eq!(world.settled().await, ["child"]);
}

#[tokio::test(start_paused = true)]
async fn in_the_foreground_the_owner_goes_last() {
    let world = World::new().await;
    let owner = world.create("default", "owner", &[]).await;
    let child = world.create("default", "child", &[(&owner, true)]).await;
    world.create("default", "grandchild", &[(&child, true)]).await;
    world.create("default", "loose", &[(&owner, false)]).await;
    world.hold("grandchild", json!(["x.io/f"])).await;
    world.delete("owner", Some(Propagation::Foreground)).await;
    assert_eq!(world.settled().await, ["child!", "grandchild!", "owner!"]);
    world.hold("grandchild", json!([])).await;
    assert_eq!(world.settled().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn dependents_that_do_not_block_are_not_waited_for() {
    let world = World::new().await;
    let owner = world.create("default", "owner", &[]).await;
    world.create("default", "child", &[(&owner, false)]).await;
    world.hold("child", json!(["x.io/f"])).await;
    world.delete("owner", Some(Propagation::Foreground)).await;
    assert_eq!(world.settled().await, ["child!"]);
}

#[tokio::test(start_paused = true)]
async fn orphans_lose_their_owner_and_stay() {
    let world = World::new().await;
    let owner = world.create("default", "owner", &[]).await;
    world.create("default", "child", &[(&owner, true)]).await;
    world.delete("owner", Some(Propagation::Orphan)).await;
    assert_eq!(world.settled().await, ["child"]);
    let child = world.bench.get(&world.bench.one("configmaps", Some("default"), "child")).await.unwrap();
    assert!(child["metadata"]["ownerReferences"].is_null());
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_tried_again() {
    use crate::error::Status;
    use crate::faults::{Fault, Matcher, Verb};
    let world = World::new().await;
    let owner = world.create("default", "owner", &[]).await;
    world.create("default", "child", &[(&owner, false)]).await;
    let matcher = Matcher::new().verb(Verb::Delete).name("child");
    let handle = world.bench.server.faults().add(Fault::fail(matcher, Status::internal("no")).first(2));
    world.delete("owner", None).await;
    assert_eq!((world.settled().await, handle.hits()), (vec![], 2));
}

#[tokio::test(start_paused = true)]
async fn every_cluster_has_its_namespaces() {
    let world = World::new().await;
    let listing = world.bench.list(&world.bench.all("namespaces", None), ListOptions::default()).await.unwrap();
    let names: Vec<&str> = listing.items.iter().map(|object| object.name()).collect();
    assert_eq!(names, ["default", "kube-node-lease", "kube-public", "kube-system", "other"]);
    let object = listing.items[0].value();
    assert_eq!(object["metadata"]["labels"]["kubernetes.io/metadata.name"], "default");
    assert_eq!((&object["spec"]["finalizers"], &object["status"]["phase"]), (&json!(["kubernetes"]), &json!("Active")));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_namespace_goes_with_everything_in_it() {
    let world = World::new().await;
    let bench = &world.bench;
    world.create("other", "a", &[]).await;
    bench.create("services", Some("other"), json!({"metadata": {"name": "s"}, "spec": {}})).await.unwrap();
    bench.delete(&bench.one("namespaces", None, "other"), DeleteOptions::default()).await.unwrap();
    world.settled().await;
    assert_eq!(bench.get(&bench.one("namespaces", None, "other")).await.unwrap_err().code, 404);
    let left = bench.list(&bench.all("configmaps", Some("other")), ListOptions::default()).await.unwrap();
    assert!(left.items.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_namespace_waits_for_pods_then_for_finalizers_and_says_so() {
    let world = World::new().await;
    let bench = &world.bench;
    let spec = json!({"containers": [], "nodeName": "n"});
    bench.create("pods", Some("other"), json!({"metadata": {"name": "p"}, "spec": spec})).await.unwrap();
    let body = json!({"metadata": {"name": "a", "finalizers": ["x.io/f"]}});
    bench.create("configmaps", Some("other"), body).await.unwrap();
    let namespace = bench.one("namespaces", None, "other");
    bench.delete(&namespace, DeleteOptions::default()).await.unwrap();
    world.settled().await;
    let message = |object: &Value, kind: &str| {
        let mut conditions = object["status"]["conditions"].as_array().unwrap().iter();
        conditions.find(|one| one["type"] == kind).unwrap()["message"].as_str().unwrap().to_owned()
    };
    let object = bench.get(&namespace).await.unwrap();
    assert_eq!(
        message(&object, "NamespaceContentRemaining"),
        "Some resources are remaining: configmaps. has 1 resource instances, pods. has 1 resource instances"
    );
    let map = bench.one("configmaps", Some("other"), "a");
    assert!(bench.get(&map).await.unwrap()["metadata"]["deletionTimestamp"].is_null());

    let over = DeleteOptions { grace: Some(0), ..DeleteOptions::default() };
    bench.delete(&bench.one("pods", Some("other"), "p"), over).await.unwrap();
    world.settled().await;
    let object = bench.get(&namespace).await.unwrap();
    assert_eq!(
        message(&object, "NamespaceFinalizersRemaining"),
        "Some content in the namespace has finalizers remaining: x.io/f in 1 resource instances"
    );
    let mut held = bench.get(&map).await.unwrap();
    held["metadata"].as_object_mut().unwrap().remove("finalizers");
    bench.put(&map, held).await.unwrap();
    world.settled().await;
    assert_eq!(bench.get(&namespace).await.unwrap_err().code, 404);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_of_a_server_that_goes() {
    let world = World::new().await;
    let weak = world.bench.server.downgrade();
    drop(world);
    tokio::task::yield_now().await;
    assert!(weak.upgrade().is_none());
}

mod definitions {
    use super::*;
    use crate::error::Status;
    use crate::ops::{FieldValidation, WriteOptions};

    fn widgets() -> Value {
        json!({
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
                "versions": [
                    {"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": {
                        "type": "object", "properties": {
                            "spec": {"type": "object", "required": ["size"], "properties": {
                                "size": {"type": "integer", "minimum": 1}, "colour": {"type": "string", "default": "red"}}},
                            "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}}}}}},
                    {"name": "v1beta1", "served": true, "storage": false, "schema": {"openAPIV3Schema": {
                        "type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
                ],
            },
        })
    }

    impl World {
        async fn define(&self, definition: Value) -> Value {
            self.bench.create("customresourcedefinitions", None, definition).await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.definition().await.unwrap()
        }

        async fn definition(&self) -> Result<Value> {
            self.bench.get(&self.bench.one("customresourcedefinitions", None, "widgets.example.com")).await
        }

        async fn widget(&self, body: Value) -> Result<Value> {
            self.bench.create("widgets", Some("default"), body).await
        }
    }

    fn conditions(definition: &Value) -> Vec<String> {
        let conditions = definition["status"]["conditions"].as_array().into_iter().flatten();
        let line = |it: &Value| format!("{}={}", it["type"].as_str().unwrap(), it["status"].as_str().unwrap());
        conditions.map(line).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_defined_is_served() {
        let world = World::new().await;
        let definition = world.define(widgets()).await;
        assert_eq!(conditions(&definition), ["NamesAccepted=True", "Established=True"]);
        assert_eq!(definition["status"]["storedVersions"], json!(["v1"]));

        let body = json!({"metadata": {"name": "a"}, "spec": {"size": 1, "odd": 1}, "status": {"ready": true}});
        let widget = world.widget(body).await.unwrap();
        assert_eq!(widget["spec"], json!({"size": 1, "colour": "red"}));
        assert!(widget.get("status").is_none() && widget["metadata"]["generation"] == 1);
    }

    #[tokio::test(start_paused = true)]
    async fn objects_must_fit_their_schema() {
        let world = World::new().await;
        world.define(widgets()).await;
        let refusal = |status: Status| (status.code, status.message);
        let body = json!({"metadata": {"name": "a"}, "spec": {"size": 0}});
        assert_eq!(
            world.widget(body).await.map_err(refusal),
            Err((
                422,
                "Widget.example.com \"a\" is invalid: spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1".into()
            ))
        );
        let strict = WriteOptions { field_validation: FieldValidation::Strict, ..WriteOptions::default() };
        let body = json!({"metadata": {"name": "a"}, "spec": {"size": 1, "odd": 1}});
        let target = world.bench.all("widgets", Some("default"));
        let answer = world.bench.server.create(&world.bench.caller, &target, body.into(), &strict).await;
        assert_eq!(
            answer.map(drop).map_err(refusal),
            Err((
                400,
                "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: unknown field \"spec.odd\"".into()
            ))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn objects_go_before_their_definition() {
        let world = World::new().await;
        world.define(widgets()).await;
        let held = json!({"metadata": {"name": "a", "finalizers": ["example.com/hold"]}, "spec": {"size": 1}});
        world.widget(held).await.unwrap();
        world.widget(json!({"metadata": {"name": "b"}, "spec": {"size": 1}})).await.unwrap();
        let target = world.bench.one("customresourcedefinitions", None, "widgets.example.com");
        world.bench.delete(&target, DeleteOptions::default()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(5)).await;

        let going = world.definition().await.unwrap();
        assert!(conditions(&going).contains(&"Terminating=True".to_owned()), "{going}");
        let widget = world.bench.one("widgets", Some("default"), "a");
        assert_eq!(
            world.widget(json!({"metadata": {"name": "c"}, "spec": {"size": 1}})).await.map_err(|s| s.code),
            Err(405)
        );

        let mut object = world.bench.get(&widget).await.unwrap();
        object["metadata"]["finalizers"] = json!([]);
        world.bench.put(&widget, object).await.unwrap();
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(world.definition().await.map_err(|status| status.code), Err(404));
        assert!(world.bench.server.registry().lookup("example.com", "v1", "widgets").is_none());
    }
}
