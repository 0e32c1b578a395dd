//! Parsing and validation of request options: from the query and, for a deletion, from the body.

use std::time::Duration;

use serde_json::{Value, json};

use super::query::Query;
use crate::error::{Cause, Result, Status};
use crate::ops::{DeleteOptions, FieldValidation, ListOptions, PatchKind, Preconditions, Propagation, WriteOptions};

const META: &str = "meta.k8s.io";

/// Options of list, watch and deletecollection.
pub(crate) fn list(query: &Query) -> Result<ListOptions> {
    let text = |key: &str| query.first(key).unwrap_or_default().to_owned();
    let limit = integer(query, "limit")?.unwrap_or(0);
    let timeout = integer(query, "timeoutSeconds")?.filter(|seconds| *seconds > 0);
    Ok(ListOptions {
        label_selector: text("labelSelector"),
        field_selector: text("fieldSelector"),
        limit: usize::try_from(limit).unwrap_or(0),
        continue_token: text("continue"),
        resource_version: text("resourceVersion"),
        resource_version_match: text("resourceVersionMatch"),
        timeout: timeout.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs),
        allow_bookmarks: query.flag("allowWatchBookmarks"),
        send_initial_events: query
            .first("sendInitialEvents")
            .filter(|text| !text.is_empty())
            .map(|_| query.flag("sendInitialEvents")),
    })
}

/// Options of create and update.
pub(crate) fn write(query: &Query, kind: &str) -> Result<WriteOptions> {
    let mut causes = Vec::new();
    let options = write_options(query, &mut causes);
    if causes.is_empty() { Ok(options) } else { Err(Status::invalid(kind, META, "", causes)) }
}

/// Options of patch.
pub(crate) fn patch(query: &Query, patch: PatchKind) -> Result<WriteOptions> {
    let mut causes = Vec::new();
    if patch != PatchKind::Apply && query.first("force").is_some_and(|force| !force.is_empty()) {
        causes.push(cause("FieldValueForbidden", "force", "Forbidden: may not be specified for non-apply patch"));
    }
    if patch == PatchKind::Apply && query.first("fieldManager").unwrap_or_default().is_empty() {
        causes.push(cause("FieldValueRequired", "fieldManager", "Required value: is required for apply patch"));
    }
    let options = write_options(query, &mut causes);
    if causes.is_empty() { Ok(options) } else { Err(Status::invalid("PatchOptions", META, "", causes)) }
}

fn write_options(query: &Query, causes: &mut Vec<Cause>) -> WriteOptions {
    let manager = query.first("fieldManager").unwrap_or_default();
    check_manager(manager, causes);
    let dry_run = dry_run(query.all("dryRun"), causes);
    let field_validation = match query.first("fieldValidation").unwrap_or_default() {
        "" | "Warn" => FieldValidation::Warn,
        "Ignore" => FieldValidation::Ignore,
        "Strict" => FieldValidation::Strict,
        other => {
            let supported = r#"supported values: "", "Ignore", "Strict", "Warn""#;
            let message = format!("Unsupported value: {other:?}: {supported}");
            causes.push(cause("FieldValueNotSupported", "fieldValidation", message));
            FieldValidation::Warn
        }
    };
    WriteOptions { dry_run, field_manager: manager.to_owned(), field_validation, force: query.flag("force") }
}

fn check_manager(manager: &str, causes: &mut Vec<Cause>) {
    if manager.len() > 128 {
        causes.push(cause("FieldValueTooLong", "fieldManager", "Too long: may not be more than 128 bytes"));
    }
    if let Some((at, odd)) = manager.char_indices().find(|(_, c)| c.is_control()) {
        let message = format!(
            "Invalid value: {manager:?}: should only contain printable characters, found {:?} at position {at}",
            odd.to_string()
        );
        causes.push(cause("FieldValueInvalid", "fieldManager", message));
    }
}

fn dry_run<'a>(values: impl Iterator<Item = &'a str>, causes: &mut Vec<Cause>) -> bool {
    let values: Vec<&str> = values.collect();
    if values.iter().any(|value| *value != "All") {
        let message = format!("Unsupported value: {}: supported values: \"All\"", json!(values));
        causes.push(cause("FieldValueNotSupported", "dryRun", message));
    }
    !values.is_empty()
}

