//! ServiceAccount, Role and RoleBinding of the pods.

use capstan_plan::Object;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};

use super::{Cx, names};

pub(super) fn objects(cx: &Cx<'_>) -> Vec<Object> {
    let account = ServiceAccount { metadata: names::meta(cx), ..ServiceAccount::default() };
    // OpenShift lets the pods start only if their account may use a security context constraint. Elsewhere the rule
    // grants nothing.
    let rule = PolicyRule {
        api_groups: Some(vec!["security.openshift.io".into()]),
        resources: Some(vec!["securitycontextconstraints".into()]),
        resource_names: Some(vec![names::security_context_constraint(cx).into()]),
        verbs: vec!["use".into()],
        ..PolicyRule::default()
    };
    let role = Role { metadata: names::meta(cx), rules: Some(vec![rule]) };
    let binding = RoleBinding {
        metadata: names::meta(cx),
        role_ref: RoleRef {
            api_group: Some("rbac.authorization.k8s.io".into()),
            kind: "Role".into(),
            name: cx.name.clone(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".into(),
            name: cx.name.clone(),
            namespace: Some(cx.namespace.clone()),
            ..Subject::default()
        }]),
    };
    vec![Object::new(&account), Object::new(&role), Object::new(&binding)]
}
