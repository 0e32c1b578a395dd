//! From OpenAPI JSON to [`Schema`] nodes. It never fails: what it does not know is left out, and whether a CRD may say
//! it is checked elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Child, ListType, PatchList, Schema, Type, builtin};

/// The schema of a CRD version (`openAPIV3Schema`).
pub fn compile(source: &Value) -> Schema {
    node(source)
}

/// A definition of Kubernetes, whose references stay names.
pub(super) fn definition(source: &Value) -> Schema {
    node(source)
}

fn node(source: &Value) -> Schema {
    let empty = Map::new();
    let map = source.as_object().unwrap_or(&empty);
    let flag = |key: &str| map.get(key).and_then(Value::as_bool).unwrap_or(false);
    let schema = Schema {
        type_: type_of(map),
        properties: properties(map),
        required: strings(map.get("required")),
        additional: map.get("additionalProperties").filter(|value| value.is_object()).map(child),
        items: map.get("items").filter(|value| value.is_object()).map(child),
        list: list_type(map),
        atomic_map: map.get("x-kubernetes-map-type").is_some_and(|value| value == "atomic"),
        preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
        embedded_resource: flag("x-kubernetes-embedded-resource"),
        nullable: flag("nullable"),
        default: map.get("default").filter(|value| !value.is_null()).cloned(),
        patch: patch(map),
        source: Arc::new(own(map)),
    };
    debug_assert!(schema.items.is_none() || schema.properties.is_empty(), "a node is a list or a struct");
    schema
}

fn child(source: &Value) -> Child {
    let Some(name) = reference(source) else { return Child::Inline(Arc::new(node(source))) };
    // What stands beside a reference is about the field. Descriptions are for documents only.
    let over: Map<String, Value> = match source {
        Value::Object(map) => map.iter().filter(|(key, _)| MEANINGFUL.contains(&key.as_str())),
        _ => return Child::Named(name.into()),
    }
    .map(|(key, value)| (key.clone(), value.clone()))
    .collect();
    if over.is_empty() {
        return Child::Named(name.into());
    }
    let mut schema = builtin::named(name).clone();
    if let Some(default) = over.get("default") {
        schema.default = Some(default.clone());
    }
    if let Some(how) = over.get("x-kubernetes-map-type") {
        schema.atomic_map = how == "atomic";
    }
    schema.patch = patch(&over);
    Child::Inline(Arc::new(schema))
}

/// Keys beside a reference that change what the node means.
const MEANINGFUL: &[&str] = &["default", "x-kubernetes-map-type", "x-kubernetes-patch-strategy"];

fn reference(source: &Value) -> Option<&str> {
    source.get("$ref")?.as_str()?.strip_prefix(capstan_schema::REFERENCE)
}

fn type_of(map: &Map<String, Value>) -> Type {
    // Kubernetes' own documents write an integer or string, and a quantity, as an alternative of types.
    let alternative = map.get("type").is_none() && map.get("oneOf").is_some_and(|one_of| one_of[1]["type"].is_string());
    if alternative || map.get("x-kubernetes-int-or-string").is_some_and(|value| value == true) {
        return Type::IntOrString;
    }
    match map.get("type").and_then(Value::as_str) {
        Some("object") => Type::Object,
        Some("array") => Type::Array,
        Some("string") => Type::String,
        Some("integer") => Type::Integer,
        Some("number") => Type::Number,
        Some("boolean") => Type::Boolean,
        _ => Type::Any,
    }
}

fn properties(map: &Map<String, Value>) -> BTreeMap<String, Child> {
    let Some(Value::Object(properties)) = map.get("properties") else { return BTreeMap::new() };
    properties.iter().map(|(name, source)| (name.clone(), child(source))).collect()
}

fn list_type(map: &Map<String, Value>) -> ListType {
    match map.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(strings(map.get("x-kubernetes-list-map-keys"))),
        _ => ListType::Atomic,
    }
}

fn patch(map: &Map<String, Value>) -> PatchList {
    let strategy = map.get("x-kubernetes-patch-strategy").and_then(Value::as_str).unwrap_or_default();
    PatchList {
        merge_key: map.get("x-kubernetes-patch-merge-key").and_then(Value::as_str).map(str::to_owned),
        retain_keys: strategy.split(',').any(|word| word == "retainKeys"),
        merge: strategy.split(',').any(|word| word == "merge"),
    }
}

fn strings(value: Option<&Value>) -> Vec<String> {
    let Some(Value::Array(items)) = value else { return Vec::new() };
    items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// What the node says about itself: its source without its children.
fn own(map: &Map<String, Value>) -> Value {
    let own = map.iter().filter(|(key, _)| !["properties", "items", "additionalProperties"].contains(&key.as_str()));
    Value::Object(own.map(|(key, value)| (key.clone(), value.clone())).collect())
}
