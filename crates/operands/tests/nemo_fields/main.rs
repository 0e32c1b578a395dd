//! Every field of the NeMo kinds does something that a user can see.
//!
//! For each field of the generated schema two objects are planned that differ in this field only. Their plans or what
//! admission says must differ, or the user must be told that the field has no effect. A refusal counts only for the few
//! fields that are meant to be refused.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../nim_fields/walk.rs"]
mod walk;

use std::sync::Arc;

use capstan_api::foreign::{HttpRoute, ServiceMonitor};
use capstan_api::nemo::NemoStatus;
use capstan_api::{Kind, Resource, ignored};
use capstan_operands::nemo::{Service, Settings, check, customizer, datastore, entitystore, evaluator, guardrail};
use capstan_plan::{Facts, Gvk, Plan, Query, QueryResult, Ref, Sensitive, ServerVersion};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};

use walk::{Leaf, Samples, leaves};

/// What can be seen of an object.
#[derive(Clone, Debug, PartialEq)]
struct Sight {
    plan: Value,
    refused: Vec<String>,
    warned: Vec<String>,
    stopped: bool,
}

fn sight<S: Kind<Status = NemoStatus> + Service>(object: &Resource<S>, plan: &Plan<NemoStatus>) -> Sight {
    let objects: Vec<&Value> = plan.objects.iter().flatten().map(|object| &object.body).collect();
    let mut plan_seen = json!({"objects": objects, "status": plan.status});
    forget(&mut plan_seen);
    let verdict = check(object);
    Sight { plan: plan_seen, refused: verdict.errors, warned: verdict.warnings, stopped: plan.objects.is_none() }
}

/// Drops what changes with every field, because it is a hash of the whole spec.
fn forget(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("nvidia.com/parent-spec-hash");
            fields.values_mut().for_each(forget);
        }
        Value::Array(items) => items.iter_mut().for_each(forget),
        _ => {}
    }
}

/// Facts with what the specs below name, and with the password for whatever Secret is asked for.
fn facts() -> Facts {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let mut facts = Facts { server: ServerVersion::parse("v1.37.1"), ..Facts::at(now) };
    facts.served.extend([Gvk::of::<HttpRoute>(), Gvk::of::<ServiceMonitor>()]);
    for name in ["pg", "walk-one", "walk-two"] {
        let reference = Ref::of::<Secret>("nemo", name);
        let keys = json!({"password": "h", "walk-one": "h", "walk-two": "h"});
        facts.live.insert(reference.clone(), Arc::new(json!({"metadata": {"name": name}, "data": keys})));
        for key in ["password", "walk-one", "walk-two"] {
            let question = Query::SecretValue { secret: reference.clone(), key: key.into(), version: "h".into() };
            facts.query_results.insert(question, QueryResult::SecretValue(Ok(Sensitive("secret".into()))));
        }
    }
    for name in ["maps", "walk-one", "walk-two"] {
        let reference = Ref::of::<k8s_openapi::api::core::v1::ConfigMap>("nemo", name);
        let data = json!({"training": format!("from: {name}\n"), "models": format!("from: {name}\n")});
        facts.live.insert(reference, Arc::new(json!({"metadata": {"name": name}, "data": data})));
    }
    for name in ["mine", "walk-one", "walk-two", "one-pvc"] {
        let reference = Ref::of::<k8s_openapi::api::core::v1::PersistentVolumeClaim>("nemo", name);
        facts.live.insert(reference, Arc::new(json!({"metadata": {"name": name}})));
    }
    facts
}

