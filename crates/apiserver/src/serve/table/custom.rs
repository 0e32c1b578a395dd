//! Custom resources: the printer columns of their CRD.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::format::since;
use super::jsonpath::Path;
use super::{Include, META, attach, description, name};
use crate::registry::CustomVersion;
use crate::store::Object;

/// Columns and rows.
pub(super) fn table<'a>(
    custom: &CustomVersion,
    objects: impl Iterator<Item = &'a Object>,
    version: &str,
    include: Include,
    now: Timestamp,
) -> (Value, Vec<Value>) {
    let text = |column: &Value, key: &str| column[key].as_str().unwrap_or_default().to_owned();
    let mut definitions = vec![json!({
        "name": "Name", "type": "string", "format": "name", "description": description(META, "name"), "priority": 0,
    })];
    let age = [json!({
        "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp",
        "description": description(META, "creationTimestamp"),
    })];
    let wanted = if custom.columns.is_empty() { &age[..] } else { &custom.columns };
    let mut columns = Vec::new();
    for column in wanted {
        let (path, kind) = (text(column, "jsonPath"), text(column, "type"));
        let described = match text(column, "description") {
            text if text.is_empty() => {
                format!("Custom resource definition column (in JSONPath format): {path}")
            }
            text => text,
        };
        definitions.push(json!({
            "name": text(column, "name"), "type": kind, "format": text(column, "format"),
            "description": described, "priority": column["priority"].as_i64().unwrap_or(0),
        }));
        columns.push((Path::parse(&path), kind));
    }
    let rows = objects
        .map(|object| {
            let value = object.value();
            let cells = columns.iter().map(|(path, kind)| cell(path.as_ref(), kind, &value, now));
            let cells: Vec<Value> = std::iter::once(name(&value)).chain(cells).collect();
            let mut row = json!({"cells": cells});
            attach(&mut row, object, value, version, include);
            row
        })
        .collect();
    (definitions.into(), rows)
}

/// The columns of a Scale.
pub(super) fn scale() -> CustomVersion {
    let columns = json!([
        {"name": "Desired", "type": "integer", "description": "Number of desired replicas", "jsonPath": ".spec.replicas"},
        {"name": "Available", "type": "integer", "description": "Number of actual replicas", "jsonPath": ".status.replicas"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp",
            "description": description(META, "creationTimestamp")},
    ]);
    CustomVersion { columns: columns.as_array().cloned().unwrap_or_default(), ..CustomVersion::default() }
}

fn cell(path: Option<&Path>, kind: &str, object: &Value, now: Timestamp) -> Value {
    let Some(found) = path.and_then(|path| path.find(object).first().copied()) else { return Value::Null };
    match (kind, found) {
        (_, Value::Null) => Value::Null,
        ("integer", Value::Number(number)) => match number.as_i64() {
            Some(whole) => whole.into(),
            // Truncated toward zero.
            None => number.as_f64().map_or(Value::Null, |number| (number as i64).into()),
        },
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => found.clone(),
        ("date", Value::String(time)) => match time.parse::<Timestamp>() {
            Ok(_) => since(found, now).into(),
            Err(_) => "<invalid>".into(),
        },
        ("string", Value::String(_)) => found.clone(),
        ("string", other) => other.to_string().into(),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(columns: Value, object: &Value) -> (Value, Value) {
        let custom = CustomVersion { columns: columns.as_array().unwrap().clone(), ..CustomVersion::default() };
        let object = Object::synthetic(object);
        let now = "2024-01-01T00:01:00Z".parse().unwrap();
        let (columns, rows) = table(&custom, std::iter::once(&object), "v1", Include::None, now);
        (columns, rows[0]["cells"].clone())
    }

    #[test]
    fn cells_have_the_type_of_their_column() {
        let object = json!({"metadata": {"name": "a", "creationTimestamp": "2024-01-01T00:00:00Z"},
            "spec": {"n": 3, "f": 1.5, "b": true, "l": [1, "x"], "s": "text"}});
        let column = |kind: &str, path: &str| json!({"name": "c", "type": kind, "jsonPath": path});
        let cases = [
            ("integer", ".spec.n", json!(3)),
            ("integer", ".spec.s", json!(null)),
            ("number", ".spec.f", json!(1.5)),
            ("boolean", ".spec.b", json!(true)),
            ("string", ".spec.n", json!("3")),
            ("string", ".spec.l", json!("[1,\"x\"]")),
            ("string", ".spec.missing", json!(null)),
            ("date", ".metadata.creationTimestamp", json!("60s")),
            ("date", ".spec.s", json!("<invalid>")),
        ];
        for (kind, path, expected) in cases {
            assert_eq!(shown(json!([column(kind, path)]), &object).1[1], expected, "{kind} {path}");
        }
    }

    #[test]
    fn without_columns_the_age_is_shown() {
        let object = json!({"metadata": {"name": "a", "creationTimestamp": "2024-01-01T00:00:00Z"}});
        let (columns, cells) = shown(json!([]), &object);
        assert_eq!(cells, json!(["a", "60s"]));
        assert_eq!(columns[1]["type"], "date");
    }
}
