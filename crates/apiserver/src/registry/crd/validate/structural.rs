//! Structural schemas: every field has one type, declared in one place; value validations only restrict it.

use serde_json::Value;

use super::node::{flag, inner, list, properties, type_of};
use crate::error::Cause;
use crate::field::Path;
use crate::golang;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Why a schema is not structural, sorted.
pub(super) fn check(schema: &Value, path: &Path) -> Vec<Cause> {
    let mut causes = Vec::new();
    invariants(schema, Level::Root, path, &mut causes);
    complete(schema, schema, path, path, &mut causes);
    causes.sort_by_cached_key(|cause| format!("{}: {}", cause.field, cause.message));
    causes
}

fn invariants(schema: &Value, level: Level, path: &Path, causes: &mut Vec<Cause>) {
    let type_ = type_of(schema);
    match inner(schema, "items") {
        Some(items) => invariants(items, Level::Item, &path.child("items"), causes),
        None if type_ == "array" => causes.push(Cause::required(&path.child("items"), "must be specified")),
        None => {}
    }
    for (name, property) in properties(schema) {
        invariants(property, Level::Field, &path.child("properties").key(name), causes);
    }
    let additional = schema.get("additionalProperties");
    if additional.is_some() && level == Level::Root {
        causes.push(Cause::forbidden(&path.child("additionalProperties"), "must not be used at the root"));
    }
    if let Some(additional) = inner(schema, "additionalProperties") {
        invariants(additional, Level::Field, &path.child("additionalProperties"), causes);
    }
    extensions(schema, path, causes);
    let (either, first) = (is_either(list(schema, "anyOf")), list(schema, "allOf").first());
    let first_either = first.is_some_and(|first| is_either(list(first, "anyOf")));
    value_validation(schema, either, first_either, path, causes);
    typed(schema, level, path, causes);
    if flag(schema, "x-kubernetes-embedded-resource") && additional.is_some() {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        causes.push(Cause::forbidden(&path.child("additionalProperties"), detail));
    }
    metadata(schema, level, path, causes);
}

fn extensions(schema: &Value, path: &Path, causes: &mut Vec<Cause>) {
    for key in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        if flag(schema, "x-kubernetes-int-or-string") && flag(schema, key) {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            causes.push(Cause::invalid(&path.child(key), &true.into(), detail));
        }
    }
}

fn typed(schema: &Value, level: Level, path: &Path, causes: &mut Vec<Cause>) {
    let (type_, path) = (type_of(schema), path.child("type"));
    let free = flag(schema, "x-kubernetes-int-or-string") || flag(schema, "x-kubernetes-preserve-unknown-fields");
    if flag(schema, "x-kubernetes-embedded-resource") && type_ != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        causes.push(if type_.is_empty() {
            Cause::required(&path, detail)
        } else {
            Cause::invalid(&path, &type_.into(), detail)
        });
    } else if type_.is_empty() && !free {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        causes.push(Cause::required(&path, detail));
    }
    if level == Level::Root && !type_.is_empty() && type_ != "object" {
        causes.push(Cause::invalid(&path, &type_.into(), "must be object at the root"));
    }
}

/// Validates type and metadata of whole objects.
fn metadata(schema: &Value, level: Level, path: &Path, causes: &mut Vec<Cause>) {
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    let whole = level == Level::Root || embedded;
    let fields = path.child("properties");
    for name in ["kind", "apiVersion"] {
        if let Some(field) = schema["properties"].get(name).filter(|field| whole && type_of(field) != "string") {
            let path = fields.key(name).child("type");
            causes.push(Cause::invalid(&path, &type_of(field).into(), "must be string"));
        }
    }
    if let Some(metadata) = schema["properties"].get("metadata") {
        let path = fields.key("metadata");
        if whole && type_of(metadata) != "object" {
            causes.push(Cause::invalid(&path.child("type"), &type_of(metadata).into(), "must be object"));
        }
        if level == Level::Root && !only_names(metadata) {
            let detail =
                "must not specify anything other than name and generateName, but metadata is implicitly specified";
            causes.push(Cause::forbidden(&path, detail));
        }
    }
    if embedded && !flag(schema, "x-kubernetes-preserve-unknown-fields") && properties(schema).next().is_none() {
        let detail =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        causes.push(Cause::required(&path.child("properties"), detail));
    }
}

