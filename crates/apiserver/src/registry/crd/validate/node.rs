//! Accessors of a schema node in a CRD.

use serde_json::{Map, Value};

/// Valid types.
pub(super) const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];

/// The type of a node, empty if absent.
pub(super) fn type_of(schema: &Value) -> &str {
    schema["type"].as_str().unwrap_or_default()
}

/// Whether a boolean keyword is true.
pub(super) fn flag(schema: &Value, key: &str) -> bool {
    schema[key] == true
}

/// The fields of a struct.
pub(super) fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema["properties"].as_object().into_iter().flatten()
}

/// Subschemas in a list: `allOf` and the like.
pub(super) fn list<'a>(schema: &'a Value, key: &str) -> &'a [Value] {
    schema[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The subschema of a keyword, if present.
pub(super) fn inner<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    schema.get(key).filter(|inner| inner.is_object())
}

/// Whether a node or one of its descendants passes the test.
pub(super) fn any(schema: &Value, test: &dyn Fn(&Value) -> bool) -> bool {
    let fields = |key: &str| schema[key].as_object().into_iter().flat_map(Map::values).any(|it| any(it, test));
    schema.is_object()
        && (test(schema)
            || ["items", "not", "additionalProperties"].iter().any(|key| any(&schema[key], test))
            || ["allOf", "anyOf", "oneOf"].iter().any(|key| list(schema, key).iter().any(|it| any(it, test)))
            || ["properties", "patternProperties", "definitions"].iter().any(|key| fields(key)))
}
