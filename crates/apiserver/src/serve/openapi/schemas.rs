//! The schemas of a document: those of its kinds, and all that they reference.

use std::collections::BTreeSet;

use capstan_schema::REFERENCE;
use serde_json::{Map, Value, json};

use super::super::api::Inner;
use crate::registry::Resource;
use crate::registry::builtin::definition_name;
use crate::store::TableKey;

pub(super) const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// Requested schemas, and those that they reference.
#[derive(Default)]
pub(super) struct SchemaSet {
    schemas: Map<String, Value>,
    missing: BTreeSet<String>,
}

impl SchemaSet {
    /// Adds the kind of a resource, its list and the kinds of its subresources. Returns the name of the kind's schema.
    pub(super) fn add(&mut self, inner: &Inner, resource: &Resource) -> String {
        let name = match resource.custom() {
            None => definition_name(&resource.group, &resource.version, &resource.kind),
            Some(_) => self.add_custom(inner, resource),
        };
        self.need(&name);
        self.need(&format!("{name}List"));
        for common in ["DeleteOptions", "Status", "ObjectMeta", "ListMeta"] {
            self.need(&format!("{META}.{common}"));
        }
        for sub in &resource.subresources {
            if let (Some(kind), Some((group, version))) = (sub.kind, sub.group_version) {
                self.need(&definition_name(group, version, kind));
            }
        }
        name
    }

    fn need(&mut self, name: &str) {
        if !self.schemas.contains_key(name) {
            self.missing.insert(name.to_owned());
        }
    }

    /// The schemas by name.
    pub(super) fn finish(mut self) -> Map<String, Value> {
        while let Some(name) = self.missing.pop_first() {
            let Some(definition) = capstan_schema::definition(&name) else { continue };
            let mut definition = definition.clone();
            self.refer(&definition);
            beside(&mut definition);
            self.schemas.insert(name, definition);
        }
        self.schemas
    }

    /// Adds the references of a schema.
    fn refer(&mut self, schema: &Value) {
        match schema {
            Value::Object(members) => {
                if let Some(name) = members.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix(REFERENCE))
                {
                    self.need(name);
                }
                members.values().for_each(|member| self.refer(member));
            }
            Value::Array(items) => items.iter().for_each(|item| self.refer(item)),
            _ => {}
        }
    }

    /// Adds the schema of a custom resource, with `apiVersion`, `kind` and `metadata`.
    fn add_custom(&mut self, inner: &Inner, resource: &Resource) -> String {
        let name = custom_name(&resource.group, &resource.version, &resource.kind);
        let list_name = format!("{name}List");
        let reference = |name: &str| json!({"$ref": format!("{REFERENCE}{name}")});
        let kind_of = |kind: &str| json!([{"group": &*resource.group, "kind": kind, "version": &*resource.version}]);
        let mut schema = openapi_schema(inner, resource);
        complete(&mut schema);
        schema["x-kubernetes-group-version-kind"] = kind_of(&resource.kind);
        self.refer(&schema);
        self.schemas.insert(name.clone(), schema);
        let mut list = json!({
            "description": format!("{} is a list of {}", resource.list_kind, resource.kind),
            "type": "object",
            "required": ["items"],
            "properties": {
                "items": {
                    "description": format!(
                        "List of {}. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md",
                        resource.plural
                    ),
                    "type": "array",
                    "items": reference(&name),
                },
                "metadata": reference(&format!("{META}.ListMeta")),
            },
            "x-kubernetes-group-version-kind": kind_of(&resource.list_kind),
        });
        types(&mut list);
        self.refer(&list);
        self.schemas.insert(list_name, list);
        name
    }
}

/// Wraps references that have sibling keywords into `allOf`: siblings of a plain `$ref` are ignored.
fn beside(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.values_mut().for_each(beside);
            if members.len() > 1
                && let Some(reference) = members.remove("$ref")
            {
                members.insert("allOf".into(), json!([{"$ref": reference}]));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(beside),
        _ => {}
    }
}

/// `com.example.stable.v1.CronTab`: with the group reversed, as in package names.
fn custom_name(group: &str, version: &str, kind: &str) -> String {
    let mut parts: Vec<&str> = group.split('.').rev().collect();
    parts.extend([version, kind]);
    parts.join(".")
}

/// The schema of a version as the CRD declares it.
fn openapi_schema(inner: &Inner, resource: &Resource) -> Value {
    let table = TableKey::new("apiextensions.k8s.io", "customresourcedefinitions");
    let name = format!("{}.{}", resource.plural, resource.group);
    let crd = inner.server.store().get(&table, "", &name).map(|crd| crd.value()).unwrap_or_default();
    let mut versions = crd["spec"]["versions"].as_array().into_iter().flatten();
    let found = versions.find(|version| version["name"] == *resource.version);
    let schema = found.map(|version| version["schema"]["openAPIV3Schema"].clone()).unwrap_or_default();
    if schema.is_object() { schema } else { json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}) }
}

/// Adds `apiVersion`, `kind` and `metadata` to a schema.
fn complete(schema: &mut Value) {
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true))
        && schema.get("properties").is_none()
    {
        return;
    }
    types(schema);
    schema["properties"]["metadata"] = json!({
        "description": "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata",
        "allOf": [{"$ref": format!("{REFERENCE}{META}.ObjectMeta")}],
    });
}

fn types(schema: &mut Value) {
    for field in ["apiVersion", "kind"] {
        let name = format!("{META}.APIGroup");
        let described = capstan_schema::definition(&name).map(|definition| definition["properties"][field].clone());
        schema["properties"][field] = described.filter(Value::is_object).unwrap_or_else(|| json!({"type": "string"}));
    }
}
