//! Full validation of a custom resource.

use capstan_semantics::field;
use serde_json::Value;

use super::{Schema, cel, embedded, unique, validate};
use crate::error::Cause;
use crate::field::Path;
use crate::registry::{CustomVersion, Resource};

/// Validation errors and warnings of an object.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Errors.
    pub causes: Vec<Cause>,
    /// Failed rules that are tolerated, as they failed before (ratcheting).
    pub warnings: Vec<String>,
}

/// Validates an object against its schema; `subresource` is `status` if only the status can have changed.
///
/// Built-in kinds are validated in code, elsewhere.
pub fn check(resource: &Resource, subresource: &str, object: &Value, old: Option<&Value>) -> Verdict {
    let Some(custom) = resource.custom() else { return Verdict::default() };
    let schema = &custom.declared;
    let mut verdict = Verdict::default();
    if subresource == "status" {
        verdict.causes.extend(status_faults(schema, object, old));
        verdict.causes.extend(scale_status_faults(custom, object));
    } else {
        verdict.causes.extend(validate::validate(schema, object, old));
        verdict.causes.extend(scale_spec_faults(custom, object));
        verdict.causes.extend(scale_status_faults(custom, object));
        verdict.causes.extend(embedded::check(schema, object));
    }
    // Pre-existing duplicates are tolerated.
    if old.is_none_or(|old| unique::check(schema, old).is_empty()) {
        verdict.causes.extend(unique::check(schema, object));
    }
    let rules = custom.rules.get(schema);
    if rules.is_empty() {
        return verdict;
    }
    if verdict.causes.iter().any(blocks_rules) {
        let detail = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
        verdict.causes.push(Cause::invalid(&Path::root(), &Value::Null, detail));
    } else {
        let outcome = cel::evaluate(rules, schema, object, old);
        verdict.causes.extend(outcome.causes);
        verdict.warnings.extend(outcome.warnings);
    }
    verdict
}

/// Errors that prevent the evaluation of rules.
fn blocks_rules(cause: &Cause) -> bool {
    const BLOCKING: &[&str] = &[
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    ];
    BLOCKING.contains(&cause.reason)
}

/// Validates only the status: paths are from the root, messages relative to the status, as in kube-apiserver.
fn status_faults(schema: &Schema, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let (Some(schema), Some(status)) = (schema.property("status"), object.get("status")) else { return Vec::new() };
    let causes = validate::validate(schema, status, old.and_then(|old| old.get("status")));
    let prefixed = |mut cause: Cause| {
        cause.field = match cause.field.as_str() {
            "<nil>" => "status".to_owned(),
            field => format!("status.{field}"),
        };
        cause
    };
    causes.into_iter().map(prefixed).collect()
}

fn scale_spec_faults(custom: &CustomVersion, object: &Value) -> Vec<Cause> {
    let path = custom.scale.as_ref().and_then(|scale| scale["specReplicasPath"].as_str());
    path.map_or_else(Vec::new, |path| replica_faults(path, object))
}

fn scale_status_faults(custom: &CustomVersion, object: &Value) -> Vec<Cause> {
    let Some(scale) = &custom.scale else { return Vec::new() };
    let mut causes = scale["statusReplicasPath"].as_str().map_or_else(Vec::new, |path| replica_faults(path, object));
    if let Some(path) = scale["labelSelectorPath"].as_str()
        && let Some(value) = field::get(object, path).filter(|value| !value.is_string())
    {
        let detail = format!("{path} accessor error: {value} is of the type {}, expected string", go_kind(value));
        causes.push(Cause::invalid(&Path::new(path), &"".into(), &detail));
    }
    causes
}

fn replica_faults(path: &str, object: &Value) -> Vec<Cause> {
    let Some(value) = field::get(object, path) else { return Vec::new() };
    let Some(replicas) = value.as_i64() else {
        let detail = format!("{path} accessor error: {value} is of the type {}, expected int64", go_kind(value));
        return vec![Cause::invalid(&Path::new(path), &0.into(), &detail)];
    };
    let detail = if replicas < 0 {
        "should be a non-negative integer"
    } else if replicas > i64::from(i32::MAX) {
        "should be less than or equal to 2147483647"
    } else {
        return Vec::new();
    };
    vec![Cause::invalid(&Path::new(path), value, detail)]
}

fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