type Context = (&'static str, fn(&mut Value));

/// What must be there for fields below a path to matter.
const CONTEXTS: &[Context] = &[
    ("spec.scale", |value| value["spec"]["scale"] = json!({"enabled": true, "hpa": {"maxReplicas": 3}})),
    ("spec.metrics", |value| value["spec"]["metrics"] = json!({"enabled": true})),
    ("spec.expose.ingress", |value| {
        value["spec"]["expose"]["ingress"] = json!({"enabled": true, "spec": {"ingressClassName": "c"}});
    }),
    ("spec.expose.router", |value| value["spec"]["expose"]["router"]["hostDomainName"] = json!("example.com")),
    ("spec.expose.router.annotations", |value| {
        value["spec"]["expose"]["router"]["ingress"] = json!({"ingressClass": "c"})
    }),
    ("spec.expose.router.hostDomainName", |value| {
        value["spec"]["expose"]["router"]["ingress"] = json!({"ingressClass": "c"});
    }),
    ("spec.otel", |value| {
        value["spec"]["otel"] = json!({"enabled": true, "exporterOtlpEndpoint": "http://c"});
    }),
    ("spec.trainingConfig.runaiQueue", |value| value["spec"]["scheduler"] = json!({"type": "runai"})),
    ("spec.configStore.configMap", |value| value["spec"]["configStore"] = json!({})),
    ("spec.configStore.pvc", |value| {
        value["spec"]["configStore"] = json!({"pvc": {"create": true, "size": "1Gi", "name": "new"}})
    }),
    ("spec.pvc", |value| value["spec"]["pvc"] = json!({"create": true, "size": "1Gi", "name": "new"})),
    ("spec.trainingConfig.modelPVC", |value| {
        value["spec"]["trainingConfig"]["modelPVC"] = json!({"create": true, "size": "1Gi", "name": "new"});
    }),
    ("spec.nimEndpoint.apiKeyKey", |value| {
        value["spec"]["nimEndpoint"] = json!({"baseURL": "http://nim/v1", "apiKeySecret": "walk-one"});
    }),
];

/// Fields that are refused: NeMo servers have none of this.
const REFUSED: &[&str] = &[
    "spec.expose.service.grpcPort",
    "spec.expose.service.metricsPort",
    "spec.expose.router.gateway.grpcRoutesEnabled",
    "spec.expose.ingress.enabled",
    "spec.scale.enabled",
];

fn samples() -> Vec<(&'static str, Value)> {
    vec![
        ("image.pullPolicy", json!("Always")),
        ("expose.service.type", json!("NodePort")),
        ("hostDomainName", json!("example.org")),
        ("hpa.metrics.type", json!("Resource")),
        ("size", json!("2Gi")),
        ("volumeAccessMode", json!("ReadWriteMany")),
        ("interval", json!("30s")),
        ("scrapeTimeout", json!("10s")),
        ("endpoint", json!("http://walk")),
        ("baseURL", json!("http://walk/v1")),
        ("resources.limits", json!({"cpu": "1"})),
        ("resources.requests", json!({"cpu": "1"})),
        ("sharedMemorySizeLimit", json!("8Gi")),
        ("ttlSecondsAfterFinished", json!(120)),
        ("pollIntervalSeconds", json!(30)),
        ("modelDownloadJobs.imagePullPolicy", json!("Never")),
        ("pvc.create", json!(false)),
        ("modelPVC.create", json!(false)),
    ]
}

struct Case<'a> {
    kind: &'static str,
    base: Value,
    samples: Samples<'a>,
    observe: fn(&Value) -> Sight,
}

