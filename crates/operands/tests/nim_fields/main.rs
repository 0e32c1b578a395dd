//! Every field of the NIM kinds does something that a user can see.
//!
//! For each field of the generated schema two objects are planned that differ in this field only. Their plans or what
//! admission says must differ, or the user must be told that the field has no effect. What `capstan_api::ignored` lists
//! is told anyway. A refusal counts only for the few fields that are meant to be refused: elsewhere it would hide a field
//! without effect behind a bad value of this test.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod build;
mod cache;
mod pipeline;
mod service;
mod walk;

use std::sync::Arc;

use capstan_api::ignored;
use capstan_plan::{Facts, Gvk, Plan, Ref, ServerVersion};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use walk::{Leaf, Samples, leaves};

/// What can be seen of an object.
#[derive(Clone, Debug, Default, PartialEq)]
struct Observation {
    /// Objects, status and questions.
    plan: Value,
    /// What admission refuses, and what it warns of.
    refused: Vec<String>,
    warned: Vec<String>,
    /// Whether there is no plan.
    stopped: bool,
}

impl Observation {
    fn of<S: Serialize>(plan: &Plan<S>, refused: Vec<String>, warned: Vec<String>) -> Self {
        let objects: Vec<&Value> = plan.objects.iter().flatten().map(|object| &object.body).collect();
        let mut shown = json!({"objects": objects, "status": plan.status, "questions": format!("{:?}", plan.queries)});
        forget(&mut shown);
        Self { plan: shown, refused, warned, stopped: plan.objects.is_none() }
    }

    /// Why there is no plan.
    fn why(&self) -> String {
        let conditions = self.plan["status"]["conditions"].as_array().into_iter().flatten();
        let failed =
            conditions.filter(|one| one["type"].as_str().is_some_and(|type_| type_.to_lowercase().contains("failed")));
        failed.filter_map(|one| one["message"].as_str()).chain(self.refused.iter().map(String::as_str)).collect()
    }

    /// What the user is told about fields without effect.
    fn told(&self) -> String {
        let conditions = self.plan["status"]["conditions"].as_array().into_iter().flatten();
        let about = conditions.filter(|one| one["type"] == "IgnoredFields" || one["type"] == "InvalidFields");
        about.map(|one| one["message"].to_string()).collect()
    }
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

/// A path, and what must be there for fields below it to matter.
type Context = (&'static str, fn(&mut Value));

/// How one kind is looked at, in one of its settings.
struct Case<'a> {
    kind: &'static str,
    setting: &'static str,
    /// An object without the field.
    base: Value,
    /// What must be there for fields below a path to matter.
    contexts: &'a [Context],
    samples: Samples<'a>,
    /// Paths of fields that are refused in this setting.
    refused: &'a [&'static str],
    /// Paths of fields that the schema admits in another setting only.
    elsewhere: &'a [&'static str],
    observe: &'a dyn Fn(&Value) -> Observation,
}

impl Case<'_> {
    /// Fields without effect.
    fn dead(&self) -> Vec<String> {
        let kind = capstan_api::kinds().find(|one| one.kind == self.kind).unwrap();
        let root = kind.described();
        let fields = leaves(&root["properties"]["spec"], &["spec".into()]);
        let fields: Vec<&Leaf> = fields.iter().filter(|leaf| !self.is_passed(leaf)).collect();
        let dead: Vec<String> = fields.iter().filter_map(|leaf| self.fault(leaf, &root)).collect();
        println!("{} {}: {} fields, {} without effect", self.kind, self.setting, fields.len(), dead.len());
        dead
    }

    fn is_passed(&self, leaf: &Leaf) -> bool {
        ignored::is_ignored(self.kind, &leaf.path()) || self.elsewhere.iter().any(|path| leaf.is_below(path))
    }

    fn fault(&self, leaf: &Leaf, root: &Value) -> Option<String> {
        let mut base = self.base.clone();
        for (_, set) in self.contexts.iter().filter(|(path, _)| leaf.is_below(path)) {
            set(&mut base);
        }
        let without = leaf.surrounded(&base, root, self.samples);
        let before = (self.observe)(&without);
        let refusable = self.refused.iter().any(|path| leaf.is_below(path));
        if !refusable && (before.stopped || !before.refused.is_empty()) {
            return Some(format!("{}: refused without the field: {}", leaf.path(), before.why()));
        }
        let mut why = "no effect".to_owned();
        for value in leaf.candidates(&without, self.samples) {
            let after = (self.observe)(&leaf.with(&base, value.clone(), root, self.samples));
            let refused = after.stopped || !after.refused.is_empty();
            if refused && !refusable {
                why = format!("{value} is refused: {}", after.why());
                continue;
            }
            if refused || after != before || names_it(&after.told(), &leaf.path()) {
                return None;
            }
        }
        Some(format!("{}: {why}", leaf.path()))
    }
}