/// Options of delete: from the body if present, else from the query.
pub(crate) fn delete(query: &Query, body: Option<&Value>) -> Result<DeleteOptions> {
    let mut causes = Vec::new();
    let options = match body {
        Some(body) => delete_from_body(body, &mut causes)?,
        None => delete_from_query(query, &mut causes)?,
    };
    if causes.is_empty() { Ok(options) } else { Err(Status::invalid("DeleteOptions", META, "", causes)) }
}

fn delete_from_body(body: &Value, causes: &mut Vec<Cause>) -> Result<DeleteOptions> {
    let kind = body["kind"].as_str().unwrap_or("DeleteOptions");
    if kind != "DeleteOptions" {
        let version = body["apiVersion"].as_str().unwrap_or_default();
        let message =
            format!("no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\"");
        return Err(Status::bad_request(message));
    }
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let policy = body["propagationPolicy"].as_str();
    let orphan = body["orphanDependents"].as_bool();
    let dry = body["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let preconditions = &body["preconditions"];
    Ok(DeleteOptions {
        grace: body["gracePeriodSeconds"].as_i64(),
        propagation: propagation(policy, orphan, causes),
        preconditions: Preconditions {
            uid: text(&preconditions["uid"]),
            resource_version: text(&preconditions["resourceVersion"]),
        },
        dry_run: dry_run(dry, causes),
    })
}

fn delete_from_query(query: &Query, causes: &mut Vec<Cause>) -> Result<DeleteOptions> {
    let orphan =
        query.first("orphanDependents").filter(|text| !text.is_empty()).map(|_| query.flag("orphanDependents"));
    let policy = query.first("propagationPolicy").filter(|text| !text.is_empty());
    Ok(DeleteOptions {
        grace: integer(query, "gracePeriodSeconds")?,
        propagation: propagation(policy, orphan, causes),
        preconditions: Preconditions::default(),
        dry_run: dry_run(query.all("dryRun"), causes),
    })
}

fn propagation(policy: Option<&str>, orphan: Option<bool>, causes: &mut Vec<Cause>) -> Option<Propagation> {
    if let (Some(policy), Some(_)) = (policy, orphan) {
        let message = format!("Invalid value: {policy:?}: orphanDependents and deletionPropagation cannot be both set");
        causes.push(cause("FieldValueInvalid", "propagationPolicy", message));
    }
    match (policy, orphan) {
        (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
        (Some("Background"), _) | (None, Some(false)) => Some(Propagation::Background),
        (Some("Foreground"), _) => Some(Propagation::Foreground),
        (None, None) => None,
        (Some(other), _) => {
            let supported = r#"supported values: "Foreground", "Background", "Orphan", "nil""#;
            let message = format!("Unsupported value: {other:?}: {supported}");
            causes.push(cause("FieldValueNotSupported", "propagationPolicy", message));
            None
        }
    }
}

fn cause(reason: &'static str, field: &str, message: impl Into<String>) -> Cause {
    Cause { reason, message: message.into(), field: field.to_owned() }
}

fn integer(query: &Query, key: &str) -> Result<Option<i64>> {
    let Some(text) = query.first(key).filter(|text| !text.is_empty()) else { return Ok(None) };
    let parsed = text.parse().map(Some);
    parsed.map_err(|_| Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_options_are_refused_in_the_words_of_the_real_server() {
        let cases = [
            (
                write(&Query::parse("dryRun=None"), "CreateOptions").unwrap_err(),
                r#"CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["None"]: supported values: "All""#,
            ),
            (
                patch(&Query::parse(""), PatchKind::Apply).unwrap_err(),
                r#"PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch"#,
            ),
            (
                patch(&Query::parse("force=true"), PatchKind::Merge).unwrap_err(),
                r#"PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be specified for non-apply patch"#,
            ),
            (
                delete(&Query::parse("propagationPolicy=Fast"), None).unwrap_err(),
                r#"DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "Fast": supported values: "Foreground", "Background", "Orphan", "nil""#,
            ),
        ];
        for (status, message) in cases {
            assert_eq!((status.code, status.message.as_str()), (422, message));
        }
    }

    #[test]
    fn the_body_of_a_deletion_counts_before_its_query() {
        let body = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Foreground", "preconditions": {"uid": "u"}});
        let options = delete(&Query::parse("propagationPolicy=Orphan"), Some(&body)).unwrap();
        assert_eq!(options.grace, Some(0));
        assert_eq!(options.propagation, Some(Propagation::Foreground));
        assert_eq!(options.preconditions.uid.as_deref(), Some("u"));
    }
}