impl Case<'_> {
    fn dead(&self) -> Vec<String> {
        let kind = capstan_api::kinds().find(|one| one.kind == self.kind).unwrap();
        let root = kind.described();
        let fields = leaves(&root["properties"]["spec"], &["spec".into()]);
        let fields: Vec<&Leaf> = fields.iter().filter(|leaf| !ignored::is_ignored(self.kind, &leaf.path())).collect();
        let dead: Vec<String> = fields.iter().filter_map(|leaf| self.fault(leaf, &root)).collect();
        println!("{}: {} fields, {} without effect", self.kind, fields.len(), dead.len());
        dead
    }

    fn fault(&self, leaf: &Leaf, root: &Value) -> Option<String> {
        let mut base = self.base.clone();
        for (_, set) in CONTEXTS.iter().filter(|(path, _)| leaf.is_below(path)) {
            set(&mut base);
        }
        let without = leaf.surrounded(&base, root, self.samples);
        let before = (self.observe)(&without);
        let refusable = REFUSED.iter().any(|path| leaf.is_below(path));
        let mut why = "no effect".to_owned();
        for value in leaf.candidates(&without, self.samples) {
            let after = (self.observe)(&leaf.with(&base, value.clone(), root, self.samples));
            let refused = (after.stopped || !after.refused.is_empty()) && after.refused != before.refused;
            if refused && !refusable {
                why = format!("{value} is refused: {:?}", after.refused);
                continue;
            }
            if refused || after != before {
                return None;
            }
        }
        Some(format!("{}: {why}", leaf.path()))
    }
}

fn object(kind: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "apps.nvidia.com/v1alpha1", "kind": kind,
        "metadata": {"name": "one", "namespace": "nemo", "uid": "u-one", "generation": 3}, "spec": spec,
    })
}

fn image() -> Value {
    json!({"repository": "r", "tag": "t"})
}

fn database() -> Value {
    json!({"host": "pg", "databaseName": "d", "credentials": {"user": "u", "secretName": "pg"}})
}

macro_rules! kinds {
    ($($name:ident: $module:ident, $kind:literal, $type:ty, $spec:expr;)*) => {$(
        #[test]
        fn $name() {
            let samples = samples();
            let observe = |value: &Value| {
                let object: $type = serde_json::from_value(value.clone()).unwrap();
                let plan = $module::plan(&object, &facts(), &Settings::default());
                sight(&object, &plan)
            };
            let case = Case { kind: $kind, base: object($kind, $spec), samples: &samples, observe };
            let dead = case.dead();
            assert!(dead.is_empty(), "{} fields without effect:\n{}", dead.len(), dead.join("\n"));
        }
    )*};
}

kinds! {
    every_field_of_a_customizer_does_something: customizer, "NemoCustomizer", capstan_api::nemo::NemoCustomizer, json!({
        "image": image(), "databaseConfig": database(), "datastore": {"endpoint": "http://d"},
        "entitystore": {"endpoint": "http://e"}, "mlflow": {"endpoint": "http://m"}, "wandb": {"secretName": "w"},
        "modelConfig": {"name": "maps"}, "nemoDatastoreTools": {"image": "i"},
        "modelDownloadJobs": {"image": "i", "ttlSecondsAfterFinished": 60, "pollIntervalSeconds": 15},
        "trainingConfig": {"image": image(), "modelPVC": {"name": "mine"}, "workspacePVC": {}},
    });
    every_field_of_a_datastore_does_something: datastore, "NemoDatastore", capstan_api::nemo::NemoDatastore, json!({
        "image": image(), "databaseConfig": database(),
        "secrets": {
            "giteaAdminSecret": "a", "lfsJwtSecret": "b", "datastoreInitSecret": "c", "datastoreConfigSecret": "d",
            "datastoreInlineConfigSecret": "e",
        },
    });
    every_field_of_an_entitystore_does_something: entitystore, "NemoEntitystore", capstan_api::nemo::NemoEntitystore, json!({
        "image": image(), "databaseConfig": database(), "datastore": {"endpoint": "http://d"},
    });
    every_field_of_an_evaluator_does_something: evaluator, "NemoEvaluator", capstan_api::nemo::NemoEvaluator, json!({
        "image": image(), "databaseConfig": database(), "datastore": {"endpoint": "http://d"},
        "entitystore": {"endpoint": "http://e"}, "vectorDB": {"endpoint": "http://v"}, "evaluationImages": {},
        "argoWorkflows": {"endpoint": "http://a", "serviceAccount": "s"},
    });
    every_field_of_a_guardrail_does_something: guardrail, "NemoGuardrail", capstan_api::nemo::NemoGuardrail, json!({
        "image": image(),
    });
}
