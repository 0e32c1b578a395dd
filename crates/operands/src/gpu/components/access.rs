//! ServiceAccounts and RBAC of components, with SCCs on OpenShift.

use capstan_plan::Object;
use capstan_plan::kit::openshift::{self, Shares};
use capstan_plan::kit::rbac::{self, Rights, rule, use_constraints};
use k8s_openapi::api::rbac::v1::PolicyRule;

use super::context::Cx;

/// RBAC rules to unload a driver: read the node, evict pods that use its GPUs.
pub(crate) fn unloading() -> Vec<PolicyRule> {
    vec![
        rule("config.openshift.io", &["clusterversions"], &["get", "list"]),
        rule("", &["nodes"], &["get", "list", "patch", "watch"]),
        rule("", &["pods"], &["get", "list", "watch"]),
        rule("", &["pods/eviction"], &["create"]),
    ]
}

/// A ServiceAccount with these rules, and with the `privileged` SCC of OpenShift.
pub(crate) fn access(cx: &Cx<'_>, account: &str, rights: Rights) -> Vec<Object> {
    let privileged = use_constraints(vec!["privileged".into()]);
    let here = std::iter::once(privileged).chain(rights.here).collect();
    rbac::access(&cx.scope, account, Rights { here, ..rights })
}

/// SecurityContextConstraints for the pods of an account, on OpenShift only.
pub(crate) fn constraints(cx: &Cx<'_>, account: &str, shares: Shares) -> Option<Object> {
    cx.cluster.openshift.as_ref().map(|_| openshift::constraints(&cx.scope, account, shares))
}
