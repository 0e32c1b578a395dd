//! JSON patch, JSON merge patch and strategic merge patch.

use serde_json::{Map, Value};

use super::{json_patch, strategic};
use crate::error::{Result, Status};
use crate::schema::{Schema, decode};

/// Type of a patch, by its content type. Server-side apply is [`super::managed::apply`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `application/json-patch+json`
    Json,
    /// `application/merge-patch+json`
    Merge,
    /// `application/strategic-merge-patch+json`; built-in kinds only.
    Strategic,
}

impl Kind {
    /// The kind of a content type without parameters.
    pub fn of(content_type: &str) -> Option<Self> {
        match content_type {
            "application/json-patch+json" => Some(Self::Json),
            "application/merge-patch+json" => Some(Self::Merge),
            "application/strategic-merge-patch+json" => Some(Self::Strategic),
            _ => None,
        }
    }
}

/// A decoded patch.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    /// Patch type.
    pub kind: Kind,
    /// The patch document.
    pub value: Value,
    /// Warnings: duplicate or unknown fields.
    pub strict_errors: Vec<String>,
}

/// Decodes the patch in a JSON request body.
pub fn decode(kind: Kind, body: &[u8]) -> Result<Patch> {
    let parsed = decode::parse(body).map_err(|_| Status::bad_request("invalid JSON patch"))?;
    let mut strict_errors: Vec<String> =
        parsed.duplicates.iter().map(|path| format!("duplicate field {path:?}")).collect();
    if kind == Kind::Json {
        strict_errors = json_patch::unknown_members(&parsed.value);
    }
    Ok(Patch { kind, value: parsed.value, strict_errors })
}

/// 400 for a patch of the wrong JSON type.
fn wrong_type(kind: Kind, patch: &Value) -> Status {
    let (prefix, wanted) = match kind {
        Kind::Json => ("error decoding patch: ", "[]handlers.jsonPatchOp"),
        Kind::Merge => ("error decoding patch: ", "map[string]interface {}"),
        Kind::Strategic => ("", "map[string]interface {}"),
    };
    let found = json_type(patch);
    Status::bad_request(format!("{prefix}json: cannot unmarshal {found} into Go value of type {wanted}"))
}

/// The name of a JSON type in decoder errors.
pub(crate) fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// `live` with `patch` applied. The result still has to be defaulted, validated and tracked in managed fields.
pub fn apply(kind: Kind, live: &Value, patch: &Value, schema: &Schema) -> Result<Value> {
    let fits = match kind {
        Kind::Json => patch.is_array(),
        Kind::Merge | Kind::Strategic => patch.is_object(),
    };
    if !fits && !patch.is_null() {
        return Err(wrong_type(kind, patch));
    }
    match kind {
        Kind::Json => json_patch::apply(live, patch),
        Kind::Merge => merge(live, patch),
        Kind::Strategic => strategic::apply(live, patch, schema),
    }
}

fn merge(live: &Value, patch: &Value) -> Result<Value> {
    match (live, patch) {
        (_, Value::Null) => Err(Status::bad_request("Invalid JSON Patch")),
        (Value::Object(live), Value::Object(patch)) => {
            let mut live = live.clone();
            merge_fields(&mut live, patch);
            Ok(Value::Object(live))
        }
        (_, patch) => Ok(patch.clone()),
    }
}

fn merge_fields(live: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (name, value) in patch {
        match (live.get_mut(name), value) {
            (_, Value::Null) => {
                live.remove(name);
            }
            (Some(Value::Object(live)), Value::Object(patch)) => merge_fields(live, patch),
            // A value that is not an object replaces the old one as it is, including nulls.
            (Some(Value::Object(_)), value) => {
                live.insert(name.clone(), value.clone());
            }
            (_, value) => {
                live.insert(name.clone(), without_nulls(value));
            }
        }
    }
}

/// `value` without null fields; null items of lists are kept.
pub(crate) fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            Value::Object(fields.map(|(name, value)| (name.clone(), without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::apply::testing::json_value;

    fn merged(live: &Value, patch: &Value) -> Value {
        apply(Kind::Merge, live, patch, &Schema::default()).expect("a merge patch")
    }

    /// The merge patch from one object to another.
    fn diff(from: &Value, to: &Value) -> Value {
        let (Value::Object(from), Value::Object(to)) = (from, to) else { return to.clone() };
        let gone = from.keys().filter(|name| !to.contains_key(*name)).map(|name| (name.clone(), Value::Null));
        let changed = to.iter().filter(|(name, value)| from.get(*name) != Some(value)).map(|(name, value)| {
            let patch = from.get(name).map_or_else(|| value.clone(), |from| diff(from, value));
            (name.clone(), patch)
        });
        Value::Object(gone.chain(changed).collect())
    }

    /// kube-apiserver removes or keeps null fields inside a list, depending on what the list replaces.
    fn lists_without_nulls(value: &Value) -> Value {
        match value {
            Value::Object(fields) => {
                Value::Object(fields.iter().map(|(name, value)| (name.clone(), lists_without_nulls(value))).collect())
            }
            list => without_nulls(list),
        }
    }

    proptest! {
        #[test]
        fn a_merge_patch_leads_from_any_object_to_any_other(from in json_value(), to in json_value()) {
            let (from, to) = (without_nulls(&json!({"x": from})), without_nulls(&json!({"x": to})));
            prop_assert_eq!(merged(&from, &diff(&from, &to)), to);
        }

        #[test]
        fn a_merge_patch_applied_twice_is_applied_once(live in json_value(), patch in json_value()) {
            let (live, patch) = (json!({"x": live}), json!({"x": lists_without_nulls(&patch)}));
            let once = merged(&live, &patch);
            prop_assert_eq!(merged(&once, &patch), once);
        }

        #[test]
        fn an_empty_merge_patch_changes_nothing(live in json_value()) {
            let live = json!({"x": live});
            prop_assert_eq!(merged(&live, &json!({})), live);
        }
    }

    #[test]
    fn bodies_that_are_no_patches_are_refused() {
        let cases = [
            (
                Kind::Json,
                json!({}),
                "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
            ),
            (
                Kind::Json,
                json!([1]),
                "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp",
            ),
            (
                Kind::Merge,
                json!("x"),
                "error decoding patch: json: cannot unmarshal string into Go value of type map[string]interface {}",
            ),
            (Kind::Strategic, json!([]), "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        ];
        for (kind, patch, message) in cases {
            let refused = apply(kind, &json!({}), &patch, &Schema::default());
            assert_eq!(refused, Err(Status::bad_request(message)));
        }
        assert_eq!(decode(Kind::Json, b"{"), Err(Status::bad_request("invalid JSON patch")));
        assert_eq!(merge(&json!({}), &Value::Null), Err(Status::bad_request("Invalid JSON Patch")));
    }
}
