//! ValidatingAdmissionPolicies that restrict a ServiceAccount to the node of its pod.

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use serde_json::{Value, json};

use super::Scope;
use crate::Object;

/// CEL: the node of the requesting pod, by its token; empty if the token has none.
pub const WRITER_NODE: &str = "has(request.userInfo.extra) \
    && 'authentication.kubernetes.io/node-name' in request.userInfo.extra \
    ? request.userInfo.extra['authentication.kubernetes.io/node-name'][0] : ''";

/// CEL: whether the request comes from a ServiceAccount of the namespace.
pub fn written_by(scope: &Scope, account: &str) -> String {
    format!("request.userInfo.username == 'system:serviceaccount:{}:{account}'", scope.namespace)
}

/// A ValidatingAdmissionPolicy and its binding, with the same name.
pub fn policy(scope: &Scope, name: &str, spec: Value) -> [Object; 2] {
    let binding = json!({"policyName": name, "validationActions": ["Deny"]});
    [
        Object::new(&ValidatingAdmissionPolicy {
            metadata: scope.cluster_meta(name),
            spec: Some(serde_json::from_value(spec).expect("callers write policies that decode")),
            ..ValidatingAdmissionPolicy::default()
        }),
        Object::new(&ValidatingAdmissionPolicyBinding {
            metadata: scope.cluster_meta(name),
            spec: serde_json::from_value(binding).expect("the binding is written here"),
        }),
    ]
}
