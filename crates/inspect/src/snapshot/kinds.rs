//! Kinds of a snapshot: those that the operator watches, and those that diagnosis needs.

use capstan_runtime::kinds::KINDS;

/// A kind to read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kind {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    pub(super) plural: String,
}

/// Kinds that the operator does not watch, or only in part.
const MORE: &[(&str, &str, &str, &str)] = &[
    ("", "v1", "Event", "events"),
    ("", "v1", "Namespace", "namespaces"),
    ("", "v1", "Node", "nodes"),
    ("", "v1", "PersistentVolume", "persistentvolumes"),
    ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    ("", "v1", "Pod", "pods"),
    ("", "v1", "ResourceQuota", "resourcequotas"),
    ("", "v1", "Service", "services"),
    ("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions"),
    ("apps", "v1", "ControllerRevision", "controllerrevisions"),
    ("apps", "v1", "DaemonSet", "daemonsets"),
    ("apps", "v1", "Deployment", "deployments"),
    ("apps", "v1", "ReplicaSet", "replicasets"),
    ("apps", "v1", "StatefulSet", "statefulsets"),
    ("batch", "v1", "Job", "jobs"),
    ("coordination.k8s.io", "v1", "Lease", "leases"),
    ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices"),
    ("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses"),
    ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    ("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses"),
    ("scheduling.volcano.sh", "v1beta1", "Queue", "queues"),
    ("storage.k8s.io", "v1", "StorageClass", "storageclasses"),
];

/// All kinds, each once.
pub(super) fn all() -> Vec<Kind> {
    let watched = KINDS.iter().map(|row| (row.group, row.version, row.kind, row.plural));
    let mut all: Vec<Kind> = watched
        .chain(MORE.iter().copied())
        .map(|(group, version, kind, plural)| Kind {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
            plural: plural.into(),
        })
        .chain(capstan_api::kinds().map(|entry| Kind {
            group: entry.group.into(),
            version: entry.version.into(),
            kind: entry.kind.into(),
            plural: entry.plural.into(),
        }))
        .collect();
    all.sort();
    all.dedup_by(|one, other| (&one.group, &one.kind) == (&other.group, &other.kind));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_read_once() {
        let all = all();
        let mut names: Vec<_> = all.iter().map(|kind| crate::snapshot::name_of(&kind.group, &kind.kind)).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
        for name in
            ["ClusterPolicy.nvidia.com", "NIMService.apps.nvidia.com", "Pod", "SriovNetwork.sriovnetwork.openshift.io"]
        {
            assert!(names.iter().any(|one| one == name), "{name}");
        }
    }
}