/// Whether metadata restricts only the name.
fn only_names(metadata: &Value) -> bool {
    let names = properties(metadata).all(|(name, _)| name == "name" || name == "generateName");
    let keys = metadata.as_object().into_iter().flatten().map(|(key, _)| key.as_str());
    names && keys.into_iter().all(|key| ["type", "properties", "default"].contains(&key))
}

/// `anyOf: [{type: integer}, {type: string}]`.
fn is_either(alternatives: &[Value]) -> bool {
    let is =
        |schema: &Value, type_: &str| schema.as_object().is_some_and(|it| it.len() == 1) && type_of(schema) == type_;
    matches!(alternatives, [one, other] if is(one, "integer") && is(other, "string"))
}

fn value_validation(schema: &Value, skip_any: bool, skip_first_any: bool, path: &Path, causes: &mut Vec<Cause>) {
    if !skip_any {
        for (index, one) in list(schema, "anyOf").iter().enumerate() {
            nested(one, false, &path.child("anyOf").index(index), causes);
        }
    }
    for (index, one) in list(schema, "allOf").iter().enumerate() {
        nested(one, skip_first_any && index == 0, &path.child("allOf").index(index), causes);
    }
    for (index, one) in list(schema, "oneOf").iter().enumerate() {
        nested(one, false, &path.child("oneOf").index(index), causes);
    }
    if let Some(not) = inner(schema, "not") {
        nested(not, false, &path.child("not"), causes);
    }
    if let Some(pattern) = schema["pattern"].as_str().filter(|pattern| !pattern.is_empty())
        && let Err(error) = golang::regex(pattern)
    {
        let detail = format!("must be a valid regular expression, but isn't: {}", golang::regex_error(pattern, &error));
        causes.push(Cause::invalid(&path.child("pattern"), &pattern.into(), &detail));
    }
}

/// A value validation: it may restrict values, but not declare structure.
fn nested(schema: &Value, skip_any: bool, path: &Path, causes: &mut Vec<Cause>) {
    value_validation(schema, skip_any, false, path, causes);
    if let Some(items) = inner(schema, "items") {
        nested(items, false, &path.child("items"), causes);
    }
    for (name, property) in properties(schema) {
        nested(property, false, &path.child("properties").key(name), causes);
    }
    let mut forbid = |key: &str, detail: &str| causes.push(Cause::forbidden(&path.child(key), detail));
    for (key, detail) in [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ] {
        if schema.get(key).is_some_and(|value| value != "" && *value != Value::Null) {
            forbid(key, detail);
        }
    }
    for key in [
        "nullable",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
    ] {
        if flag(schema, key) {
            forbid(key, "must be false to be structural");
        }
    }
    if schema["properties"].get("metadata").is_some() {
        let path = path.child("properties").key("metadata");
        causes.push(Cause::forbidden(&path, "must not be specified in a nested context"));
    }
}

/// Every field in a value validation must be declared in the structural part.
fn complete(values: &Value, structure: &Value, at: &Path, from: &Path, causes: &mut Vec<Cause>) {
    if let Some(not) = inner(values, "not") {
        complete_nested(not, Some(structure), at, &from.child("not"), causes);
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        for (index, one) in list(values, key).iter().enumerate() {
            complete_nested(one, Some(structure), at, &from.child(key).index(index), causes);
        }
    }
}

fn complete_nested(values: &Value, structure: Option<&Value>, at: &Path, from: &Path, causes: &mut Vec<Cause>) {
    let Some(structure) = structure else {
        return causes.push(Cause::required(at, &format!("because it is defined in {from}")));
    };
    complete(values, structure, at, from, causes);
    if let Some(items) = inner(values, "items") {
        complete_nested(items, inner(structure, "items"), &at.child("items"), &from.child("items"), causes);
    }
    for (name, property) in properties(values) {
        let (at, from) = (at.child("properties").key(name), from.child("properties").key(name));
        complete_nested(property, structure["properties"].get(name), &at, &from, causes);
    }
}
