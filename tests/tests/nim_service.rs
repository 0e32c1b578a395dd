//! Stories of a NIMService: from the manifest to Ready, and what may happen on the way.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use capstan_tests::nim::{API, service, state};
use capstan_tests::wire::Fault;
use capstan_tests::world::World;
use serde_json::{Value, json};

#[tokio::test(start_paused = true)]
async fn a_service_becomes_ready_and_then_costs_nothing() {
    let world = World::start().await;
    let operator = world.operator(Fault::None).await;
    world.apply(service()).await;
    let ready = world.until(API, "NIMService", "llama", state("Ready")).await;
    assert_eq!(ready["status"]["availableReplicas"], 1);
    let writes = world.settled(&operator).await;
    assert_eq!(world.settled(&operator).await, writes);
    println!("{writes} writes to Ready");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_child_comes_back() {
    let world = World::start().await;
    let _operator = world.operator(Fault::None).await;
    world.apply(service()).await;
    world.until(API, "NIMService", "llama", state("Ready")).await;
    let first = world.until("v1", "Service", "llama", |_| true).await;
    let services: kube::Api<k8s_openapi::api::core::v1::Service> = kube::Api::default_namespaced(world.admin.clone());
    services.delete("llama", &Default::default()).await.unwrap();
    let uid = first["metadata"]["uid"].clone();
    world.until("v1", "Service", "llama", |object| object["metadata"]["uid"] != uid).await;
}

#[tokio::test(start_paused = true)]
async fn an_edit_by_hand_is_repaired_and_a_foreign_annotation_stays() {
    let world = World::start().await;
    let _operator = world.operator(Fault::None).await;
    world.apply(service()).await;
    world.until(API, "NIMService", "llama", state("Ready")).await;
    let edit = json!({
        "metadata": {"annotations": {"cloud.example/id": "7"}},
        "spec": {"template": {"spec": {"containers": [{"name": "llama-ctr", "image": "edited:1"}]}}},
    });
    let deployments: kube::Api<k8s_openapi::api::apps::v1::Deployment> =
        kube::Api::default_namespaced(world.admin.clone());
    deployments.patch("llama", &Default::default(), &kube::api::Patch::Strategic(edit)).await.unwrap();
    let repaired = |object: &Value| {
        object["spec"]["template"]["spec"]["containers"][0]["image"] == "nvcr.io/nim/meta/llama-3.1-8b-instruct:1.8"
    };
    let live = world.until("apps/v1", "Deployment", "llama", repaired).await;
    assert_eq!(live["metadata"]["annotations"]["cloud.example/id"], "7");
}

#[tokio::test(start_paused = true)]
async fn a_mistake_is_a_condition_with_field_value_and_fix_and_mending_it_is_enough() {
    let world = World::start().await;
    let _operator = world.operator(Fault::None).await;
    let mut bad = service();
    bad["spec"]["storage"]["pvc"]["size"] = "50 GB".into();
    world.apply(bad).await;
    let failed = world.until(API, "NIMService", "llama", state("Failed")).await;
    let conditions = failed["status"]["conditions"].as_array().unwrap();
    let failed = conditions.iter().find(|condition| condition["type"] == "Failed").unwrap();
    assert_eq!(failed["message"], r#"spec.storage.pvc.size is "50 GB": give a size such as 50Gi"#);
    assert!(world.list("apps/v1", "Deployment").await.is_empty());
    world.apply(service()).await;
    world.until(API, "NIMService", "llama", state("Ready")).await;
}

#[tokio::test(start_paused = true)]
async fn somebody_elses_object_is_never_overwritten() {
    let world = World::start().await;
    let theirs = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "llama"},
        "spec": {"selector": {"app": "theirs"}, "ports": [{"port": 80}]},
    });
    world.apply(theirs).await;
    let _operator = world.operator(Fault::None).await;
    world.apply(service()).await;
    let failed = world.until(API, "NIMService", "llama", state("Failed")).await;
    let message = failed["status"]["conditions"][0]["message"].as_str().unwrap();
    let refusal = format!("refuses to overwrite Service {}/llama", world.namespace);
    assert!(message.contains(&refusal), "{message}");
    let live = world.until("v1", "Service", "llama", |_| true).await;
    assert_eq!(live["spec"]["selector"], json!({"app": "theirs"}));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_service_takes_its_children_along() {
    let world = World::start().await;
    let operator = world.operator(Fault::None).await;
    world.apply(service()).await;
    world.until(API, "NIMService", "llama", state("Ready")).await;
    let services: kube::Api<capstan_api::nim::NimService> = kube::Api::default_namespaced(world.admin.clone());
    services.delete("llama", &Default::default()).await.unwrap();
    // The cluster collects them, which may take it a while longer than the operator takes to see that there is nothing to do.
    world.until_gone("apps/v1", "Deployment", "llama").await;
    for pod in world.list("v1", "Pod").await {
        world.until_gone("v1", "Pod", pod["metadata"]["name"].as_str().unwrap()).await;
    }
    world.settled(&operator).await;
    let left = world.end_state().await;
    assert_eq!((&left["NIMService"], &left["Deployment"], &left["Pod"]), (&json!([]), &json!([]), &json!(0)));
}
