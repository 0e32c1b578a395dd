//! What NeMo services turn into: each kind by itself, and what holds for all of them.

mod admission;
mod customizer;
mod kinds;
mod matrix;
mod progress;
mod taken_over;

use std::sync::Arc;

use capstan_api::nemo::{
    NemoCustomizerSpec, NemoDatastoreSpec, NemoEntitystoreSpec, NemoEvaluatorSpec, NemoGuardrailSpec, NemoStatus,
};
use capstan_api::{Kind, Resource};
use capstan_plan::kit::hash_json;
use capstan_plan::{Facts, Gvk, Plan, Query, QueryResult, Ref, Sensitive, ServerVersion, diff};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};

use super::service::{self, Service, Settings};

const UID: &str = "u-one";

/// A kind, a usual spec of it, and its plan.
struct Case {
    kind: &'static str,
    spec: fn() -> Value,
    plan: fn(&Value, &Facts) -> Plan<NemoStatus>,
    check: fn(&Value) -> service::Verdict,
}

fn case<S: Kind<Status = NemoStatus> + Service>(spec: fn() -> Value) -> Case {
    Case { kind: S::KIND, spec, plan: planned::<S>, check: |object| service::check(&read::<S>(object)) }
}

fn cases() -> [Case; 5] {
    [
        case::<NemoCustomizerSpec>(customizer_spec),
        case::<NemoDatastoreSpec>(datastore_spec),
        case::<NemoEntitystoreSpec>(entitystore_spec),
        case::<NemoEvaluatorSpec>(evaluator_spec),
        case::<NemoGuardrailSpec>(guardrail_spec),
    ]
}

impl Case {
    fn object(&self, edit: impl FnOnce(&mut Value)) -> Value {
        let mut spec = (self.spec)();
        edit(&mut spec);
        object(self.kind, spec)
    }

    /// The plan of an edited spec in a furnished cluster.
    fn planned(&self, edit: impl FnOnce(&mut Value)) -> Plan<NemoStatus> {
        (self.plan)(&self.object(edit), &furnished())
    }
}

fn read<S: Kind>(object: &Value) -> Resource<S> {
    serde_json::from_value(object.clone()).unwrap()
}

fn planned<S: Kind<Status = NemoStatus> + Service>(object: &Value, facts: &Facts) -> Plan<NemoStatus> {
    service::plan(&read::<S>(object), facts, &Settings::default())
}

fn object(kind: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "apps.nvidia.com/v1alpha1", "kind": kind,
        "metadata": {"name": "one", "namespace": "nemo", "uid": UID, "generation": 3},
        "spec": spec,
    })
}

fn image(name: &str) -> Value {
    json!({"repository": format!("nvcr.io/nvidia/nemo-microservices/{name}"), "tag": "25.08", "pullSecrets": ["ngc-secret"]})
}

fn database(name: &str) -> Value {
    json!({
        "host": "pg.nemo.svc.cluster.local", "port": 5432, "databaseName": name,
        "credentials": {"user": "nemo", "secretName": "pg", "passwordKey": "password"},
    })
}

fn expose() -> Value {
    json!({"service": {"type": "ClusterIP", "port": 8000}})
}

fn entitystore_spec() -> Value {
    json!({
        "image": image("entity-store"), "expose": expose(), "databaseConfig": database("nesdb"),
        "datastore": {"endpoint": "http://datastore.nemo.svc.cluster.local:8000"},
    })
}

fn datastore_spec() -> Value {
    json!({
        "image": image("datastore"), "expose": expose(), "databaseConfig": database("ndsdb"), "replicas": 1,
        "secrets": {
            "giteaAdminSecret": "gitea-admin", "lfsJwtSecret": "lfs-jwt", "datastoreInitSecret": "init",
            "datastoreConfigSecret": "config", "datastoreInlineConfigSecret": "inline",
        },
        "pvc": {"name": "shared-data", "create": true, "size": "10Gi", "volumeAccessMode": "ReadWriteOnce"},
    })
}

