//! Pruning: removes and reports fields that the schema does not specify.

use capstan_semantics::field::{self, At};
use serde_json::Value;

use super::Schema;

const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Prunes a custom resource and returns the paths of the removed fields, sorted. Metadata is not pruned.
pub fn custom(schema: &Schema, value: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    prune(schema, value, "", true, &mut unknown);
    unknown.sort();
    unknown
}

fn prune(schema: &Schema, value: &mut Value, path: &str, root: bool, unknown: &mut Vec<String>) {
    let keep = schema.preserve_unknown;
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            if (root || schema.embedded_resource) && META.contains(&name.as_str()) {
                return true;
            }
            let inner = field::child(path, name);
            match schema.child(name) {
                Some(child) => prune(child, value, &inner, false, unknown),
                None if keep => {}
                None => {
                    unknown.push(inner);
                    return false;
                }
            }
            true
        }),
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                let inner = field::item(path, index);
                match (schema.items(), keep) {
                    // Items of a list that preserves unknown fields are preserved; specified fields are pruned by their
                    // schema.
                    (Some(child), true) => prune_kept(child, item, &inner, unknown),
                    (Some(child), false) => prune(child, item, &inner, false, unknown),
                    (None, true) => {}
                    (None, false) => prune(&Schema::default(), item, &inner, false, unknown),
                }
            }
        }
        _ => {}
    }
}

/// Items of a list that preserves unknown fields: they do so, too, but specified fields are pruned by their schema.
fn prune_kept(schema: &Schema, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
    let kept = Schema { preserve_unknown: true, ..schema.clone() };
    prune(&kept, value, path, false, unknown);
}

/// Prunes a built-in object and returns the paths of the removed fields, sorted.
pub fn builtin(schema: &Schema, value: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    strip(schema, value, At::root(), &mut unknown);
    unknown.sort();
    unknown
}

fn strip(schema: &Schema, value: &mut Value, path: At<'_>, unknown: &mut Vec<String>) {
    match value {
        Value::Object(fields) if !schema.properties.is_empty() => fields.retain(|name, value| {
            let inner = path.child(name);
            let child = schema.property(name);
            match child {
                Some(child) => strip(child, value, inner, unknown),
                None => unknown.push(inner.to_string()),
            }
            child.is_some()
        }),
        // A map, or an untyped object, which is preserved.
        Value::Object(fields) => {
            let Some(child) = schema.additional() else { return };
            for (name, value) in fields {
                strip(child, value, path.child(name), unknown);
            }
        }
        Value::Array(items) => {
            let Some(child) = schema.items() else { return };
            for (index, item) in items.iter_mut().enumerate() {
                strip(child, item, path.index(index), unknown);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::{compile, definition};

    #[test]
    fn unknown_fields_go_unless_they_are_preserved() {
        let schema = compile(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "a": {"type": "string"},
                "raw": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {"known": {"type": "object"}}},
                "embedded": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}},
                "list": {"type": "array", "items": {"type": "object"}},
            }},
        }}));
        let mut value = json!({
            "kind": "X", "metadata": {"odd": 1}, "status": {},
            "spec": {"a": "b", "c": 1, "raw": {"x": {"y": 1}, "known": {"z": 1}},
                "embedded": {"kind": "K", "metadata": {"q": 1}, "other": 1}, "list": [{"m": 1}, 2]},
        });
        let unknown = custom(&schema, &mut value);
        assert_eq!(unknown, ["spec.c", "spec.embedded.other", "spec.list[0].m", "spec.raw.known.z", "status"]);
        assert_eq!(
            value,
            json!({"kind": "X", "metadata": {"odd": 1}, "spec": {"a": "b", "raw": {"x": {"y": 1}, "known": {}},
                "embedded": {"kind": "K", "metadata": {"q": 1}}, "list": [{}, 2]}})
        );
    }

    #[test]
    fn built_in_kinds_lose_unknown_fields_but_keep_raw_ones() {
        let mut value = json!({"kind": "ControllerRevision", "data": {"anything": {"goes": 1}}, "extra": 1,
            "metadata": {"labels": {"a": "b"}, "odd": true}});
        let schema = definition("io.k8s.api.apps.v1.ControllerRevision").expect("a kind");
        assert_eq!(builtin(schema, &mut value), ["extra", "metadata.odd"]);
        assert_eq!(value["data"]["anything"]["goes"], 1);
    }
}
