//! Validation of a version beyond its schema: selectable fields, subresources, printer columns.

use serde_json::Value;

use super::node::type_of;
use crate::error::Cause;
use crate::field::Path;
use crate::registry::crd::text;

/// Maximum number of selectable fields of a version.
pub(super) const MAX_SELECTABLE: usize = 8;

/// Resolves a path such as `.spec.a['b']` in a schema; returns the schema node and the path's segments.
pub(super) fn follow<'a>(path: &str, schema: &'a Value, brackets: bool) -> Result<(&'a Value, Vec<String>), String> {
    let (mut at, mut rest, mut parts) = (schema, path, Vec::new());
    while !rest.is_empty() {
        let name = if let Some(after) = rest.strip_prefix('[') {
            if !brackets {
                return Err("array notation is not allowed".into());
            }
            let quoted = after.strip_prefix('\'').ok_or("expected single quoted string")?;
            let (name, after) = quoted.split_once("']").ok_or("unexpected end of JSON path")?;
            rest = after;
            name.replace("\\'", "'")
        } else if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[', ']']).unwrap_or(after.len());
            if end == 0 && after.is_empty() {
                return Err("unexpected end of JSON path".into());
            }
            rest = &after[end..];
            after[..end].to_owned()
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            return Err(format!("expected [ or . but got: {}", &rest[..end]));
        };
        at = if at["properties"].is_object() { &at["properties"][&name] } else { &at["additionalProperties"] };
        if !at.is_object() {
            return Err("does not refer to a valid field".into());
        }
        parts.push(name);
    }
    Ok((at, parts))
}

pub(super) fn selectable(fields: &Value, schema: Option<&Value>, path: &Path, many: bool, causes: &mut Vec<Cause>) {
    let Some(fields) = fields.as_array().filter(|fields| !fields.is_empty()) else { return };
    let Some(schema) = schema else {
        let detail = "may only be set when `version.schema.openAPIV3Schema` is not included";
        return causes.push(Cause::invalid(path, &"".into(), detail));
    };
    let mut seen: Vec<Vec<String>> = Vec::new();
    for (index, field) in fields.iter().enumerate() {
        let (json_path, path) = (&field["jsonPath"], path.index(index).child("jsonPath"));
        if text(json_path).is_empty() {
            causes.push(Cause::required(&path, ""));
            continue;
        }
        let (found, parts) = match follow(text(json_path), schema, false) {
            Ok(found) => found,
            Err(error) => {
                causes.push(Cause::invalid(&path, json_path, &format!("is an invalid path: {error}")));
                continue;
            }
        };
        if parts.first().is_some_and(|part| part == "metadata") {
            causes.push(Cause::invalid(&path, json_path, "must not point to fields in metadata"));
        }
        if !["string", "boolean", "integer"].contains(&type_of(found)) {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            causes.push(Cause::invalid(&path, json_path, detail));
        }
        if seen.contains(&parts) {
            causes.push(Cause::duplicate(&path, json_path));
        } else {
            seen.push(parts);
        }
    }
    if seen.len() > MAX_SELECTABLE && !many {
        causes.push(Cause::too_many(path, seen.len(), MAX_SELECTABLE));
    }
}

fn simple_path(value: &str, path: &Path) -> Option<Cause> {
    let detail = "must be a simple json path starting with .";
    (!value.starts_with('.')).then(|| Cause::invalid(path, &value.into(), detail))
}

pub(super) fn subresources(subresources: &Value, path: &Path, causes: &mut Vec<Cause>) {
    let scale = &subresources["scale"];
    if scale.is_null() {
        return;
    }
    for (key, places, words) in [
        ("specReplicasPath", &[".spec."][..], "should be a json path under .spec"),
        ("statusReplicasPath", &[".status."][..], "should be a json path under .status"),
        ("labelSelectorPath", &[".spec.", ".status."][..], "should be a json path under either .spec or .status"),
    ] {
        let (value, path) = (text(&scale[key]), path.child("scale").child(key));
        if value.is_empty() {
            if key != "labelSelectorPath" {
                causes.push(Cause::required(&path, ""));
            }
        } else if let Some(cause) = simple_path(value, &path) {
            causes.push(cause);
        } else if !places.iter().any(|place| value.starts_with(place)) {
            causes.push(Cause::invalid(&path, &value.into(), words));
        }
    }
}

pub(super) fn columns(columns: &Value, path: &Path, causes: &mut Vec<Cause>) {
    const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
    const FORMATS: &[&str] = &["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    for (index, column) in columns.as_array().into_iter().flatten().enumerate() {
        let path = path.index(index);
        if text(&column["name"]).is_empty() {
            causes.push(Cause::required(&path.child("name"), ""));
        }
        let (type_, detail) = (text(&column["type"]), format!("must be one of {}", COLUMN_TYPES.join(",")));
        if type_.is_empty() {
            causes.push(Cause::required(&path.child("type"), &detail));
        } else if !COLUMN_TYPES.contains(&type_) {
            causes.push(Cause::invalid(&path.child("type"), &type_.into(), &detail));
        }
        let format = text(&column["format"]);
        if !format.is_empty() && !FORMATS.contains(&format) {
            let detail = format!("must be one of {}", FORMATS.join(","));
            causes.push(Cause::invalid(&path.child("format"), &format.into(), &detail));
        }
        let (json_path, path) = (text(&column["jsonPath"]), path.child("JSONPath"));
        if json_path.is_empty() {
            causes.push(Cause::required(&path, ""));
        } else {
            causes.extend(simple_path(json_path, &path));
        }
    }
}

/// Validates the deprecation warning of a version.
pub(super) fn deprecation(version: &Value, path: &Path) -> Vec<Cause> {
    let Some(warning) = version["deprecationWarning"].as_str() else { return Vec::new() };
    let invalid = |detail: &str| Cause::invalid(path, &warning.into(), detail);
    if version["deprecated"] != true {
        return vec![invalid("can only be set for deprecated versions")];
    }
    let mut causes = Vec::new();
    if warning.len() > 256 {
        causes.push(invalid("must be <= 256 characters long"));
    }
    if warning.is_empty() {
        causes.push(invalid("must not be an empty string"));
    }
    if let Some((index, _)) = warning.char_indices().find(|(_, c)| c.is_control()) {
        causes.push(invalid(&format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {index}"
        )));
    }
    causes
}