fn evaluator_spec() -> Value {
    json!({
        "image": image("evaluator"), "expose": expose(), "databaseConfig": database("evaldb"), "replicas": 1,
        "argoWorkflows": {"endpoint": "https://argo.nemo.svc.cluster.local:2746", "serviceAccount": "argo-executor"},
        "vectorDB": {"endpoint": "http://milvus.nemo.svc.cluster.local:19530"},
        "datastore": {"endpoint": "http://datastore.nemo.svc.cluster.local:8000/v1/hf"},
        "entitystore": {"endpoint": "http://entitystore.nemo.svc.cluster.local:8000"},
        "evaluationImages": {"lmEvalHarness": "nvcr.io/eval:1", "rag": "nvcr.io/rag:1"},
        "otel": {"enabled": true, "exporterOtlpEndpoint": "http://collector:4317"},
    })
}

fn guardrail_spec() -> Value {
    json!({
        "image": image("guardrails"), "expose": expose(),
        "configStore": {"configMap": {"name": "rules"}},
        "nimEndpoint": {"baseURL": "http://llama.nemo:8000/v1"},
    })
}

fn customizer_spec() -> Value {
    json!({
        "image": image("customizer"), "expose": expose(), "databaseConfig": database("ncsdb"),
        "datastore": {"endpoint": "http://datastore.nemo.svc.cluster.local:8000"},
        "entitystore": {"endpoint": "http://entitystore.nemo.svc.cluster.local:8000"},
        "mlflow": {"endpoint": "http://mlflow-tracking.nemo:80"},
        "wandb": {"secretName": "wandb", "apiKeyKey": "apiKey", "encryptionKey": "encryptionKey"},
        "otel": {"enabled": true, "exporterOtlpEndpoint": "http://collector:4317"},
        "modelConfig": {"name": "model-config"},
        "modelDownloadJobs": {
            "image": "nvcr.io/customizer-api:25.08", "imagePullPolicy": "IfNotPresent",
            "ngcAPISecret": {"name": "ngc-api-secret", "key": "NGC_API_KEY"},
            "securityContext": {"fsGroup": 1000, "runAsNonRoot": true}, "ttlSecondsAfterFinished": 600,
            "pollIntervalSeconds": 15,
        },
        "nemoDatastoreTools": {"image": "nvcr.io/nds-tools:25.08"},
        "trainingConfig": {
            "configMap": {"name": "training-config"}, "image": image("customizer-training"),
            "modelPVC": {"name": "models", "create": true, "size": "50Gi", "volumeAccessMode": "ReadWriteOnce"},
            "workspacePVC": {"storageClass": "standard", "size": "10Gi", "volumeAccessMode": "ReadWriteOnce"},
            "env": [{"name": "LOG_LEVEL", "value": "INFO"}],
            "networkConfig": [{"name": "NCCL_IB_SL", "value": "0"}],
            "ttlSecondsAfterFinished": 3600, "timeout": 3600,
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        },
    })
}

/// Facts with these live objects.
fn with(objects: impl IntoIterator<Item = Value>) -> Facts {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let mut facts = Facts { server: ServerVersion::parse("v1.37.1"), ..Facts::at(now) };
    objects.into_iter().for_each(|object| add(&mut facts, object));
    facts
}

fn add(facts: &mut Facts, object: Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let version = text(&object["apiVersion"]);
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let gvk =
        Gvk { group: group.to_owned().into(), version: version.to_owned().into(), kind: text(&object["kind"]).into() };
    let (namespace, name) = (text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
    facts.live.insert(Ref { gvk, namespace, name }, Arc::new(object));
}

/// A Secret as caches show it: hashes for values.
fn secret(name: &str, keys: &[&str]) -> Value {
    let data: serde_json::Map<String, Value> = keys.iter().map(|key| ((*key).to_owned(), "h1".into())).collect();
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "nemo"}, "data": data})
}

fn config_map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "nemo"}, "data": data})
}

fn crd(name: &str) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name}})
}

