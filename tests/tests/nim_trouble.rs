//! What gets in the way of a NIMService: refusals, kinds that vanish, neighbours with the same names.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use capstan_apiserver::error::Status;
use capstan_apiserver::faults::{self, Matcher, Verb};
use capstan_tests::nim::{API, condition, service, state};
use capstan_tests::wire::Fault;
use capstan_tests::world::World;
use serde_json::{Value, json};

#[tokio::test(start_paused = true)]
async fn a_refusal_of_the_server_keeps_its_reason_until_it_is_over() {
    let world = World::start_in_virtual_time(2).await;
    let cluster = world.embedded_cluster().unwrap();
    let roles = Matcher::new().verb(Verb::Patch).resource("roles");
    let fault = cluster.server.faults().add(faults::Fault::fail(roles, Status::new(422, "Invalid", "rules: no")));
    let operator = world.operator(Fault::None).await;
    world.apply(service()).await;
    let refused = |object: &Value| {
        let failed = condition(object, "Failed");
        failed["reason"] == "RoleFailed" && failed["message"].as_str().unwrap_or_default().contains("rules: no")
    };
    let first = world.until(API, "NIMService", "llama", refused).await;
    world.rest().await;
    assert!(fault.hits() > 1, "it is tried again");
    let later = world.until(API, "NIMService", "llama", |_| true).await;
    assert_eq!(later["status"], first["status"], "the same reason, told once");
    fault.remove();
    world.until(API, "NIMService", "llama", state("Ready")).await;
    operator.kill();
}

#[tokio::test(start_paused = true)]
async fn a_service_of_kserve_can_be_deleted_after_kserve_is_gone() {
    let world = World::start_in_virtual_time(2).await;
    world.install("serving.kserve.io", "v1beta1", "InferenceService", "inferenceservices").await;
    let _operator = world.operator(Fault::None).await;
    let mut kserve = service();
    kserve["spec"]["inferencePlatform"] = "kserve".into();
    // What the NIM Operator left behind: nobody else takes it away.
    kserve["metadata"]["finalizers"] = json!(["finalizer.nimservice.apps.nvidia.com"]);
    world.apply(kserve).await;
    world.until("serving.kserve.io/v1beta1", "InferenceService", "llama", |_| true).await;
    let definition = "inferenceservices.serving.kserve.io";
    world.delete("apiextensions.k8s.io/v1", "CustomResourceDefinition", definition).await;
    world.until_gone("apiextensions.k8s.io/v1", "CustomResourceDefinition", definition).await;
    world.delete(API, "NIMService", "llama").await;
    world.until_gone(API, "NIMService", "llama").await;
}

#[tokio::test(start_paused = true)]
async fn a_secret_concerns_services_of_its_own_namespace_only() {
    let world = World::start_in_virtual_time(2).await;
    let operator = world.operator(Fault::None).await;
    world.apply(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})).await;
    let secret = |namespace: &str, value: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ngc", "namespace": namespace},
            "stringData": {"NGC_API_KEY": value}})
    };
    for namespace in [world.namespace.as_str(), "other"] {
        world.apply(secret(namespace, "one")).await;
        let mut one = service();
        one["metadata"]["namespace"] = namespace.into();
        one["spec"]["authSecret"] = "ngc".into();
        one["spec"]["storage"] = json!({"emptyDir": {}});
        world.apply(one).await;
    }
    world.until(API, "NIMService", "llama", state("Ready")).await;
    world.settled(&operator).await;
    let before = world.until("apps/v1", "Deployment", "llama", |_| true).await;
    let writes = operator.wire.writes();
    world.apply(secret("other", "two")).await;
    world.rest().await;
    assert!(operator.wire.writes() > writes, "the other service rolls its pods");
    let after = world.until("apps/v1", "Deployment", "llama", |_| true).await;
    assert_eq!(after["metadata"]["generation"], before["metadata"]["generation"]);
    world.apply(secret(&world.namespace, "two")).await;
    let rolled = |object: &Value| object["metadata"]["generation"] != before["metadata"]["generation"];
    world.until("apps/v1", "Deployment", "llama", rolled).await;
}
