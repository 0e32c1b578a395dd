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

#[tokio::test(start_paused = true)]
async fn a_status_that_somebody_else_changed_meanwhile_is_written_all_the_same() {
    let world = World::start_in_virtual_time(2).await;
    for kind in ["NIMCache", "NIMBuild"] {
        world.install_ours(kind).await;
    }
    let cluster = world.embedded_cluster().unwrap();
    let conflicts: Vec<_> = ["nimservices", "nimbuilds"]
        .map(|plural| {
            let status = Matcher::new().verb(Verb::Patch).resource(plural).subresource("status");
            let faster = Status::new(409, "Conflict", "somebody was faster");
            cluster.server.faults().add(faults::Fault::fail(status, faster).first(2))
        })
        .into();
    let _operator = world.operator(Fault::None).await;
    world.apply(service()).await;
    let build = json!({
        "apiVersion": API, "kind": "NIMBuild", "metadata": {"name": "engine"},
        "spec": {"nimCache": {"name": "none"}, "image": {"repository": "nim", "tag": "1"}},
    });
    world.apply(build).await;
    let ready = world.until(API, "NIMService", "llama", state("Ready")).await;
    assert_eq!(condition(&ready, "Failed")["status"], "False");
    let waiting = world.until(API, "NIMBuild", "engine", state("Failed")).await;
    assert_eq!(condition(&waiting, "NIM_BUILD_NIM_CACHE_NOT_FOUND")["reason"], "NIMCacheNotFound");
    assert!(condition(&waiting, "NIM_BUILD_RECONCILE_FAILED").is_null(), "a conflict is nobody's mistake");
    assert!(conflicts.iter().all(|fault| fault.hits() == 2));
}

#[tokio::test(start_paused = true)]
async fn what_the_operator_before_us_held_can_be_deleted() {
    let world = World::start_in_virtual_time(2).await;
    for kind in ["NIMCache", "NIMBuild", "NIMPipeline"] {
        world.install_ours(kind).await;
    }
    let image = json!({"repository": "nim", "tag": "1"});
    let source = json!({"ngc": {"authSecret": "ngc", "modelPuller": "nim:1", "model": {"profiles": ["trt"]}}});
    let specs = [
        ("NIMService", json!({"image": image, "storage": {"emptyDir": {}}})),
        ("NIMCache", json!({"source": source, "storage": {"pvc": {"create": true, "size": "1Gi"}}})),
        ("NIMBuild", json!({"image": image, "nimCache": {"name": "held"}})),
        ("NIMPipeline", json!({"services": []})),
    ];
    let operator = world.operator(Fault::None).await;
    for (kind, spec) in specs.clone() {
        let finalizer = format!("finalizer.{}.apps.nvidia.com", kind.to_lowercase());
        let metadata = json!({"name": "held", "finalizers": [finalizer]});
        world.apply(json!({"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec})).await;
        world.until(API, kind, "held", |object| !object["status"]["state"].is_null()).await;
    }
    for (kind, _) in specs {
        world.delete(API, kind, "held").await;
        world.until_gone(API, kind, "held").await;
    }
    world.settled(&operator).await;
    assert!(world.list("v1", "Pod").await.is_empty(), "no pod of any of them is left");
}

#[tokio::test(start_paused = true)]
async fn of_several_settings_of_kserve_those_of_the_named_namespace_count() {
    let world = World::start_in_virtual_time(2).await;
    world.install("serving.kserve.io", "v1beta1", "InferenceService", "inferenceservices").await;
    for (namespace, mode) in [("kserve", "Knative"), ("old", "RawDeployment")] {
        world.apply(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).await;
        let deploy = json!({"defaultDeploymentMode": mode}).to_string();
        let metadata = json!({"name": "inferenceservice-config", "namespace": namespace});
        world
            .apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"deploy": deploy}}))
            .await;
    }
    let mut kserve = service();
    kserve["spec"]["inferencePlatform"] = "kserve".into();
    world.apply(kserve).await;
    let unsure = world.operator(Fault::None).await;
    let failed = world.until(API, "NIMService", "llama", state("Failed")).await;
    let message = condition(&failed, "Failed")["message"].as_str().unwrap();
    assert!(message.contains("several namespaces (kserve, old): set KSERVE_NAMESPACE"), "{message}");
    unsure.kill();
    let named = |options: &mut capstan_operator::Options| options.kserve_namespace = Some("kserve".into());
    let _operator = world.operator_with(Fault::None, named).await;
    let made = world.until("serving.kserve.io/v1beta1", "InferenceService", "llama", |_| true).await;
    assert_eq!(made["metadata"]["annotations"]["serving.kserve.io/deploymentMode"], "Knative");
}
