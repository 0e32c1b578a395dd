//! RBAC permissions of the operator. The chart's roles are generated from them, and a test compares them with the
//! requests that the operator sends.
//!
//! Most are derived from the table of kinds; the rest are requests that are not about a watched kind. There are no
//! wildcards, and resourceNames wherever possible.

use std::collections::{BTreeMap, BTreeSet};

use capstan_runtime::kinds::KINDS;
use capstan_runtime::leader;
use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::PRODUCTS;

/// Scope of a permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The cluster.
    Cluster,
    /// The operator's own namespace.
    Own,
}

/// Purpose of a permission: it is left out of the chart where the feature is disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// The operator itself.
    Always,
    /// Installing CRDs.
    Crds,
    /// An admission webhook with a self-managed certificate.
    Webhook,
    /// Authorization of `/metrics`.
    Metrics,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// Its scope.
    pub place: Place,
    /// What it is for.
    pub purpose: Purpose,
    /// API group.
    pub group: String,
    /// Resources, some with a subresource.
    pub resources: Vec<String>,
    /// Names of objects; empty for all.
    pub names: Vec<String>,
    /// Verbs.
    pub verbs: Vec<String>,
}

/// Names that differ from release to release.
#[derive(Clone, Debug)]
pub struct Release {
    /// The ValidatingWebhookConfiguration.
    pub webhook_configuration: String,
    /// The operator's own namespace, in which operands run.
    pub namespace: String,
}

/// SecurityContextConstraints that roles of NIMService pods refer to. RBAC lets only a subject that has a permission
/// grant it.
const CONSTRAINTS: &[&str] = &["anyuid", "hostmount-anyuid", "nonroot"];

const READ: &[&str] = &["get", "list", "watch"];

/// All permissions of the operator.
pub fn rights(release: &Release) -> Vec<Right> {
    let mut rights = of_kinds();
    let mut add = |place, purpose, (group, resource): (&str, &str), names: &[String], verbs: &[&str]| {
        rights.push(Right {
            place,
            purpose,
            group: group.into(),
            resources: vec![resource.into()],
            names: names.to_vec(),
            verbs: owned(verbs),
        });
    };
    let crds: Vec<String> = capstan_api::kinds().map(|kind| kind.crd_name()).collect();
    let definitions = ("apiextensions.k8s.io", "customresourcedefinitions");
    let constraints = ("security.openshift.io", "securitycontextconstraints");
    let configurations = ("admissionregistration.k8s.io", "validatingwebhookconfigurations");
    let leases = ("coordination.k8s.io", "leases");
    use Place::{Cluster, Own};
    use Purpose::{Always, Crds, Metrics, Webhook};
    add(Cluster, Always, ("", "events"), &[], &["create", "patch"]);
    add(Cluster, Always, definitions, &crds, &["get"]);
    add(Cluster, Crds, definitions, &crds, &["create", "patch"]);
    add(Cluster, Always, constraints, &owned(CONSTRAINTS), &["use"]);
    // Pod Security labels of the operands' namespace.
    add(Cluster, Always, ("", "namespaces"), std::slice::from_ref(&release.namespace), &["patch"]);
    // The GPUReady condition; also needed to remove it when the feature is disabled.
    add(Cluster, Always, ("", "nodes/status"), &[], &["patch"]);
    // Drains for driver upgrades.
    add(Cluster, Always, ("", "pods/eviction"), &[], &["create"]);
    // Manifests and progress of caches and builds.
    add(Cluster, Always, ("", "pods/log"), &[], &["get"]);
    // Permissions of the endpoint pickers of NIMServices, beyond ours.
    add(Cluster, Always, ("inference.networking.k8s.io", "inferenceobjectives"), &[], READ);
    add(Cluster, Always, ("inference.networking.x-k8s.io", "inferenceobjectives"), &[], READ);
    add(Cluster, Always, ("inference.networking.x-k8s.io", "inferencepools"), &[], READ);
    add(Cluster, Webhook, configurations, std::slice::from_ref(&release.webhook_configuration), &["get", "patch"]);
    add(Cluster, Metrics, ("authentication.k8s.io", "tokenreviews"), &[], &["create"]);
    add(Cluster, Metrics, ("authorization.k8s.io", "subjectaccessreviews"), &[], &["create"]);
    // RBAC cannot restrict a create by name.
    add(Own, Always, leases, &[], &["create"]);
    add(Own, Always, leases, &[leader::LEASE_NAME.into()], &["get", "patch"]);
    for product in PRODUCTS {
        let (here, everywhere) = (product.granted)();
        grant(&mut rights, Cluster, &everywhere);
        grant(&mut rights, Own, &here);
    }
    rights.sort();
    rights
}

