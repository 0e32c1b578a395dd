//! Kubernetes types as structural schemas, the form that a CustomResourceDefinition requires.
//!
//! [`of`] turns any `JsonSchema` type into one inline schema without `$ref`, `nullable` or `oneOf`. Kubernetes' types
//! come from k8s-openapi, which has their fields but not their list types, map keys, defaults and patterns: [`builtin`]
//! adds those from one table. [`definitions`] are the Kubernetes types themselves, with `$ref` kept. Pure.

mod builtin;
mod definitions;
mod kubernetes;

pub use definitions::{REFERENCE, definition, definitions};
pub use kubernetes::{Absent, absent};

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// Whether the names of embedded Kubernetes types are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Types {
    /// A plain structural schema.
    Anonymous,
    /// The same, with `x-type` on each embedded Kubernetes type: for docs and for tests of the table.
    Named,
}

/// Inline structural schema of `T`.
pub fn of<T: JsonSchema>(types: Types) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.meta_schema = None);
    let mut root = SchemaGenerator::new(settings).into_root_schema_for::<T>().to_value();
    let definitions = match root.as_object_mut().and_then(|root| root.remove("$defs")) {
        Some(Value::Object(definitions)) => definitions,
        _ => Map::new(),
    };
    let root = Inliner { definitions, types }.structural(root);
    debug_assert!(root.is_object(), "a schema is an object");
    root
}

struct Inliner {
    definitions: Map<String, Value>,
    types: Types,
}

impl Inliner {
    /// Inlines references and removes `null` alternatives and JSON Schema features that Kubernetes rejects.
    fn structural(&self, schema: Value) -> Value {
        let Value::Object(mut schema) = schema else {
            // `true` accepts any value.
            return json!({"x-kubernetes-preserve-unknown-fields": true});
        };
        for key in ["title", "nullable"] {
            schema.remove(key);
        }
        if let Some(Value::String(reference)) = schema.remove("$ref") {
            let name = reference.rsplit('/').next().unwrap_or_default().to_owned();
            return overlay(self.definition(&name), schema);
        }
        if let Some(one) = only_alternative(&mut schema) {
            return overlay(self.structural(one), schema);
        }
        if let Some(Value::Array(types)) = schema.get("type") {
            let first = types.iter().find(|name| *name != "null").cloned();
            schema.insert("type".into(), first.unwrap_or_default());
        }
        if schema.get("default") == Some(&Value::Null) {
            schema.remove("default");
        }
        flatten_enum(&mut schema);
        for key in ["properties", "patternProperties"] {
            if let Some(Value::Object(properties)) = schema.get_mut(key) {
                for property in properties.values_mut() {
                    *property = self.structural(property.take());
                }
            }
        }
        for key in ["items", "additionalProperties"] {
            if let Some(inner) = schema.get_mut(key).filter(|inner| **inner != Value::Bool(false)) {
                *inner = self.structural(inner.take());
            }
        }
        // `additionalProperties: false` is implied in a structural schema.
        if schema.get("additionalProperties") == Some(&Value::Bool(false)) {
            schema.remove("additionalProperties");
        }
        Value::Object(schema)
    }

    fn definition(&self, name: &str) -> Value {
        let raw = self.definitions.get(name).cloned().unwrap_or(Value::Bool(true));
        if !name.starts_with(builtin::PREFIX) {
            return self.structural(raw);
        }
        let mut schema = self.structural(builtin::replacement(name).unwrap_or(raw));
        builtin::complete(name, &mut schema);
        if self.types == Types::Named {
            schema["x-type"] = name.into();
        }
        schema
    }
}

/// Sets the keys of `over` on `schema`: keywords beside a `$ref` describe the field and take precedence.
fn overlay(mut schema: Value, over: Map<String, Value>) -> Value {
    if let Some(schema) = schema.as_object_mut() {
        schema.extend(over.into_iter().filter(|(key, value)| !(key == "default" && value.is_null())));
    }
    schema
}

/// The only alternative of `anyOf` or `allOf` that is not null: how schemars writes `Option`.
fn only_alternative(schema: &mut Map<String, Value>) -> Option<Value> {
    for key in ["anyOf", "allOf", "oneOf"] {
        let Some(Value::Array(alternatives)) = schema.get(key) else { continue };
        let mut others = alternatives.iter().filter(|alternative| alternative["type"] != "null");
        if let (Some(one), None) = (others.next(), others.next()) {
            let one = one.clone();
            schema.remove(key);
            return Some(one);
        }
    }
    None
}

/// schemars writes an enum whose variants have docs as `oneOf` of constants (plus one `enum` of those without docs).
fn flatten_enum(schema: &mut Map<String, Value>) {
    if let Some(Value::Array(variants)) = schema.get("oneOf") {
        let values: Option<Vec<Vec<Value>>> = variants
            .iter()
            .map(|variant| match (variant.get("const"), variant.get("enum")) {
                (Some(value), _) => Some(vec![value.clone()]),
                (None, Some(Value::Array(values))) => Some(values.clone()),
                _ => None,
            })
            .collect();
        if let Some(values) = values {
            schema.remove("oneOf");
            schema.insert("type".into(), "string".into());
            schema.insert("enum".into(), values.concat().into());
        }
    }
    if let Some(value) = schema.remove("const") {
        schema.insert("enum".into(), json!([value]));
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
}
