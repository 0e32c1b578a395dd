//! Differences of objects, for errors about immutable fields.

use std::fmt::Write;

use capstan_semantics::field;
use serde_json::Value;

/// One line per changed field: old and new value.
pub(super) fn diff(old: &Value, new: &Value) -> String {
    let mut out = String::new();
    compare("", old, new, &mut out);
    out
}

fn compare(path: &str, old: &Value, new: &Value, out: &mut String) {
    match (old, new) {
        _ if old == new => {}
        (Value::Object(before), Value::Object(after)) => {
            let keys: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            for key in keys {
                let child = |members: &serde_json::Map<String, Value>| members.get(key).cloned().unwrap_or_default();
                compare(&format!("{path}.{key}"), &child(before), &child(after), out);
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (index, (before, after)) in before.iter().zip(after).enumerate() {
                compare(&field::item(path, index), before, after, out);
            }
        }
        _ => {
            for (sign, value) in [('-', old), ('+', new)] {
                if !value.is_null() {
                    writeln!(out, "{sign} {path}: {value}").expect("writing to a String cannot fail");
                }
            }
        }
    }
}
