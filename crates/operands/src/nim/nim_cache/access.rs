//! ServiceAccount, Role and RoleBinding that all caches of a namespace share.

use capstan_api::nim::NimCache;
use capstan_plan::kit::rbac;
use capstan_plan::{Gvk, Object};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};

use super::super::nim_service::MANAGED_BY;
use super::Cx;

/// The ServiceAccount of the pods.
pub(super) const ACCOUNT: &str = "nim-cache-sa";
const ROLE: &str = "nim-cache-role";
const BINDING: &str = "nim-cache-rolebinding";

pub(super) fn objects(cx: &Cx<'_>) -> Vec<Object> {
    let caches = caches(cx);
    // The union over the caches of the namespace: one with a proxy must not revoke the SCC of the others.
    let mut constraints: Vec<String> = caches.iter().map(|cache| constraint(cache).to_owned()).collect();
    constraints.sort();
    constraints.dedup();
    let objects = [
        rbac::service_account(meta(cx, ACCOUNT, &caches)),
        rbac::role(meta(cx, ROLE, &caches), vec![rbac::use_constraints(constraints)]),
        rbac::role_binding(meta(cx, BINDING, &caches), ROLE, ACCOUNT, &cx.namespace),
    ];
    objects.into_iter().map(Object::shared).collect()
}

/// OpenShift's security context constraint that the pods of a cache need.
pub(super) fn constraint(cache: &NimCache) -> &'static str {
    if cache.spec.proxy.is_some() { "anyuid" } else { "nonroot" }
}

/// All caches of the namespace that are not terminating, this one included, sorted by name.
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

/// Owned by every cache, so that they are garbage-collected with the last one.
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
