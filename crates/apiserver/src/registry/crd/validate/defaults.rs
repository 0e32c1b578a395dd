//! Validation of defaults in schemas: they must be valid values themselves.

use serde_json::{Value, json};

use super::node::{any, flag, inner, properties};
use crate::error::Cause;
use crate::field::Path;
use crate::schema::{Schema, cel, compile, embedded, prune, validate};

/// Validates the defaults of a structural schema.
pub(super) fn check(schema: &Value, path: &Path, keep_unknown: bool) -> Vec<Cause> {
    let mut causes = Vec::new();
    walk(schema, path, Place { in_metadata: false, root: true, keep_unknown }, &mut causes);
    causes
}

/// Whether a default has fields that its schema does not specify.
pub(super) fn has_unknown(schema: &Value) -> bool {
    any(schema, &|node| node.get("default").is_some_and(|default| !is_pruned(node, default)))
}

fn is_pruned(node: &Value, default: &Value) -> bool {
    let mut pruned = default.clone();
    if flag(node, "x-kubernetes-embedded-resource") {
        prune::custom(&compile(node), &mut pruned);
    } else {
        // The root of an object may have metadata that its schema does not specify; a default may not.
        let schema = compile(&json!({"type": "object", "properties": {"value": node}}));
        let mut wrapped = json!({"value": pruned});
        prune::custom(&schema, &mut wrapped);
        pruned = wrapped["value"].take();
    }
    pruned == *default
}

#[derive(Clone, Copy)]
struct Place {
    in_metadata: bool,
    root: bool,
    keep_unknown: bool,
}

fn walk(schema: &Value, path: &Path, place: Place, causes: &mut Vec<Cause>) {
    let whole = place.root || flag(schema, "x-kubernetes-embedded-resource");
    let in_metadata = place.in_metadata && !whole;
    if let Some(default) = schema.get("default").filter(|default| !default.is_null()) {
        let path = path.child("default");
        if !in_metadata && !place.keep_unknown && !is_pruned(schema, default) {
            causes.push(Cause::invalid(&path, default, "must not have unknown fields"));
        }
        causes.extend(value_faults(&compile(schema), default, &path));
    }
    let below = Place { in_metadata, root: false, ..place };
    if let Some(items) = inner(schema, "items") {
        walk(items, &path.child("items"), below, causes);
    }
    for (name, property) in properties(schema) {
        let meta = whole && ["metadata", "apiVersion", "kind"].contains(&name.as_str());
        let below = Place { in_metadata: in_metadata || meta, ..below };
        walk(property, &path.child("properties").key(name), below, causes);
    }
}

/// Validates one default against its schema.
fn value_faults(schema: &Schema, default: &Value, path: &Path) -> Vec<Cause> {
    let under = |cause: Cause| Cause {
        field: match cause.field.as_str() {
            "<nil>" => path.to_string(),
            field if field.starts_with('[') => format!("{path}{field}"),
            field => format!("{path}.{field}"),
        },
        ..cause
    };
    let embedded: Vec<Cause> = embedded::check(schema, default).into_iter().map(under).collect();
    if !embedded.is_empty() {
        return embedded;
    }
    let faults: Vec<Cause> = validate::validate(schema, default, None).into_iter().map(under).collect();
    if !faults.is_empty() {
        return faults;
    }
    let rules = cel::Rules::compile(schema);
    if rules.is_empty() {
        return Vec::new();
    }
    cel::evaluate(&rules, schema, default, Some(default)).causes.into_iter().map(under).collect()
}
