//! Embedded resources (`x-kubernetes-embedded-resource`): validation of their type and metadata.

use serde_json::Value;

use super::{Schema, decode, definition};
use crate::error::Cause;
use crate::field::Path;
use capstan_semantics::names;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Normalizes type and metadata of embedded resources; returns the paths of unknown metadata fields.
pub fn coerce(schema: &Schema, value: &mut Value) -> Result<Vec<String>, Cause> {
    let mut unknown = Vec::new();
    walk_mut(schema, value, &Path::root(), &mut unknown)?;
    unknown.sort();
    Ok(unknown)
}

fn walk_mut(schema: &Schema, value: &mut Value, path: &Path, unknown: &mut Vec<String>) -> Result<(), Cause> {
    match value {
        Value::Object(fields) => {
            if schema.embedded_resource {
                for name in ["apiVersion", "kind"] {
                    if let Some(value) = fields.get(name).filter(|value| !value.is_string()) {
                        return Err(Cause::invalid(&path.child(name), value, "must be a string"));
                    }
                }
                if let Some(metadata) = fields.get_mut("metadata") {
                    let path = path.child("metadata");
                    let found = coerce_metadata(metadata).map_err(|error| Cause::invalid(&path, metadata, &error))?;
                    unknown.extend(found.into_iter().map(|field| format!("{path}.{field}")));
                }
            }
            for (name, value) in fields {
                if let Some(child) = schema.property(name) {
                    walk_mut(child, value, &path.child(name), unknown)?;
                } else if let Some(child) = schema.additional() {
                    walk_mut(child, value, &path.key(name), unknown)?;
                }
            }
        }
        Value::Array(items) => {
            let Some(child) = schema.items() else { return Ok(()) };
            for (index, item) in items.iter_mut().enumerate() {
                walk_mut(child, item, &path.index(index), unknown)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Decodes metadata as Kubernetes does; removes unknown fields and returns their paths.
pub fn coerce_metadata(metadata: &mut Value) -> Result<Vec<String>, String> {
    let schema = definition(OBJECT_META).expect("metadata is a built-in type");
    decode::typed(schema, metadata)
}

/// Validates embedded resources.
pub fn check(schema: &Schema, value: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    walk(schema, value, &Path::root(), &mut causes);
    causes
}

fn walk(schema: &Schema, value: &Value, path: &Path, causes: &mut Vec<Cause>) {
    match value {
        Value::Object(fields) => {
            if schema.embedded_resource {
                causes.extend(check_one(value, path));
            }
            for (name, value) in fields {
                if let Some(child) = schema.property(name) {
                    walk(child, value, &path.child(name), causes);
                } else if let Some(child) = schema.additional() {
                    walk(child, value, &path.key(name), causes);
                }
            }
        }
        Value::Array(items) => {
            let Some(child) = schema.items() else { return };
            for (index, item) in items.iter().enumerate() {
                walk(child, item, &path.index(index), causes);
            }
        }
        _ => {}
    }
}

fn check_one(object: &Value, path: &Path) -> Vec<Cause> {
    let mut causes = Vec::new();
    for name in ["apiVersion", "kind"] {
        let path = path.child(name);
        match object.get(name) {
            None => causes.push(Cause::required(&path, "")),
            Some(Value::String(text)) if text.is_empty() => {
                causes.push(Cause::invalid(&path, &"".into(), "must not be empty"));
            }
            Some(Value::String(text)) => causes.extend(type_fault(name, text, &path)),
            Some(other) => causes.push(Cause::invalid(&path, other, "must be a string")),
        }
    }
    if let Some(metadata) = object.get("metadata") {
        causes.extend(check_metadata(metadata, &path.child("metadata")));
    }
    causes
}

fn type_fault(name: &str, text: &str, path: &Path) -> Option<Cause> {
    if name == "apiVersion" {
        let detail = format!("unexpected GroupVersion string: {text}");
        return (text.matches('/').count() > 1).then(|| Cause::invalid(path, &text.into(), &detail));
    }
    let faults = names::dns_1035_label(&text.to_lowercase());
    let detail = format!("may have mixed case, but should otherwise match: {}", faults.join(","));
    (!faults.is_empty()).then(|| Cause::invalid(path, &text.into(), &detail))
}

/// Validates the metadata of an embedded resource, which need not have a name.
fn check_metadata(metadata: &Value, path: &Path) -> Vec<Cause> {
    if let Err(error) = coerce_metadata(&mut metadata.clone()) {
        return vec![Cause::invalid(path, metadata, &error)];
    }
    let mut causes = Vec::new();
    let mut check = |field: &str, text: &str, wrong: names::ValidationErrors| {
        let found = wrong.iter().map(|why| Cause::invalid(&path.child(field), &text.into(), why));
        causes.extend(found);
    };
    for field in ["generateName", "name"] {
        if let Some(name) = metadata[field].as_str().filter(|name| !name.is_empty()) {
            let prefix = field == "generateName" && matches!(name, "." | "..");
            check(field, name, if prefix { names::ValidationErrors::new() } else { names::path_segment(name) });
        }
    }
    if let Some(namespace) = metadata["namespace"].as_str().filter(|namespace| !namespace.is_empty()) {
        check("namespace", namespace, names::dns_label(namespace));
    }
    for (key, value) in metadata["labels"].as_object().into_iter().flatten() {
        check("labels", key, names::qualified_name(key));
        let value = value.as_str().unwrap_or_default();
        check("labels", value, names::label_value(value));
    }
    for key in metadata["annotations"].as_object().into_iter().flatten().map(|(key, _)| key) {
        check("annotations", key, names::qualified_name(&key.to_lowercase()));
    }
    causes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::compile;

    #[test]
    fn embedded_objects_are_checked_like_real_ones() {
        let schema = compile(&json!({"type": "object", "properties": {"template": {
            "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}}));
        let lines = |value: Value| -> Vec<String> {
            check(&schema, &value).iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
        };
        assert_eq!(lines(json!({"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}})), [""; 0]);
        assert_eq!(
            lines(json!({"template": {"kind": "", "metadata": {"name": "a/b"}}})),
            [
                "template.apiVersion: Required value",
                r#"template.kind: Invalid value: "": must not be empty"#,
                r#"template.metadata.name: Invalid value: "a/b": may not contain '/'"#,
            ]
        );
    }

    #[test]
    fn unknown_metadata_is_removed_and_named() {
        let schema = compile(&json!({"type": "object", "properties": {"template": {
            "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}}));
        let mut value = json!({"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "odd": 1}}});
        assert_eq!(coerce(&schema, &mut value), Ok(vec!["template.metadata.odd".to_owned()]));
        assert_eq!(value["template"]["metadata"], json!({"name": "a"}));
    }
}
