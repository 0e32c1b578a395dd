//! Names, labels and annotations of the objects of a service.

use std::collections::BTreeMap;

use capstan_plan::kit::proxy;
use capstan_plan::kit::{INSTANCE, hash_json, merge_maps};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Cx;

/// Value of `app.kubernetes.io/managed-by`: dashboards and the caches select by it.
pub const MANAGED_BY: &str = "k8s-nim-operator";

/// Label with the role in a multi-node service: leader or worker.
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

/// Selector of the serving pods.
pub(super) fn selector(cx: &Cx<'_>) -> Map {
    match cx.multi_node() {
        Some(_) => role(cx, "leader"),
        None => map(&[("app", &cx.name)]),
    }
}

/// Selector of the pods of one role.
pub(super) fn role(cx: &Cx<'_>, role: &str) -> Map {
    map(&[("app", &of_group(cx)), (ROLE, role)])
}

/// Labels of every child: the standard ones win over the user's.
pub(super) fn labels(cx: &Cx<'_>) -> Map {
    let standard = map(&[
        ("app.kubernetes.io/name", &cx.name),
        (INSTANCE, &cx.name),
        // Empty on purpose: a version here would be in the pod template and restart every model on an upgrade.
        ("app.kubernetes.io/operator-version", ""),
        ("app.kubernetes.io/part-of", "nim-service"),
        ("app.kubernetes.io/managed-by", MANAGED_BY),
    ]);
    merge_maps(standard, cx.spec().labels.as_ref())
}

/// Labels of the pods: selector labels win, or the server would reject the workload.
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

/// Metadata of a child with the name of the service.
pub(super) fn meta(cx: &Cx<'_>) -> ObjectMeta {
    named(cx, &cx.name)
}

/// Metadata of a child.
pub(super) fn named(cx: &Cx<'_>, name: &str) -> ObjectMeta {
    ObjectMeta { annotations: Some(annotations(cx)), ..bare(cx, name) }
}

/// Metadata of a child without annotations, so that it does not change with the spec.
pub(super) fn bare(cx: &Cx<'_>, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.into()),
        namespace: Some(cx.namespace.clone()),
        labels: Some(labels(cx)),
        ..ObjectMeta::default()
    }
}

/// Metadata of a child with the name of the service, and with additional annotations of lowest precedence.
pub(super) fn annotated(cx: &Cx<'_>, extra: Option<&Map>) -> ObjectMeta {
    let meta = meta(cx);
    ObjectMeta { annotations: meta.annotations.map(|own| merge_maps(own, extra)), ..meta }
}

pub(super) fn map(entries: &[(&str, &str)]) -> Map {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}
