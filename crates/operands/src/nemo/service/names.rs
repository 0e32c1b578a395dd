//! Names, labels and annotations of everything that belongs to one service.

use std::collections::BTreeMap;

use capstan_plan::kit::{INSTANCE, hash_json, merge_maps};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Cx;

/// Value of `app.kubernetes.io/managed-by`: dashboards and the caches select by it.
pub const MANAGED_BY: &str = "k8s-nim-operator";

/// OpenShift's security context constraint that the pods need.
pub(super) const CONSTRAINT: &str = "nonroot";

/// Annotation of a custom resource: the ServiceAccount of its pods. With it neither account nor Role is made.
pub(super) const ACCOUNT: &str = "apps.nvidia.com/service-account";

/// Annotation of a custom resource: `Retain` keeps the claim that was made for it.
pub(super) const RETENTION: &str = "nvidia.com/pvc-retention";

pub(super) type Map = BTreeMap<String, String>;

/// An annotation of the custom resource itself.
pub(super) fn annotation<'a>(cx: &Cx<'a>, key: &str) -> Option<&'a str> {
    cx.meta.annotations.as_ref()?.get(key).map(String::as_str).filter(|value| !value.is_empty())
}

/// What the Deployment selects its pods by. It cannot change.
pub(super) fn selector(cx: &Cx<'_>) -> Map {
    map(&[("app", &cx.name)])
}

/// What the Service selects pods by.
pub(super) fn service_selector(cx: &Cx<'_>) -> Map {
    cx.service.about().selector.iter().map(|key| ((*key).to_owned(), cx.name.clone())).collect()
}

/// Labels of every child: the standard ones win over the user's.
pub(super) fn labels(cx: &Cx<'_>) -> Map {
    let standard = map(&[
        ("app.kubernetes.io/name", &cx.name),
        (INSTANCE, &cx.name),
        // Empty on purpose: a version here would be in the pod template and restart every service on upgrade.
        ("app.kubernetes.io/operator-version", ""),
        ("app.kubernetes.io/part-of", cx.service.about().part_of),
        ("app.kubernetes.io/managed-by", MANAGED_BY),
    ]);
    merge_maps(standard, cx.service.server().labels.as_ref())
}

/// Labels of the pods: the selector's win over everything, or the server would refuse the Deployment.
pub(super) fn pod_labels(cx: &Cx<'_>) -> Map {
    merge_maps(selector(cx), Some(&labels(cx)))
}

/// Annotations of the pods, and of what does not change with every change of the spec.
pub(super) fn pod_annotations(cx: &Cx<'_>) -> Map {
    merge_maps(map(&[("openshift.io/required-scc", CONSTRAINT)]), cx.service.server().annotations.as_ref())
}

/// Metadata of a child.
pub(super) fn meta(cx: &Cx<'_>) -> ObjectMeta {
    let parent = map(&[("nvidia.com/parent-spec-hash", &hash_json(&cx.service.json()))]);
    ObjectMeta { annotations: Some(merge_maps(parent, Some(&pod_annotations(cx)))), ..bare(cx) }
}

/// Metadata of a child without annotations.
pub(super) fn bare(cx: &Cx<'_>) -> ObjectMeta {
    ObjectMeta {
        name: Some(cx.name.clone()),
        namespace: Some(cx.namespace.clone()),
        labels: Some(labels(cx)),
        ..ObjectMeta::default()
    }
}

/// Metadata of a child whose content does not depend on the whole spec.
pub(super) fn quiet(cx: &Cx<'_>) -> ObjectMeta {
    ObjectMeta { annotations: Some(pod_annotations(cx)), ..bare(cx) }
}

/// Metadata of a child with annotations of its own that everything else wins over.
pub(super) fn annotated(cx: &Cx<'_>, extra: Option<&Map>) -> ObjectMeta {
    let meta = meta(cx);
    ObjectMeta { annotations: meta.annotations.map(|own| merge_maps(own, extra)), ..meta }
}

pub(super) fn map(entries: &[(&str, &str)]) -> Map {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}