/// What the usual specs need.
fn surroundings() -> Vec<Value> {
    let scripts = ["init_directory_structure.sh", "configure_gitea.sh"];
    vec![
        secret("pg", &["password"]),
        secret("gitea-admin", &["GITEA_ADMIN_USERNAME", "GITEA_ADMIN_PASSWORD"]),
        secret("lfs-jwt", &["jwtSecret"]),
        secret("init", &scripts),
        secret("config", &["config_environment.sh"]),
        secret("inline", &["_generals_"]),
        secret("wandb", &["apiKey", "encryptionKey"]),
        secret("ngc-api-secret", &["NGC_API_KEY"]),
        config_map("rules", json!({"config.yml": "rails: {}"})),
        config_map("training-config", json!({"training": "container_defaults:\n  imagePullPolicy: IfNotPresent\n"})),
        config_map(
            "model-config",
            json!({
                "customizationTargets": "overrideExistingTargets: true\ntargets:\n  llama:\n    num_parameters: 70000000000\n    version: \"1.0\"\n    enabled: yes\n",
                "customizationConfigTemplates": "templates: {}\n",
            }),
        ),
        crd("workflows.argoproj.io"),
        crd("jobs.batch.volcano.sh"),
        crd("queues.scheduling.volcano.sh"),
        crd("podgroups.scheduling.volcano.sh"),
        crd("nemotrainingjobs.nvidia.com"),
        crd("trainingworkloads.run.ai"),
    ]
}

/// A cluster with what the usual specs need, where the password has been read.
fn furnished() -> Facts {
    let mut facts = with(surroundings());
    facts
        .served
        .extend([Gvk::of::<capstan_api::foreign::HttpRoute>(), Gvk::of::<capstan_api::foreign::ServiceMonitor>()]);
    answer(&mut facts, "h1", "secret");
    facts
}

/// Says what the password is.
fn answer(facts: &mut Facts, version: &str, password: &str) {
    let secret = Ref::of::<Secret>("nemo", "pg");
    let question = Query::SecretValue { secret, key: "password".into(), version: version.into() };
    facts.query_results.insert(question, QueryResult::SecretValue(Ok(Sensitive(password.into()))));
}

/// Writes what a plan wants, as the API server stores it and caches show it. Says how many objects were written.
fn applied(facts: &mut Facts, plan: &Plan<NemoStatus>) -> usize {
    let diff = diff(UID, plan.objects.as_deref().unwrap_or_default(), &facts.live);
    assert!(diff.conflicts.is_empty(), "{:?}", diff.conflicts);
    let writes = diff.apply.len();
    for write in diff.apply {
        let mut body = write.object.body;
        body["metadata"]["uid"] = format!("u-{}", write.object.reference).into();
        if body["kind"] == "Secret" {
            let data = body["data"].as_object_mut().unwrap();
            data.values_mut().for_each(|value| *value = hash_json(value).into());
        }
        add(facts, body);
    }
    writes
}

fn kinds(plan: &Plan<NemoStatus>) -> Vec<&str> {
    plan.objects.iter().flatten().filter(|one| !one.body.is_null()).map(|one| &*one.reference.gvk.kind).collect()
}

fn child<'a>(plan: &'a Plan<NemoStatus>, kind: &str) -> &'a Value {
    let found = plan.objects.iter().flatten().find(|one| one.reference.gvk.kind == kind);
    found.map_or(&Value::Null, |one| &one.body)
}

fn template(plan: &Plan<NemoStatus>) -> &Value {
    &child(plan, "Deployment")["spec"]["template"]
}

fn container(plan: &Plan<NemoStatus>) -> &Value {
    &template(plan)["spec"]["containers"][0]
}

fn variable<'a>(container: &'a Value, name: &str) -> &'a Value {
    let list = container["env"].as_array().unwrap();
    list.iter().find(|one| one["name"] == name).unwrap_or(&Value::Null)
}

fn names(container: &Value) -> Vec<&str> {
    container["env"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect()
}

/// Status, reason and message of a condition.
fn condition(plan: &Plan<NemoStatus>, type_: &str) -> (String, String, String) {
    let list = plan.status.conditions.as_deref().unwrap_or_default();
    let found = list.iter().find(|one| one.type_ == type_);
    found.map_or_else(Default::default, |one| (one.status.clone(), one.reason.clone(), one.message.clone()))
}

fn bodies(plan: &Plan<NemoStatus>) -> Vec<&Value> {
    plan.objects.iter().flatten().map(|one| &one.body).collect()
}