/// Whether `text` names the field at `path` or one above it.
fn names_it(text: &str, path: &str) -> bool {
    let mut path = path;
    while let Some((above, _)) = path.rsplit_once('.') {
        let named = text.match_indices(path).any(|(at, _)| {
            let next = text[at + path.len()..].chars().next();
            next.is_none_or(|next| !next.is_alphanumeric() && next != '.')
        });
        if named {
            return true;
        }
        path = above;
    }
    false
}

/// Fails with the fields of `cases` that have no effect.
fn assert_alive(cases: &[Case<'_>]) {
    let dead: Vec<String> = cases
        .iter()
        .flat_map(|case| case.dead().into_iter().map(|fault| format!("{} ({}) {fault}", case.kind, case.setting)))
        .collect();
    assert!(dead.is_empty(), "{} fields without effect:\n{}", dead.len(), dead.join("\n"));
}

/// Facts with these live objects, in a cluster that serves their kinds.
fn facts(objects: impl IntoIterator<Item = Value>, served: &[Gvk]) -> Facts {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let mut facts = Facts { server: ServerVersion::parse("v1.37.1"), ..Facts::at(now) };
    facts.served.extend(served.iter().cloned());
    for object in objects {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let version = text(&object["apiVersion"]);
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        let gvk = Gvk {
            group: group.to_owned().into(),
            version: version.to_owned().into(),
            kind: text(&object["kind"]).into(),
        };
        let (namespace, name) = (text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
        facts.live.insert(Ref { gvk, namespace, name }, Arc::new(object));
    }
    facts
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "apps.nvidia.com/v1alpha1", "kind": kind,
        "metadata": {"name": name, "namespace": "nim", "uid": format!("u-{name}"), "generation": 3},
        "spec": spec,
    })
}

/// A manifest with profiles that differ in every tag by which caches choose.
const MANIFEST: &str = r#"
schema_version: "2.0"
profile_selection_criteria: x
profiles:
- {id: p1, tags: {precision: fp8, tp: "1", profile: latency, feat_lora: "false", llm_engine: tensorrt_llm, gpu: L40S, gpu_device: "26b5:10de", trtllm_buildable: "true"}}
- {id: p2, tags: {precision: bf16, tp: "2", profile: throughput, feat_lora: "true", llm_engine: vllm, gpu: A10G, gpu_device: "2237:10de", trtllm_buildable: "false"}}
- {id: p3, tags: {precision: bf16, tp: "4", profile: throughput, feat_lora: "false", llm_engine: vllm, gpu: L40S, gpu_device: "26b9:10de", trtllm_buildable: "false"}}
"#;

/// A cache that is ready, with profiles of which two can be built.
fn ready_cache() -> Value {
    let mut cache = object(
        "NIMCache",
        "models",
        json!({
            "source": {"ngc": {"authSecret": "ngc", "modelPuller": "nvcr.io/nim/meta/llama3:1.0"}},
            "storage": {"pvc": {"subPath": "llama"}},
        }),
    );
    cache["status"] = json!({"state": "Ready", "pvc": "models-pvc", "profiles": [
        {"name": "p1", "config": {"tp": "1", "trtllm_buildable": "true"}},
        {"name": "p2", "config": {"tp": "2", "trtllm_buildable": "true"}},
    ]});
    cache
}
