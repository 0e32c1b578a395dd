//! Who an operand is and what it may do: ServiceAccount, roles, and OpenShift's security constraints.

use std::collections::BTreeMap;

use capstan_api::foreign::SecurityContextConstraints;
use capstan_api::foreign::openshift::{SecurityContextConstraintsSpec, Strategy};
use capstan_plan::Object;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::{Cx, MANAGER};

const RBAC: &str = "rbac.authorization.k8s.io";

/// Rights of an operand, in its namespace and in the cluster.
#[derive(Default)]
pub(crate) struct Rights {
    /// In the operator's namespace, besides the use of OpenShift's `privileged` constraints.
    pub(crate) here: Vec<PolicyRule>,
    /// In the cluster.
    pub(crate) everywhere: Vec<PolicyRule>,
}

/// What host namespaces OpenShift lets the pods of an operand share.
#[derive(Clone, Copy, Default)]
pub(crate) struct Shares {
    pub(crate) pid: bool,
    pub(crate) ipc: bool,
    pub(crate) network: bool,
    pub(crate) ports: bool,
    /// Whether any capability and sysctl may be asked for.
    pub(crate) anything: bool,
}

/// One rule.
pub(crate) fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let list = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(vec![group.into()]),
        resources: Some(list(resources)),
        verbs: list(verbs),
        ..PolicyRule::default()
    }
}

/// What unloading a driver takes: looking at the node, and evicting the pods that use its GPUs.
pub(crate) fn unloading() -> Vec<PolicyRule> {
    vec![
        rule("config.openshift.io", &["clusterversions"], &["get", "list"]),
        rule("", &["nodes"], &["get", "list", "patch", "watch"]),
        rule("", &["pods"], &["get", "list", "watch"]),
        rule("", &["pods/eviction"], &["create"]),
    ]
}

/// ServiceAccount, Role, RoleBinding and, with rights in the cluster, ClusterRole and ClusterRoleBinding, all of the
/// account's name.
pub(crate) fn access(cx: &Cx<'_>, account: &str, rights: Rights) -> Vec<Object> {
    let privileged = PolicyRule {
        resource_names: Some(vec!["privileged".into()]),
        ..rule("security.openshift.io", &["securitycontextconstraints"], &["use"])
    };
    let rules = std::iter::once(privileged).chain(rights.here).collect();
    let service_account = ServiceAccount { metadata: meta(cx, account, true), ..ServiceAccount::default() };
    let mut objects = vec![Object::new(&service_account)];
    objects.extend(role(cx, account, account, rules));
    if !rights.everywhere.is_empty() {
        objects.extend(cluster_role(cx, account, account, rights.everywhere));
    }
    objects
}

/// A Role and its binding to an account, both in the operator's namespace.
pub(crate) fn role(cx: &Cx<'_>, name: &str, account: &str, rules: Vec<PolicyRule>) -> Vec<Object> {
    let metadata = || meta(cx, name, true);
    vec![
        Object::new(&Role { metadata: metadata(), rules: Some(rules) }),
        Object::new(&RoleBinding {
            metadata: metadata(),
            role_ref: RoleRef { api_group: Some(RBAC.into()), kind: "Role".into(), name: name.into() },
            subjects: Some(vec![subject(cx, account)]),
        }),
    ]
}

/// A ClusterRole and its binding to an account of the operator's namespace.
pub(crate) fn cluster_role(cx: &Cx<'_>, name: &str, account: &str, rules: Vec<PolicyRule>) -> Vec<Object> {
    let metadata = || meta(cx, name, false);
    vec![
        Object::new(&ClusterRole { metadata: metadata(), rules: Some(rules), ..ClusterRole::default() }),
        Object::new(&ClusterRoleBinding {
            metadata: metadata(),
            role_ref: RoleRef { api_group: Some(RBAC.into()), kind: "ClusterRole".into(), name: name.into() },
            subjects: Some(vec![subject(cx, account)]),
        }),
    ]
}

/// An account of the operator's namespace, as bindings name it.
fn subject(cx: &Cx<'_>, account: &str) -> Subject {
    Subject {
        kind: "ServiceAccount".into(),
        name: account.into(),
        namespace: Some(cx.namespace().into()),
        ..Subject::default()
    }
}

/// OpenShift's constraints for the pods of an account, on OpenShift only.
pub(crate) fn constraints(cx: &Cx<'_>, account: &str, shares: Shares) -> Option<Object> {
    cx.cluster.openshift.as_ref()?;
    let strategy = || Some(Strategy { type_: Some("RunAsAny".into()) });
    let any = || Some(vec!["*".to_owned()]);
    let spec = SecurityContextConstraintsSpec {
        allow_host_dir_volume_plugin: Some(true),
        allow_host_ipc: Some(shares.ipc),
        allow_host_network: Some(shares.network),
        allow_host_pid: Some(shares.pid),
        allow_host_ports: Some(shares.ports),
        allow_privilege_escalation: Some(true),
        allow_privileged_container: Some(true),
        allowed_capabilities: any().filter(|_| shares.anything),
        allowed_unsafe_sysctls: any().filter(|_| shares.anything),
        read_only_root_filesystem: Some(false),
        fs_group: strategy(),
        run_as_user: strategy(),
        se_linux_context: strategy(),
        supplemental_groups: strategy(),
        seccomp_profiles: any(),
        volumes: any(),
        groups: Some(["system:cluster-admins", "system:nodes", "system:masters"].map(Into::into).to_vec()),
        users: Some(vec![format!("system:serviceaccount:{}:{account}", cx.namespace())]),
        ..SecurityContextConstraintsSpec::default()
    };
    let mut constraints = SecurityContextConstraints::new(account, spec);
    constraints.metadata = meta(cx, account, false);
    Some(Object::new(&constraints))
}

/// The node that the writer's pod runs on, as its token says; empty when it does not.
pub(crate) const HERE: &str = "has(request.userInfo.extra) \
    && 'authentication.kubernetes.io/node-name' in request.userInfo.extra \
    ? request.userInfo.extra['authentication.kubernetes.io/node-name'][0] : ''";

/// Whether an account of the operator's namespace is the writer.
pub(crate) fn written_by(cx: &Cx<'_>, account: &str) -> String {
    format!("request.userInfo.username == 'system:serviceaccount:{}:{account}'", cx.namespace())
}

/// A policy of admission and its binding, both of that name.
pub(crate) fn admission(cx: &Cx<'_>, name: &str, spec: Value) -> Vec<Object> {
    let binding = json!({"policyName": name, "validationActions": ["Deny"]});
    vec![
        Object::new(&ValidatingAdmissionPolicy {
            metadata: meta(cx, name, false),
            spec: Some(serde_json::from_value(spec).expect("the policy is written here")),
            ..ValidatingAdmissionPolicy::default()
        }),
        Object::new(&ValidatingAdmissionPolicyBinding {
            metadata: meta(cx, name, false),
            spec: serde_json::from_value(binding).expect("the binding is written here"),
        }),
    ]
}

/// Metadata of an object of ours.
pub(crate) fn meta(cx: &Cx<'_>, name: &str, namespaced: bool) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.into()),
        namespace: namespaced.then(|| cx.namespace().into()),
        labels: Some(BTreeMap::from([("app.kubernetes.io/managed-by".into(), MANAGER.into())])),
        ..ObjectMeta::default()
    }
}
