//! Environment variables, and downward API references.

use serde_json::Value;

use super::text;
use crate::admit::field::{At, Errors};
use crate::admit::json::Read;
use capstan_semantics::Quantity;
use capstan_semantics::names;

/// Fields of a pod that a variable may reference.
const VARIABLE_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// Fields of a pod that a downward API volume may reference.
pub(super) const VOLUME_FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
/// Container resources that either may reference.
const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const UNITS: &[&str] = &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

/// The variables of a container.
pub(super) fn variables(errors: &mut Errors, at: &At<'_>, variables: &[Value]) {
    for (index, variable) in variables.iter().enumerate() {
        let at = at.index(index);
        match variable.text("name") {
            "" => errors.required(&at.child("name"), ""),
            name => errors.invalid_all(&at.child("name"), name, text::variable(name)),
        }
        if variable.has("valueFrom") {
            value_from(errors, &at.child("valueFrom"), &variable["valueFrom"], !variable.text("value").is_empty());
        }
    }
}

fn value_from(errors: &mut Errors, at: &At<'_>, from: &Value, has_value: bool) {
    let mut sources = 0;
    let mut source = |key: &str| {
        let found = from.get(key).filter(|source| !source.is_null());
        sources += i32::from(found.is_some());
        found
    };
    if let Some(field) = source("fieldRef") {
        field_reference(errors, &at.child("fieldRef"), field, VARIABLE_FIELDS);
    }
    if let Some(resource) = source("resourceFieldRef") {
        resource_reference(errors, &at.child("resourceFieldRef"), resource, false);
    }
    for key in ["configMapKeyRef", "secretKeyRef"] {
        if let Some(selector) = source(key) {
            key_reference(errors, &at.child(key), selector);
        }
    }
    if let Some(file) = source("fileKeyRef") {
        file_reference(errors, &at.child("fileKeyRef"), file);
    }
    if sources == 0 {
        let why =
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        errors.invalid(at, "", why);
    } else if has_value {
        errors.invalid(at, "", "may not be specified when `value` is not empty");
    } else if sources > 1 {
        errors.invalid(at, "", "may not have more than one field specified at a time");
    }
}

/// A `fieldRef`.
pub(super) fn field_reference(errors: &mut Errors, at: &At<'_>, reference: &Value, known: &[&str]) {
    if reference.text("apiVersion").is_empty() {
        return errors.required(&at.child("apiVersion"), "");
    }
    let path = reference.text("fieldPath");
    if path.is_empty() {
        return errors.required(&at.child("fieldPath"), "");
    }
    let subscript = path.strip_suffix("']").and_then(|rest| rest.split_once("['"));
    let convertible = match subscript {
        Some((start, _)) => ["metadata.annotations", "metadata.labels"].contains(&start),
        None => VARIABLE_FIELDS.contains(&path) || VOLUME_FIELDS.contains(&path) || path == "status.phase",
    };
    if !convertible || reference.text("apiVersion") != "v1" {
        let why = match (reference.text("apiVersion"), subscript) {
            ("v1", Some(_)) => format!("error converting fieldPath: field label does not support subscript: {path}"),
            ("v1", None) => format!("error converting fieldPath: field label not supported: {path}"),
            (version, _) => format!("error converting fieldPath: unsupported pod version: {version}"),
        };
        return errors.invalid(&at.child("fieldPath"), path, &why);
    }
    match subscript {
        Some(("metadata.annotations", key)) => {
            errors.invalid_all(at, &key.to_lowercase(), names::qualified_name(&key.to_lowercase()));
        }
        Some((_, key)) => errors.invalid_all(at, key, names::qualified_name(key)),
        None if !known.contains(&path) => errors.unsupported(&at.child("fieldPath"), path, known),
        None => {}
    }
}

/// A `resourceFieldRef`; in a volume it must name the container.
pub(super) fn resource_reference(errors: &mut Errors, at: &At<'_>, reference: &Value, in_volume: bool) {
    let resource = reference.text("resource");
    let huge = ["requests.hugepages-", "limits.hugepages-"].iter().any(|prefix| resource.starts_with(prefix));
    if in_volume && reference.text("containerName").is_empty() {
        errors.required(&at.child("containerName"), "");
    } else if resource.is_empty() {
        errors.required(&at.child("resource"), "");
    } else if !RESOURCES.contains(&resource) && !huge {
        errors.unsupported(&at.child("resource"), resource, RESOURCES);
    }
    let Ok(divisor) = Quantity::from_json(&reference["divisor"]) else { return };
    if divisor == Quantity::ZERO {
        return;
    }
    let divisor = divisor.to_string();
    let list = UNITS.join(", ");
    let (known, what) = match resource {
        "limits.cpu" | "requests.cpu" => {
            (&["1m", "1"] as &[&str], "1m and 1 are supported with the cpu resource".into())
        }
        "limits.memory" | "requests.memory" => (UNITS, format!("{list} are supported with the memory resource")),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => {
            (UNITS, format!("{list} are supported with the local ephemeral storage resource"))
        }
        _ if huge => (UNITS, format!("{list} are supported with the hugepages resource")),
        _ => return,
    };
    if !known.contains(&divisor.as_str()) {
        errors.invalid(&at.child("divisor"), resource, &format!("only divisor's values {what}"));
    }
}

fn key_reference(errors: &mut Errors, at: &At<'_>, selector: &Value) {
    let name = selector.text("name");
    errors.invalid_all(&at.child("name"), name, names::dns_subdomain(name));
    match selector.text("key") {
        "" => errors.required(&at.child("key"), ""),
        key => errors.invalid_all(&at.child("key"), key, text::config_key(key)),
    }
}

fn file_reference(errors: &mut Errors, at: &At<'_>, file: &Value) {
    match file.text("key") {
        "" => errors.required(&at.child("key"), ""),
        key => errors.invalid_all(&at.child("key"), key, text::variable(key)),
    }
    match file.text("volumeName") {
        "" => errors.required(&at.child("volumeName"), ""),
        name => errors.invalid_all(&at.child("volumeName"), name, names::dns_label(name)),
    }
    match file.text("path") {
        "" => errors.required(&at.child("path"), ""),
        path => text::no_backsteps(errors, &at.child("path"), path),
    }
}

/// `envFrom` sources.
pub(super) fn sources(errors: &mut Errors, at: &At<'_>, sources: &[Value]) {
    for (index, source) in sources.iter().enumerate() {
        let here = at.index(index);
        let prefix = source.text("prefix");
        if !prefix.is_empty() {
            errors.invalid_all(&here.child("prefix"), prefix, text::variable(prefix));
        }
        let mut count = 0;
        for key in ["configMapRef", "secretRef"] {
            let Some(reference) = source.get(key).filter(|reference| !reference.is_null()) else { continue };
            count += 1;
            let at = here.child(key);
            match reference.text("name") {
                "" => errors.required(&at.child("name"), ""),
                name => {
                    // Variable names follow the prefix, so a trailing dash is valid.
                    let checked =
                        name.strip_suffix('-').filter(|start| !start.is_empty()).map(|start| format!("{start}a"));
                    errors.invalid_all(
                        &at.child("name"),
                        name,
                        names::dns_subdomain(checked.as_deref().unwrap_or(name)),
                    );
                }
            }
        }
        match count {
            0 => errors.invalid(at, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => errors.invalid(at, "", "may not have more than one field specified at a time"),
        }
    }
}
