//! Uniqueness of items in lists of type set and map.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{ListType, Schema};
use crate::error::Cause;
use crate::field::Path;
use crate::golang;

/// Duplicates in all lists of a custom resource.
pub fn check(schema: &Schema, value: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    walk(schema, value, &Path::root(), &mut causes);
    causes
}

fn walk(schema: &Schema, value: &Value, path: &Path, causes: &mut Vec<Cause>) {
    match value {
        Value::Object(fields) => {
            if let Some(additional) = schema.additional() {
                for (name, value) in fields {
                    walk(additional, value, &path.key(name), causes);
                }
            }
            for (name, value) in fields {
                if let Some(child) = schema.property(name) {
                    walk(child, value, &path.child(name), causes);
                }
            }
        }
        Value::Array(items) => {
            match &schema.list {
                ListType::Atomic => {}
                ListType::Set => causes.extend(repeated(items.iter(), path, |index| items[index].clone())),
                ListType::Map(keys) => causes.extend(map_faults(keys, items, path)),
            }
            if let Some(child) = schema.items() {
                for (index, item) in items.iter().enumerate() {
                    walk(child, item, &path.index(index), causes);
                }
            }
        }
        _ => {}
    }
}

fn map_faults(keys: &[String], items: &[Value], path: &Path) -> Vec<Cause> {
    let stray = items.iter().position(|item| !item.is_null() && !item.is_object());
    if let Some(index) = stray {
        let detail = "must be an object for an array of list-type map";
        return vec![Cause::invalid(&path.index(index), &items[index], detail)];
    }
    let key_of = |item: &Value| -> Value {
        let present = keys.iter().filter_map(|key| item.get(key).map(|value| (key.clone(), value.clone())));
        Value::Object(present.collect::<Map<_, _>>())
    };
    let found: Vec<Value> = items.iter().map(key_of).collect();
    repeated(found.iter(), path, |index| found[index].clone())
}

/// One error for the second of several equal items.
fn repeated<'a>(items: impl Iterator<Item = &'a Value>, path: &Path, shown: impl Fn(usize) -> Value) -> Vec<Cause> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut causes = Vec::new();
    for (index, item) in items.enumerate() {
        let times = seen.entry(golang::json(item)).or_default();
        *times += 1;
        if *times == 2 {
            causes.push(Cause::duplicate(&path.index(index), &shown(index)));
        }
    }
    causes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::compile;

    #[test]
    fn repeated_items_are_named_once() {
        let item = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}});
        let schema = compile(&json!({"type": "object", "properties": {
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"], "items": item},
        }}));
        let causes =
            check(&schema, &json!({"set": ["x", "y", "x", "x"], "map": [{"a": "1"}, {}, {"a": "1", "b": 2}, {}]}));
        let lines: Vec<String> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        assert_eq!(
            lines,
            [r#"map[2]: Duplicate value: {"a":"1"}"#, "map[3]: Duplicate value: {}", r#"set[2]: Duplicate value: "x""#]
        );
    }
}
