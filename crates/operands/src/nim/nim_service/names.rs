//! Names, labels and annotations of everything that belongs to one service.

use std::collections::BTreeMap;

use capstan_plan::kit::{INSTANCE, hash_json, merge_maps};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::super::proxy;
use super::Cx;

/// Value of `app.kubernetes.io/managed-by`: dashboards and the caches select by it.
pub const MANAGED_BY: &str = "k8s-nim-operator";

/// Label that tells the leaders of a multi-node service from its workers.
pub(super) const ROLE: &str = "nim-llm-role";

type Map = BTreeMap<String, String>;

/// OpenShift's security context constraint that the pods need.
pub(super) fn security_context_constraint(cx: &Cx<'_>) -> &'static str {
    if proxy::certificates(cx.spec().proxy.as_ref()).is_some() {
        "anyuid"
    } else if super::storage::host_path(cx).is_some() {
        "hostmount-anyuid"
    } else {
        "nonroot"
    }
}

/// Name of the LeaderWorkerSet, and value of `app` on its pods.
pub(super) fn of_group(cx: &Cx<'_>) -> String {
    format!("{}-lws", cx.name)
}

/// Names of what MPI needs: host files, start script, key.
pub(super) fn of_mpi(cx: &Cx<'_>) -> [String; 3] {
    ["mpi-config", "mpi-start-script", "ssh-pk"].map(|part| format!("{}-{part}", cx.name))
}

/// What the pods that take requests are selected by.
pub(super) fn selector(cx: &Cx<'_>) -> Map {
    match cx.multi_node() {
        Some(_) => role(cx, "leader"),
        None => map(&[("app", &cx.name)]),
    }
}

/// What tells the pods of one role of a multi-node service.
pub(super) fn role(cx: &Cx<'_>, role: &str) -> Map {
    map(&[("app", &of_group(cx)), (ROLE, role)])
}

/// Labels of every child: the standard ones win over the user's.
pub(super) fn labels(cx: &Cx<'_>) -> Map {
    let standard = map(&[
        ("app.kubernetes.io/name", &cx.name),
        (INSTANCE, &cx.name),
        // Empty on purpose: a version here would be in the pod template and restart every model on upgrade.
        ("app.kubernetes.io/operator-version", ""),
        ("app.kubernetes.io/part-of", "nim-service"),
        ("app.kubernetes.io/managed-by", MANAGED_BY),
    ]);
    merge_maps(standard, cx.spec().labels.as_ref())
}

/// Labels of the pods: the selector's win over everything, or the server would refuse the workload.
pub(super) fn pod_labels(cx: &Cx<'_>, selector: Map) -> Map {
    let mut labels = labels(cx);
    labels.remove(ROLE);
    merge_maps(selector, Some(&labels))
}

/// Annotations of the pods.
pub(super) fn pod_annotations(cx: &Cx<'_>) -> Map {
    let standard = map(&[("openshift.io/required-scc", security_context_constraint(cx))]);
    merge_maps(standard, cx.spec().annotations.as_ref())
}

/// Annotations of every other child.
fn annotations(cx: &Cx<'_>) -> Map {
    let parent = map(&[("nvidia.com/parent-spec-hash", &hash_json(cx.spec()))]);
    merge_maps(parent, Some(&pod_annotations(cx)))
}

/// Metadata of a child called like the service itself.
pub(super) fn meta(cx: &Cx<'_>) -> ObjectMeta {
    named(cx, &cx.name)
}

/// Metadata of a child.
pub(super) fn named(cx: &Cx<'_>, name: &str) -> ObjectMeta {
    ObjectMeta { annotations: Some(annotations(cx)), ..bare(cx, name) }
}

/// Metadata of a child without annotations, which thus does not change with every change of the spec.
pub(super) fn bare(cx: &Cx<'_>, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.into()),
        namespace: Some(cx.namespace.clone()),
        labels: Some(labels(cx)),
        ..ObjectMeta::default()
    }
}

/// Metadata of a child called like the service, with annotations of its own that everything else wins over.
pub(super) fn annotated(cx: &Cx<'_>, extra: Option<&Map>) -> ObjectMeta {
    let meta = meta(cx);
    ObjectMeta { annotations: meta.annotations.map(|own| merge_maps(own, extra)), ..meta }
}

pub(super) fn map(entries: &[(&str, &str)]) -> Map {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}
