//! Defaulting of custom resources: absent fields, and nulls that are not nullable, get the default of their schema.

use serde_json::Value;

use super::Schema;

/// Removes nulls that are not nullable and have no default.
pub fn drop_nulls(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let meaningless =
                |child: Option<&Schema>| child.is_some_and(|child| !child.nullable && child.default.is_none());
            fields.retain(|name, value| !(value.is_null() && meaningless(schema.child(name))));
            for (name, value) in fields {
                if let Some(child) = schema.child(name) {
                    drop_nulls(child, value);
                }
            }
        }
        Value::Array(items) => {
            if let Some(child) = schema.items() {
                items.iter_mut().for_each(|item| drop_nulls(child, item));
            }
        }
        _ => {}
    }
}

/// Applies defaults.
pub fn apply(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, child) in &schema.properties {
                let child = child.schema();
                let Some(default) = &child.default else { continue };
                match fields.get_mut(name) {
                    None => {
                        fields.insert(name.clone(), default.clone());
                    }
                    Some(value) => replace_null(child, value),
                }
            }
            for (name, value) in fields {
                if let Some(child) = schema.property(name) {
                    apply(child, value);
                } else if let Some(child) = schema.additional() {
                    replace_null(child, value);
                    apply(child, value);
                }
            }
        }
        Value::Array(items) => {
            let Some(child) = schema.items() else { return };
            for item in items {
                replace_null(child, item);
                apply(child, item);
            }
        }
        _ => {}
    }
}

fn replace_null(schema: &Schema, value: &mut Value) {
    if let (Value::Null, false, Some(default)) = (&*value, schema.nullable, &schema.default) {
        *value = default.clone();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::compile;

    #[test]
    fn defaults_reach_into_defaults_items_and_maps() {
        let schema = compile(&json!({"type": "object", "properties": {
            "a": {"type": "object", "default": {}, "properties": {"b": {"type": "integer", "default": 1}}},
            "l": {"type": "array", "items": {"type": "object", "properties": {"c": {"type": "string", "default": "x"}}}},
            "m": {"type": "object", "additionalProperties": {"type": "string", "default": "y"}},
            "n": {"type": "string", "nullable": true, "default": "z"},
            "o": {"type": "string"},
        }}));
        let mut value = json!({"l": [{}], "m": {"k": null}, "n": null, "o": null});
        drop_nulls(&schema, &mut value);
        apply(&schema, &mut value);
        assert_eq!(value, json!({"a": {"b": 1}, "l": [{"c": "x"}], "m": {"k": "y"}, "n": null}));
    }
}
