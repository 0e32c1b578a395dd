//! ServiceAccount, Role and RoleBinding that all caches of a namespace share.

use capstan_api::nim::NimCache;
use capstan_plan::{Gvk, Object};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};

use super::super::nim_service::MANAGED_BY;
use super::Cx;

/// The account of the pods.
pub(super) const ACCOUNT: &str = "nim-cache-sa";
const ROLE: &str = "nim-cache-role";
const BINDING: &str = "nim-cache-rolebinding";

pub(super) fn objects(cx: &Cx<'_>) -> Vec<Object> {
    let caches = caches(cx);
    let account = ServiceAccount { metadata: meta(cx, ACCOUNT, &caches), ..ServiceAccount::default() };
    // The union of what the caches of the namespace need: one with a proxy must not take the right from the others.
    let mut constraints: Vec<String> = caches.iter().map(|cache| constraint(cache).to_owned()).collect();
    constraints.sort();
    constraints.dedup();
    let rule = PolicyRule {
        api_groups: Some(vec!["security.openshift.io".into()]),
        resources: Some(vec!["securitycontextconstraints".into()]),
        resource_names: Some(constraints),
        verbs: vec!["use".into()],
        ..PolicyRule::default()
    };
    let role = Role { metadata: meta(cx, ROLE, &caches), rules: Some(vec![rule]) };
    let binding = RoleBinding {
        metadata: meta(cx, BINDING, &caches),
        role_ref: RoleRef {
            api_group: Some("rbac.authorization.k8s.io".into()),
            kind: "Role".into(),
            name: ROLE.into(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".into(),
            name: ACCOUNT.into(),
            namespace: Some(cx.namespace.clone()),
            ..Subject::default()
        }]),
    };
    vec![Object::new(&account).shared(), Object::new(&role).shared(), Object::new(&binding).shared()]
}

/// OpenShift's security context constraint that the pods of a cache need.
pub(super) fn constraint(cache: &NimCache) -> &'static str {
    if cache.spec.proxy.is_some() { "anyuid" } else { "nonroot" }
}

/// Every cache of the namespace that stays, this one included, in the order of names.
fn caches(cx: &Cx<'_>) -> Vec<NimCache> {
    let gvk = Gvk::of::<NimCache>();
    let others = cx.facts.live.iter().filter(|(reference, _)| reference.gvk == gvk && reference.name != cx.name);
    let others = others.filter(|(reference, _)| reference.namespace == cx.namespace);
    let others = others.filter_map(|(reference, _)| cx.facts.live.typed::<NimCache>(&cx.namespace, &reference.name));
    let mut all: Vec<NimCache> = others.filter(|cache| cache.metadata.deletion_timestamp.is_none()).collect();
    all.push(cx.cache.clone());
    all.sort_by_key(NimCache::name_any);
    all
}

/// Owned by every cache, so that they go with the last one.
fn meta(cx: &Cx<'_>, name: &str, caches: &[NimCache]) -> ObjectMeta {
    let owner = |cache: &NimCache| cache.owner_ref(&()).map(|owner| OwnerReference { controller: None, ..owner });
    let labels = [("app", MANAGED_BY), ("app.kubernetes.io/managed-by", MANAGED_BY)];
    ObjectMeta {
        name: Some(name.into()),
        namespace: Some(cx.namespace.clone()),
        labels: Some(labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()),
        owner_references: Some(caches.iter().filter_map(owner).collect()),
        ..ObjectMeta::default()
    }
}
