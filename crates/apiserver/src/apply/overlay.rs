//! Mutations of MutatingAdmissionPolicies: merged without taking ownership.

use capstan_semantics::field;
use serde_json::Value;

use super::shape::{Form, Shape};
use super::{combine, json_patch, walk};
use crate::schema::Schema;

/// `live` with an apply configuration merged in, or why it cannot be.
pub(crate) fn lay_over(schema: &Schema, live: &Value, config: &Value) -> Result<Value, String> {
    let shape = Shape::root(schema);
    let fits = walk::validate(shape, config).result();
    fits.map_err(|why| format!("failed to convert patch object to typed object: {why}"))?;
    let mut atomic = Vec::new();
    atomics(shape, config, String::new(), &mut atomic);
    if !atomic.is_empty() {
        let paths = atomic.join(", ");
        return Err(format!("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {paths}"));
    }
    combine::merge(shape, live, config).map_err(|why| format!("failed to merge patch: {why}"))
}

/// Atomic values in the configuration: a policy that sets one field of them would remove the others.
fn atomics(shape: Shape<'_>, value: &Value, path: String, found: &mut Vec<String>) {
    match (shape.atom().deduce(Some(value)).form(), value) {
        (Form::Map(map), Value::Object(fields)) => {
            if map.atomic {
                found.push(path.clone());
            }
            for (name, value) in fields {
                if let Some(shape) = map.named(name) {
                    atomics(shape, value, format!("{path}.{name}"), found);
                }
            }
        }
        (Form::List(list), Value::Array(items)) => {
            if list.is_atomic() {
                found.push(path.clone());
            }
            for (index, item) in items.iter().enumerate() {
                atomics(list.items, item, field::item(&path, index), found);
            }
        }
        _ => {}
    }
}

/// `live` after a JSON patch; unchanged if a `test` operation fails.
pub(crate) fn patched(live: &Value, operations: &[Value]) -> Result<Value, String> {
    let mut object = live.clone();
    for operation in operations {
        let text = |key: &str| operation[key].as_str().unwrap_or_default();
        match json_patch::apply(&object, &Value::Array(vec![operation.clone()])) {
            Ok(changed) => object = changed,
            Err(_) if text("op") == "test" => return Ok(live.clone()),
            Err(_) => {
                let (op, path) = (text("op"), text("path"));
                return Err(format!(
                    "JSON Patch: {op} operation does not apply: doc is missing path: {path:?}: missing value"
                ));
            }
        }
    }
    Ok(object)
}
