//! The OpenAPI v2 document: the same schemas and paths as in v3, converted.

use capstan_schema::REFERENCE;
use serde_json::{Map, Value, json};

use super::super::api::Inner;
use super::super::non_resource::MINOR;
use super::{paths, schemas};
use crate::registry::Snapshot;

const DEFINITIONS: &str = "#/definitions/";

/// The whole document.
pub(super) fn document(inner: &Inner, snapshot: &Snapshot) -> Value {
    let mut schemas_used = schemas::SchemaSet::default();
    let mut all = Map::new();
    for resource in snapshot.iter() {
        let name = schemas_used.add(inner, resource);
        paths::add(&mut all, resource, &name);
    }
    let definitions: Map<String, Value> =
        schemas_used.finish().into_iter().map(|(name, schema)| (name, older(schema))).collect();
    let paths: Map<String, Value> = all.into_iter().map(|(path, item)| (path, older_path(item))).collect();
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": format!("v1.{MINOR}.0")},
        "paths": paths,
        "definitions": definitions,
        "securityDefinitions": {"BearerToken": {
            "description": "Bearer Token authentication", "in": "header", "name": "authorization", "type": "apiKey",
        }},
        "security": [{"BearerToken": []}],
    })
}

/// Converts a schema to v2.
fn older(schema: Value) -> Value {
    let Value::Object(mut schema) = schema else { return schema };
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix(REFERENCE)) {
        let target = format!("{DEFINITIONS}{reference}");
        schema.insert("$ref".into(), target.into());
    }
    // v3 wraps a reference with a description into `allOf`; v2 has both side by side.
    if let Some(Value::Array(parts)) = schema.remove("allOf") {
        for part in parts {
            if let Value::Object(part) = older(part) {
                schema.extend(part);
            }
        }
    }
    if schema.remove("oneOf").is_some() || schema.remove("anyOf").is_some() {
        schema.entry("type").or_insert_with(|| "string".into());
    }
    for key in ["not", "nullable"] {
        schema.remove(key);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = schema.remove(key) {
            schema.insert(key.into(), older(inner));
        }
    }
    if let Some(Value::Object(properties)) = schema.remove("properties") {
        let properties: Map<String, Value> =
            properties.into_iter().map(|(name, property)| (name, older(property))).collect();
        schema.insert("properties".into(), properties.into());
    }
    schema.into()
}

fn older_path(item: Value) -> Value {
    let Value::Object(item) = item else { return item };
    let methods = item.into_iter().map(|(method, operation)| match operation {
        Value::Object(operation) => (method, older_operation(operation)),
        Value::Array(parameters) => (method, parameters.into_iter().map(older_parameter).collect()),
        other => (method, other),
    });
    Value::Object(methods.collect())
}

fn older_operation(mut operation: Map<String, Value>) -> Value {
    let mut parameters: Vec<Value> = match operation.remove("parameters") {
        Some(Value::Array(parameters)) => parameters.into_iter().map(older_parameter).collect(),
        _ => Vec::new(),
    };
    if let Some(body) = operation.remove("requestBody") {
        let content = body["content"].as_object().cloned().unwrap_or_default();
        let schema = content.values().next().map(|form| older(form["schema"].clone())).unwrap_or_default();
        operation.insert("consumes".into(), content.keys().cloned().collect());
        parameters.push(json!({"name": "body", "in": "body", "required": true, "schema": schema}));
    }
    operation.insert("parameters".into(), parameters.into());
    if let Some(Value::Object(responses)) = operation.get_mut("responses") {
        for response in responses.values_mut().filter_map(Value::as_object_mut) {
            if let Some(content) = response.remove("content") {
                response.insert("schema".into(), older(content["application/json"]["schema"].clone()));
            }
        }
    }
    operation.into()
}

fn older_parameter(mut parameter: Value) -> Value {
    if let Some(Value::Object(schema)) = parameter.as_object_mut().and_then(|parameter| parameter.remove("schema")) {
        for (key, value) in schema {
            parameter[key] = value;
        }
    }
    parameter
}
