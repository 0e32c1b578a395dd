//! Names, labels and annotations of everything that belongs to one service.

use std::collections::BTreeMap;

use capstan_plan::kit::{hash, merge_maps};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Cx;

/// Value of `app.kubernetes.io/managed-by`: dashboards and the caches select by it.
pub const MANAGED_BY: &str = "k8s-nim-operator";

/// OpenShift's security context constraint that the pods need.
pub(super) fn security_context_constraint(cx: &Cx<'_>) -> &'static str {
    let proxy = cx.spec().proxy.as_ref();
    if proxy.is_some_and(|proxy| proxy.cert_config_map.as_deref().is_some_and(|name| !name.is_empty())) {
        "anyuid"
    } else if super::storage::host_path(cx).is_some() {
        "hostmount-anyuid"
    } else {
        "nonroot"
    }
}

/// What the pods are selected by.
pub(super) fn selector(cx: &Cx<'_>) -> BTreeMap<String, String> {
    BTreeMap::from([("app".to_owned(), cx.name.clone())])
}

/// Labels of every child: the standard ones win over the user's.
pub(super) fn labels(cx: &Cx<'_>) -> BTreeMap<String, String> {
    let standard = [
        ("app.kubernetes.io/name", cx.name.as_str()),
        ("app.kubernetes.io/instance", cx.name.as_str()),
        // Empty on purpose: a version here would be in the pod template and restart every model on upgrade.
        ("app.kubernetes.io/operator-version", ""),
        ("app.kubernetes.io/part-of", "nim-service"),
        ("app.kubernetes.io/managed-by", MANAGED_BY),
    ];
    let standard = standard.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    merge_maps(standard, cx.spec().labels.as_ref())
}

/// Labels of the pods: the selector's win over everything, or the server would refuse the workload.
pub(super) fn pod_labels(cx: &Cx<'_>) -> BTreeMap<String, String> {
    merge_maps(selector(cx), Some(&labels(cx)))
}

/// Annotations of the pods.
pub(super) fn pod_annotations(cx: &Cx<'_>) -> BTreeMap<String, String> {
    let standard = ("openshift.io/required-scc".to_owned(), security_context_constraint(cx).to_owned());
    merge_maps(BTreeMap::from([standard]), cx.spec().annotations.as_ref())
}

/// Annotations of every other child.
pub(super) fn annotations(cx: &Cx<'_>) -> BTreeMap<String, String> {
    let spec = serde_json::to_string(cx.spec()).expect("a spec is valid JSON");
    let parent = ("nvidia.com/parent-spec-hash".to_owned(), hash(&spec));
    merge_maps(BTreeMap::from([parent]), Some(&pod_annotations(cx)))
}

/// Metadata of a child called like the service itself.
pub(super) fn meta(cx: &Cx<'_>) -> ObjectMeta {
    ObjectMeta {
        name: Some(cx.name.clone()),
        namespace: Some(cx.namespace.clone()),
        labels: Some(labels(cx)),
        annotations: Some(annotations(cx)),
        ..ObjectMeta::default()
    }
}
