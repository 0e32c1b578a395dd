//! The account of the pods, and what it may do.

use capstan_plan::Object;
use capstan_plan::kit::rbac;
use k8s_openapi::api::rbac::v1::PolicyRule;

use super::description::{Form, Parts, Place, Service, Settings};
use super::{Cx, names};

/// ServiceAccount, Role and RoleBinding of the pods; none where the user brings an account.
pub(super) fn objects(cx: &Cx<'_>, parts: &Parts) -> Vec<Object> {
    if names::annotation(cx, names::ACCOUNT).is_some() {
        return Vec::new();
    }
    // OpenShift lets pods start only if their account may use a security context constraint.
    let first = rbac::use_constraints(vec![names::CONSTRAINT.into()]);
    let rules = std::iter::once(first).chain(parts.rules.iter().cloned()).collect();
    rbac::account_with_role(&names::bare(cx), None, rules).into()
}

/// Name of the account.
pub(super) fn account<'a>(cx: &'a Cx<'_>) -> &'a str {
    names::annotation(cx, names::ACCOUNT).unwrap_or(&cx.name)
}

/// What accounts of services like `spec` may do beyond the constraint: who grants a right must have it.
pub fn granted(spec: &dyn Service) -> Vec<PolicyRule> {
    let settings = Settings::default();
    spec.parts(&Place { name: "", namespace: "", form: Form::Own, settings: &settings }).rules
}
