//! MutatingAdmissionPolicies and their bindings.

use serde_json::Value;

use super::hooks;
use crate::admit::field::{At, Errors};
use crate::admit::json::Read;

/// A MutatingAdmissionPolicy.
pub(super) fn policy(errors: &mut Errors, object: &Value) {
    let (at, spec) = (At::new("spec"), &object["spec"]);
    hooks::policy_scope(errors, &at, spec);
    let path = at.child("mutations");
    if spec.list("mutations").is_empty() {
        errors.required(&path, "mutations must contain at least one item");
    }
    for (index, one) in spec.list("mutations").iter().enumerate() {
        mutation(errors, &path.index(index), one);
    }
    if spec.text("reinvocationPolicy").is_empty() {
        errors.required(&at.child("reinvocationPolicy"), "");
    } else {
        hooks::choice(errors, &at, spec, "reinvocationPolicy", &["IfNeeded", "Never"]);
    }
    hooks::expressions(errors, &at, spec);
}

fn mutation(errors: &mut Errors, at: &At<'_>, mutation: &Value) {
    let kind = mutation.text("patchType");
    let (own, other) = match kind {
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch"),
        "JSONPatch" => ("jsonPatch", "applyConfiguration"),
        "" => return errors.required(&at.child("patchType"), ""),
        _ => return errors.unsupported(&at.child("patchType"), kind, &["ApplyConfiguration", "JSONPatch"]),
    };
    if !mutation.has(own) {
        errors.required(&at.child(own), &format!("must be specified when patchType is {kind}"));
    } else if mutation[own].text("expression").trim().is_empty() {
        errors.required(&at.child(own).child("expression"), "");
    }
    if mutation.has(other) {
        let why = format!("must not be specified when patchType is {kind}");
        errors.invalid(&at.child(other), &format!("{{{other}}}"), &why);
    }
}

/// A MutatingAdmissionPolicyBinding.
pub(super) fn binding(errors: &mut Errors, binding: &Value) {
    hooks::bound(errors, &At::new("spec"), &binding["spec"]);
}
