//! Stories of the NeMo services: from the manifest to Ready, and what may happen on the way.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use capstan_tests::nemo::{self, secret};
use capstan_tests::nim::{API, condition, state};
use capstan_tests::wire::Fault;
use capstan_tests::world::World;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};

/// The files of the five services.
const FILES: [&str; 5] = ["customizer", "datastore", "entitystore", "evaluator", "guardrail"];

fn identity(service: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&service["kind"]), text(&service["metadata"]["name"]))
}

async fn ready(world: &World, service: &Value) -> Value {
    let (kind, name) = identity(service);
    world.apply(service.clone()).await;
    world.until(API, &kind, &name, state("Ready")).await
}

async fn uri(world: &World, name: &str, key: &str) -> String {
    let secrets: kube::Api<Secret> = kube::Api::namespaced(world.admin.clone(), &world.namespace);
    let data = secrets.get(name).await.unwrap().data.unwrap();
    String::from_utf8(data[key].0.clone()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn every_service_becomes_ready_and_then_costs_nothing() {
    let world = nemo::world().await;
    let operator = world.operator(Fault::None).await;
    for file in FILES {
        let live = ready(&world, &nemo::service(file)).await;
        assert_eq!(live["status"]["availableReplicas"], 1, "{file}");
        assert_eq!(condition(&live, "Ready")["observedGeneration"], live["metadata"]["generation"], "{file}");
    }
    let writes = world.settled(&operator).await;
    assert_eq!(world.settled(&operator).await, writes);
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_comes_late_is_noticed_at_once() {
    let world = nemo::world().await;
    let _operator = world.operator(Fault::None).await;
    let mut service = nemo::service("evaluator");
    service["spec"]["databaseConfig"]["credentials"]["secretName"] = "late".into();
    world.apply(service).await;
    let waits = |reason: &'static str| move |object: &Value| condition(object, "Ready")["reason"] == reason;
    let waiting = world.until(API, "NemoEvaluator", "scores", waits("SecretNotFound")).await;
    let message = condition(&waiting, "Ready")["message"].as_str().unwrap();
    let named = format!("Secret {}/late, which spec.databaseConfig.credentials names, does not exist", world.namespace);
    assert!(message.starts_with(&named), "{message}");
    assert!(world.list("apps/v1", "Deployment").await.is_empty());
    world.until("v1", "Service", "scores", |_| true).await;
    world.apply(secret("late", "wrong", "x")).await;
    world.until(API, "NemoEvaluator", "scores", waits("SecretKeyNotFound")).await;
    world.apply(secret("late", "password", "p@ss/word")).await;
    world.until(API, "NemoEvaluator", "scores", state("Ready")).await;
    assert_eq!(uri(&world, "scores", "uri").await, "postgresql://nemo:p%40ss%2Fword@nemo-postgres:5432/evaluator");
}

#[tokio::test(start_paused = true)]
async fn a_password_that_is_rotated_replaces_the_pods_once() {
    let world = nemo::world().await;
    let operator = world.operator(Fault::None).await;
    ready(&world, &nemo::service("evaluator")).await;
    world.settled(&operator).await;
    let before = world.until("apps/v1", "Deployment", "scores", |_| true).await;
    world.apply(secret("nemo-postgres", "password", "rotated")).await;
    let rolled = |object: &Value| object["metadata"]["generation"] != before["metadata"]["generation"];
    world.until("apps/v1", "Deployment", "scores", rolled).await;
    assert!(uri(&world, "scores", "uri").await.contains(":rotated@"));
    world.until(API, "NemoEvaluator", "scores", state("Ready")).await;
    world.settled(&operator).await;
    let after = world.until("apps/v1", "Deployment", "scores", |_| true).await;
    let generation = |object: &Value| object["metadata"]["generation"].as_i64().unwrap();
    assert_eq!(generation(&after), generation(&before) + 1);
}

#[tokio::test(start_paused = true)]
async fn a_configuration_that_is_edited_reaches_the_customizer() {
    let world = nemo::world().await;
    let operator = world.operator(Fault::None).await;
    ready(&world, &nemo::service("pipeline")).await;
    let customizer = nemo::read("pipeline").into_iter().find(|one| one["kind"] == "NemoCustomizer").unwrap();
    ready(&world, &customizer).await;
    world.settled(&operator).await;
    let before = world.until("apps/v1", "Deployment", "customizer", |_| true).await;
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "nemo-training-config"},
        "data": {"training": "extra_setting: on\n"},
    });
    world.apply(map).await;
    let has = |object: &Value| {
        object["data"]["config.yaml"].as_str().is_some_and(|text| text.contains("extra_setting: true"))
    };
    world.until("v1", "ConfigMap", "customizer", has).await;
    let rolled = |object: &Value| object["metadata"]["generation"] != before["metadata"]["generation"];
    world.until("apps/v1", "Deployment", "customizer", rolled).await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_child_comes_back_and_an_edit_by_hand_is_repaired() {
    let world = nemo::world().await;
    let operator = world.operator(Fault::None).await;
    ready(&world, &nemo::service("guardrail")).await;
    world.settled(&operator).await;
    for (api, kind) in [("v1", "Service"), ("v1", "Secret"), ("rbac.authorization.k8s.io/v1", "Role")] {
        let first = world.until(api, kind, "rails", |_| true).await;
        world.delete(api, kind, "rails").await;
        world.until(api, kind, "rails", |object| object["metadata"]["uid"] != first["metadata"]["uid"]).await;
    }
    let deployments: kube::Api<Deployment> = kube::Api::namespaced(world.admin.clone(), &world.namespace);
    let edit = json!({
        "metadata": {"annotations": {"cloud.example/id": "7"}},
        "spec": {"template": {"spec": {"containers": [{"name": "rails-ctr", "image": "edited:1"}]}}},
    });
    deployments.patch("rails", &Default::default(), &kube::api::Patch::Strategic(edit)).await.unwrap();
    let repaired = |object: &Value| {
        object["spec"]["template"]["spec"]["containers"][0]["image"]
            == "nvcr.io/nvidia/nemo-microservices/guardrails:25.10"
    };
    let live = world.until("apps/v1", "Deployment", "rails", repaired).await;
    assert_eq!(live["metadata"]["annotations"]["cloud.example/id"], "7");
    let edited = json!({"data": {"uri": "ZWRpdGVk"}});
    world.patch("v1", "Secret", "rails", edited).await;
    world.until("v1", "Secret", "rails", |object| object["data"]["uri"] != "ZWRpdGVk").await;
}

#[tokio::test(start_paused = true)]
async fn what_is_switched_off_goes() {
    let world = nemo::world().await;
    let _operator = world.operator(Fault::None).await;
    let mut service = nemo::service("entitystore");
    ready(&world, &service).await;
    let optional = [
        ("autoscaling/v2", "HorizontalPodAutoscaler"),
        ("networking.k8s.io/v1", "Ingress"),
        ("monitoring.coreos.com/v1", "ServiceMonitor"),
    ];
    for (api, kind) in optional {
        world.until(api, kind, "entities", |_| true).await;
    }
    for field in ["scale", "metrics"] {
        service["spec"].as_object_mut().unwrap().remove(field);
    }
    service["spec"]["expose"].as_object_mut().unwrap().remove("router");
    world.apply(service).await;
    for (api, kind) in optional {
        world.until_gone(api, kind, "entities").await;
    }
}

#[tokio::test(start_paused = true)]
async fn somebody_elses_object_is_never_overwritten() {
    let world = nemo::world().await;
    world.apply(secret("scores", "mine", "1")).await;
    let _operator = world.operator(Fault::None).await;
    world.apply(nemo::service("evaluator")).await;
    let failed = world.until(API, "NemoEvaluator", "scores", state("Failed")).await;
    let failed = condition(&failed, "Failed");
    assert_eq!(failed["reason"], "NameConflict");
    let refusal = format!("refuses to overwrite Secret {}/scores", world.namespace);
    assert!(failed["message"].as_str().unwrap().contains(&refusal), "{failed}");
    assert_eq!(uri(&world, "scores", "mine").await, "1");
}

#[tokio::test(start_paused = true)]
async fn two_kinds_with_one_name_do_not_fight() {
    let world = nemo::world().await;
    let operator = world.operator(Fault::None).await;
    ready(&world, &nemo::service("entitystore")).await;
    let mut other = nemo::service("guardrail");
    other["metadata"]["name"] = "entities".into();
    world.apply(other).await;
    let failed = world.until(API, "NemoGuardrail", "entities", state("Failed")).await;
    let message = condition(&failed, "Failed")["message"].as_str().unwrap().to_owned();
    assert!(message.contains("which belongs to NemoEntitystore entities"), "{message}");
    world.settled(&operator).await;
    world.until(API, "NemoEntitystore", "entities", state("Ready")).await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_service_takes_its_children_along_and_keeps_a_claim_that_is_retained() {
    let world = nemo::world().await;
    let operator = world.operator(Fault::None).await;
    for file in FILES {
        let mut service = nemo::service(file);
        let (kind, name) = identity(&service);
        // What the NIM Operator left behind: nobody else takes it away.
        let finalizer = match kind.as_str() {
            "NemoEntitystore" | "NemoGuardrail" => format!("finalizer.{kind}.apps.nvidia.com"),
            _ => format!("finalizer.{}.apps.nvidia.com", kind.to_lowercase()),
        };
        service["metadata"]["finalizers"] = json!([finalizer]);
        ready(&world, &service).await;
        world.delete(API, &kind, &name).await;
        world.until_gone(API, &kind, &name).await;
        world.until_gone("apps/v1", "Deployment", &name).await;
        world.until_gone("v1", "Service", &name).await;
    }
    world.settled(&operator).await;
    let claims = world.list("v1", "PersistentVolumeClaim").await;
    let names: Vec<&Value> = claims.iter().map(|claim| &claim["metadata"]["name"]).collect();
    assert_eq!(names, ["files-pvc"], "the others went with their services");
}

#[tokio::test(start_paused = true)]
async fn a_spec_is_never_written_back() {
    let world = nemo::world().await;
    let operator = world.operator(Fault::None).await;
    let mut service = nemo::service("datastore");
    service["spec"]["objectStoreConfig"]["serveDirect"] = false.into();
    let before = ready(&world, &service).await;
    world.settled(&operator).await;
    let after = world.until(API, "NemoDatastore", "files", |_| true).await;
    assert_eq!(after["spec"], before["spec"]);
    assert_eq!(after["spec"]["objectStoreConfig"]["serveDirect"], false);
    assert_eq!(after["metadata"]["generation"], 1);
    let managers = after["metadata"]["managedFields"].as_array().unwrap();
    let ours = managers.iter().filter(|entry| entry["manager"] == "capstan");
    assert!(ours.clone().all(|entry| entry["subresource"] == "status"), "{managers:?}");
}

#[tokio::test(start_paused = true)]
async fn a_claim_grows_when_its_spec_asks_for_more() {
    let world = nemo::world().await;
    let _operator = world.operator(Fault::None).await;
    let mut service = nemo::service("guardrail");
    ready(&world, &service).await;
    let class = json!({"allowVolumeExpansion": true});
    world.patch("storage.k8s.io/v1", "StorageClass", "standard", class).await;
    service["spec"]["configStore"]["pvc"]["size"] = "2Gi".into();
    world.apply(service).await;
    let grown = |object: &Value| object["spec"]["resources"]["requests"]["storage"] == "2Gi";
    world.until("v1", "PersistentVolumeClaim", "rails-pvc", grown).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_around_a_service_is_named_and_noticed_when_it_comes() {
    let world = nemo::installed(World::start().await).await;
    let _operator = world.operator(Fault::None).await;
    world.apply(secret("nemo-postgres", "password", "p")).await;
    let mut service = nemo::service("evaluator");
    service["spec"]["expose"].as_object_mut().unwrap().remove("router");
    let live = ready(&world, &service).await;
    let missing = condition(&live, "MissingAPI")["message"].as_str().unwrap().to_owned();
    assert!(missing.contains("workflows.argoproj.io"), "{missing}");
    world.install("argoproj.io", "v1alpha1", "Workflow", "workflows").await;
    world.until(API, "NemoEvaluator", "scores", |object| condition(object, "MissingAPI").is_null()).await;
}

#[tokio::test(start_paused = true)]
async fn the_schema_refuses_what_no_service_can_run_with() {
    let world = nemo::world().await;
    let refused = |service: Value| {
        let (world, version) = (&world, "v1alpha1");
        async move {
            let (kind, name) = identity(&service);
            let resource = kube::core::ApiResource {
                group: "apps.nvidia.com".into(),
                version: version.into(),
                api_version: API.into(),
                plural: format!("{}s", kind.to_lowercase()),
                kind: kind.clone(),
            };
            let api: kube::Api<kube::api::DynamicObject> =
                kube::Api::namespaced_with(world.admin.clone(), &world.namespace, &resource);
            let object = serde_json::from_value(service).unwrap();
            match api.create(&Default::default(), &object).await {
                Err(kube::Error::Api(status)) => status.message.clone(),
                other => panic!("{kind} {name}: {other:?}"),
            }
        }
    };
    let without = |file: &str, field: &str| {
        let mut service = nemo::service(file);
        service["spec"].as_object_mut().unwrap().remove(field);
        service
    };
    assert!(refused(without("entitystore", "databaseConfig")).await.contains("spec.databaseConfig: Required value"));
    assert!(refused(without("datastore", "secrets")).await.contains("spec.secrets: Required value"));
    let mut empty = nemo::service("entitystore");
    empty["spec"]["databaseConfig"] =
        json!({"host": "", "databaseName": "", "credentials": {"user": "", "secretName": ""}});
    let message = refused(empty).await;
    for field in ["host", "databaseName", "credentials.user", "credentials.secretName"] {
        assert!(message.contains(&format!("spec.databaseConfig.{field}")), "{field}: {message}");
    }
    let mut high = nemo::service("entitystore");
    high["spec"]["databaseConfig"]["port"] = 65536.into();
    let message = refused(high).await;
    assert_eq!(message.matches("Invalid value").count(), 1, "{message}");
    let mut bare = nemo::service("datastore");
    bare["spec"]["objectStoreConfig"] = json!({});
    assert!(refused(bare).await.contains("spec.objectStoreConfig"));
    let mut both = nemo::service("guardrail");
    both["spec"]["configStore"]["configMap"] = json!({"name": "x"});
    assert!(refused(both).await.contains("configMap and pvc are both set"));
    let mut url = nemo::service("guardrail");
    url["spec"]["nimEndpoint"]["baseURL"] = "http://llama:8000".into();
    assert!(refused(url).await.contains("spec.nimEndpoint.baseURL"));
}
