//! Compiles OpenAPI JSON to [`Schema`] nodes. It never fails: unknown keywords are ignored, as CRDs are validated
//! elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::checks::Checks;
use super::{Child, ListType, PatchList, Schema, Type, builtin};

/// The schema of a CRD version (`openAPIV3Schema`).
pub fn compile(source: &Value) -> Schema {
    let mut schema = node(source, compile);
    if let Some(map) = source.as_object() {
        schema.checks = Checks::compile(map, compile);
    }
    schema
}

/// Compiles a Kubernetes definition, whose `$ref`s are resolved lazily and whose values are validated in code.
pub(super) fn definition(name: &str, source: &Value) -> Schema {
    let mut schema = anonymous(source);
    schema.name = name.into();
    schema.absent =
        schema.properties.keys().map(|field| (field.clone(), capstan_schema::absent(name, field))).collect();
    schema
}

fn anonymous(source: &Value) -> Schema {
    node(source, anonymous)
}

fn node(source: &Value, inner: fn(&Value) -> Schema) -> Schema {
    let empty = Map::new();
    let map = source.as_object().unwrap_or(&empty);
    let child = |source: &Value| child(source, inner);
    let flag = |key: &str| map.get(key).and_then(Value::as_bool).unwrap_or(false);
    Schema {
        name: "".into(),
        absent: BTreeMap::new(),
        type_: type_of(map),
        properties: properties(map, child),
        required: strings(map.get("required")),
        additional: map.get("additionalProperties").and_then(|value| match value {
            // Any value, but without fields: they are pruned.
            Value::Bool(true) => Some(Child::Inline(Arc::new(Schema { nullable: true, ..Schema::default() }))),
            Value::Object(_) => Some(child(value)),
            _ => None,
        }),
        items: map.get("items").filter(|value| value.is_object()).map(child),
        list: list_type(map),
        atomic_map: map.get("x-kubernetes-map-type").is_some_and(|value| value == "atomic"),
        preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
        embedded_resource: flag("x-kubernetes-embedded-resource"),
        nullable: flag("nullable"),
        default: map.get("default").filter(|value| !value.is_null()).cloned(),
        patch: patch(map),
        checks: None,
        source: Arc::new(own(map)),
    }
}

fn child(source: &Value, inner: fn(&Value) -> Schema) -> Child {
    let Some(name) = reference(source) else { return Child::Inline(Arc::new(inner(source))) };
    // Keywords beside a `$ref` apply to the field. Descriptions are for documents only.
    let over: Map<String, Value> = match source {
        Value::Object(map) => map.iter().filter(|(key, _)| MEANINGFUL.contains(&key.as_str())),
        _ => return Child::named(name),
    }
    .map(|(key, value)| (key.clone(), value.clone()))
    .collect();
    if over.is_empty() {
        return Child::named(name);
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

/// Keywords beside a `$ref` that are kept.
const MEANINGFUL: &[&str] = &["default", "x-kubernetes-map-type", "x-kubernetes-patch-strategy"];

fn reference(source: &Value) -> Option<&str> {
    source.get("$ref")?.as_str()?.strip_prefix(capstan_schema::REFERENCE)
}

fn type_of(map: &Map<String, Value>) -> Type {
    // Kubernetes' documents declare int-or-string and quantities as `oneOf` types.
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

fn properties(map: &Map<String, Value>, child: impl Fn(&Value) -> Child) -> BTreeMap<String, Child> {
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
        replace: strategy.split(',').any(|word| word == "replace"),
    }
}

fn strings(value: Option<&Value>) -> Vec<String> {
    let Some(Value::Array(items)) = value else { return Vec::new() };
    items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The node's own keywords: its source without children.
fn own(map: &Map<String, Value>) -> Value {
    let own = map.iter().filter(|(key, _)| !["properties", "items", "additionalProperties"].contains(&key.as_str()));
    Value::Object(own.map(|(key, value)| (key.clone(), value.clone())).collect())
}
