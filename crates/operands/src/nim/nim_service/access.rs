//! Accounts of pods, and what they may do.

use std::collections::BTreeMap;

use capstan_plan::Object;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Cx, names};

/// ServiceAccount, Role and RoleBinding of the serving pods.
pub(super) fn objects(cx: &Cx<'_>) -> [Object; 3] {
    // OpenShift lets the pods start only if their account may use a security context constraint. Elsewhere the rule
    // grants nothing.
    let rule = PolicyRule {
        api_groups: Some(vec!["security.openshift.io".into()]),
        resources: Some(vec!["securitycontextconstraints".into()]),
        resource_names: Some(vec![names::security_context_constraint(cx).into()]),
        verbs: vec!["use".into()],
        ..PolicyRule::default()
    };
    // Clouds tie identities to accounts by annotations.
    granted(&names::bare(cx, &cx.name), cx.spec().annotations.clone(), vec![rule])
}

/// An account, a role with these rules, and the binding between them.
pub(super) fn granted(
    metadata: &ObjectMeta,
    annotations: Option<BTreeMap<String, String>>,
    rules: Vec<PolicyRule>,
) -> [Object; 3] {
    let name = metadata.name.clone().unwrap_or_default();
    let account =
        ServiceAccount { metadata: ObjectMeta { annotations, ..metadata.clone() }, ..ServiceAccount::default() };
    let role = Role { metadata: metadata.clone(), rules: Some(rules) };
    let binding = RoleBinding {
        metadata: metadata.clone(),
        role_ref: RoleRef {
            api_group: Some("rbac.authorization.k8s.io".into()),
            kind: "Role".into(),
            name: name.clone(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".into(),
            name,
            namespace: metadata.namespace.clone(),
            ..Subject::default()
        }]),
    };
    [Object::new(&account), Object::new(&role), Object::new(&binding)]
}