/// Permissions from the table of kinds: one rule per group and set of verbs.
fn of_kinds() -> Vec<Right> {
    let mut rules: BTreeMap<(&str, &[&str]), Vec<String>> = BTreeMap::new();
    // A slice needs no permission beyond that of its kind.
    for kind in KINDS.iter().filter(|kind| kind.slice.is_empty()) {
        rules.entry((kind.group, kind.purpose.verbs())).or_default().push(kind.plural.into());
        if kind.purpose.reconciles() {
            rules.entry((kind.group, &["patch"])).or_default().push(format!("{}/status", kind.plural));
        }
    }
    let right = |((group, verbs), mut resources): ((&str, &[&str]), Vec<String>)| {
        resources.sort();
        Right {
            place: Place::Cluster,
            purpose: Purpose::Always,
            group: group.into(),
            resources,
            names: Vec::new(),
            verbs: owned(verbs),
        }
    };
    rules.into_iter().map(right).collect()
}

/// Adds the permissions in `rules` that are not covered yet: RBAC lets only a subject that has a permission grant it.
fn grant(rights: &mut Vec<Right>, place: Place, rules: &[PolicyRule]) {
    let has = |group: &str, resource: &str, names: &[String], verb: &str| {
        rights.iter().any(|right| {
            let covered =
                right.names.is_empty() || (!names.is_empty() && names.iter().all(|name| right.names.contains(name)));
            (right.place == Place::Cluster || right.place == place)
                && right.group == group
                && right.resources.iter().any(|one| one == resource)
                && right.verbs.iter().any(|one| one == verb)
                && covered
        })
    };
    let mut verbs: BTreeMap<(String, Vec<String>, String), BTreeSet<String>> = BTreeMap::new();
    for rule in rules {
        let names = rule.resource_names.clone().unwrap_or_default();
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                let missing = rule.verbs.iter().filter(|verb| !has(group, resource, &names, verb));
                let entry = verbs.entry((group.clone(), names.clone(), resource.clone())).or_default();
                entry.extend(missing.cloned());
            }
        }
    }
    let mut resources: BTreeMap<(String, Vec<String>, Vec<String>), Vec<String>> = BTreeMap::new();
    for ((group, names, resource), verbs) in verbs.into_iter().filter(|(_, verbs)| !verbs.is_empty()) {
        resources.entry((group, names, verbs.into_iter().collect())).or_default().push(resource);
    }
    rights.extend(resources.into_iter().map(|((group, names, verbs), resources)| Right {
        place,
        purpose: Purpose::Always,
        group,
        resources,
        names,
        verbs,
    }));
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

impl From<&Right> for PolicyRule {
    fn from(right: &Right) -> Self {
        Self {
            api_groups: Some(vec![right.group.clone()]),
            resources: Some(right.resources.clone()),
            resource_names: (!right.names.is_empty()).then(|| right.names.clone()),
            verbs: right.verbs.clone(),
            non_resource_urls: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_a_wildcard_and_nobody_lifts_the_checks() {
        let release = Release { webhook_configuration: "w".into(), namespace: "n".into() };
        for right in rights(&release) {
            let words = right.resources.iter().chain(&right.verbs).chain(&right.names).chain([&right.group]);
            assert!(!words.clone().any(|word| word.contains('*')), "{right:?}");
            assert!(
                !words.clone().any(|word| ["escalate", "bind", "impersonate"].contains(&word.as_str())),
                "{right:?}"
            );
            assert!(!right.verbs.is_empty() && !right.resources.is_empty(), "{right:?}");
        }
    }
}
