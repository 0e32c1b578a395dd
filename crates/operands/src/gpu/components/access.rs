//! Who a component is and what it may do: accounts with the right to run privileged pods on OpenShift.

use capstan_plan::Object;
use capstan_plan::kit::openshift::{self, Shares};
use capstan_plan::kit::rbac::{self, Rights, rule, use_constraints};
use k8s_openapi::api::rbac::v1::PolicyRule;

use super::context::Cx;

/// What unloading a driver takes: looking at the node, and evicting the pods that use its GPUs.
pub(crate) fn unloading() -> Vec<PolicyRule> {
    vec![
        rule("config.openshift.io", &["clusterversions"], &["get", "list"]),
        rule("", &["nodes"], &["get", "list", "patch", "watch"]),
        rule("", &["pods"], &["get", "list", "watch"]),
        rule("", &["pods/eviction"], &["create"]),
    ]
}

/// An account with these rights, besides the use of OpenShift's `privileged` constraints.
pub(crate) fn access(cx: &Cx<'_>, account: &str, rights: Rights) -> Vec<Object> {
    let privileged = use_constraints(vec!["privileged".into()]);
    let here = std::iter::once(privileged).chain(rights.here).collect();
    rbac::access(&cx.scope, account, Rights { here, ..rights })
}

/// OpenShift's constraints for the pods of an account, on OpenShift only.
pub(crate) fn constraints(cx: &Cx<'_>, account: &str, shares: Shares) -> Option<Object> {
    cx.cluster.openshift.as_ref().map(|_| openshift::constraints(&cx.scope, account, shares))
}
