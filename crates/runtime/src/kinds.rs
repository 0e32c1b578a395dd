//! The table of kinds: what is watched, what is cached of it, and what is done with it. One row per kind; rows of our
//! custom resources are derived from their types.
//!
//! Watches, pruning and RBAC rules are derived from it. A kind without a row cannot be read or written.

mod row;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use capstan_api::Handling;
use capstan_api::crd::Entry;
use capstan_plan::{CPU_FEATURES, Gvk};

use crate::trim::Part;

/// Label that marks the objects we manage.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// Values of [`MANAGED_BY`] that are ours.
pub const MANAGERS: &[&str] = &["k8s-nim-operator", "gpu-operator"];

/// Whether a kind is namespaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Namespaced.
    Namespaced,
    /// Cluster-scoped.
    Cluster,
}

/// Which objects of a kind are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// All of them.
    All,
    /// Those with our managed-by label: most workloads of a cluster are not ours.
    Ours,
    /// Those that match a field selector.
    Fields(&'static str),
    /// Those that match a label selector.
    Labels(&'static str),
}

/// How much of an object is cached. `managedFields` and kubectl's last-applied annotation are never cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Everything.
    Full,
    /// Only these fields: for numerous objects, what plans read.
    Only(&'static [Part]),
    /// The keys under `data`, with hashes for values, so that changes are seen but no secret is held. Applying such an
    /// object costs a GET at every reconcile.
    Keys,
    /// Only metadata (PartialObjectMetadata). Applying costs a GET, too.
    Metadata,
    /// Of pods: node, owner, health, and what decides whether they can be evicted.
    Pod,
}

/// How cached objects are held in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As JSON text, decoded on each read: ten times smaller.
    Text,
    /// Packed, readable without decoding: for kinds with about as many objects as nodes that are iterated as a whole.
    Packed,
}

/// Whether a server may not serve the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Every server serves it.
    BuiltIn,
    /// It depends on a CRD, an aggregated API server or the server version.
    Optional,
}

/// What is done with objects of a kind, beyond watching them. The RBAC rules of the operator are derived from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Only watched.
    Read,
    /// Their status is written: custom resources with a controller.
    Report,
    /// Their status and finalizers are written: custom resources with a controller.
    Reconcile,
    /// Objects of others that get labels and annotations of ours.
    Change,
    /// Created, updated and pruned.
    Make,
    /// Both: custom resources that other controllers create, too.
    MakeAndReconcile,
    /// Created and then left alone, since they hold data.
    MakeOnce,
    /// Created and deleted as requests to another operator.
    Request,
    /// Pruned only: an earlier operator created them for the same owner.
    Prune,
}

impl Use {
    /// The RBAC verbs that this needs, sorted. A watch falls back to a list.
    pub fn verbs(self) -> &'static [&'static str] {
        match self {
            Self::Read | Self::Report => &["list", "watch"],
            Self::Reconcile | Self::Change => &["list", "patch", "watch"],
            // An apply is a patch, and a create if the object is absent.
            Self::Make | Self::MakeAndReconcile => &["create", "delete", "get", "list", "patch", "watch"],
            Self::MakeOnce => &["create", "get", "list", "patch", "watch"],
            Self::Request => &["create", "delete", "list", "patch", "watch"],
            Self::Prune => &["delete", "list", "watch"],
        }
    }

    /// Whether their status is written.
    pub fn reconciles(self) -> bool {
        matches!(self, Self::Report | Self::Reconcile | Self::MakeAndReconcile)
    }

    /// Whether unwanted objects are deleted.
    pub fn prunes(self) -> bool {
        self.verbs().contains(&"delete")
    }
}

/// One row: a kind that is watched or managed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Version.
    pub version: &'static str,
    /// Older versions that decode the same, for servers that do not serve `version`; preferred first.
    pub older: &'static [&'static str],
    /// Kind.
    pub kind: &'static str,
    /// Plural, as in URLs.
    pub plural: &'static str,
    /// Whether it is namespaced.
    pub scope: Scope,
    /// Which objects are watched.
    pub select: Select,
    /// How much of them is cached.
    pub keep: Keep,
    /// How it is held in memory.
    pub form: Form,
    /// Whether a server may not serve it.
    pub presence: Presence,
    /// What is done with it.
    pub purpose: Use,
    /// Name of a slice, which is a row for a subset of a kind; empty for the row of the kind itself. Objects of a slice
    /// are found by that name only.
    pub slice: &'static str,
}

const fn built_in(group: &'static str, version: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind {
        group,
        version,
        older: &[],
        kind,
        plural,
        scope: Scope::Namespaced,
        select: Select::All,
        keep: Keep::Full,
        form: Form::Text,
        presence: Presence::BuiltIn,
        purpose: Use::Read,
        slice: "",
    }
}

const fn optional(group: &'static str, version: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind { presence: Presence::Optional, ..built_in(group, version, kind, plural) }
}

impl Kind {
    const fn ours(self) -> Self {
        Self { select: Select::Ours, ..self }
    }

    const fn fields(self, selector: &'static str) -> Self {
        Self { select: Select::Fields(selector), ..self }
    }

    const fn labels(self, selector: &'static str) -> Self {
        Self { select: Select::Labels(selector), ..self }
    }

    const fn or(self, older: &'static [&'static str]) -> Self {
        Self { older, ..self }
    }

    const fn slice(self, slice: &'static str) -> Self {
        Self { slice, ..self }
    }

    const fn keep(self, keep: Keep) -> Self {
        Self { keep, ..self }
    }

    const fn packed(self) -> Self {
        Self { form: Form::Packed, ..self }
    }

    const fn cluster(self) -> Self {
        Self { scope: Scope::Cluster, ..self }
    }

    const fn to(self, purpose: Use) -> Self {
        Self { purpose, ..self }
    }
}

/// Secrets that are numerous, large and never of interest: Helm releases and ServiceAccount tokens.
const SECRETS: &str = "type!=helm.sh/release.v1,type!=kubernetes.io/service-account-token";

/// The fields of nodes that are cached. There are thousands of nodes, and most of their size is images and CPU
/// features.
const NODE: &[Part] = {
    use Part::{All, Besides, Of, Starting, Typed};
    &[
        All("apiVersion"),
        All("kind"),
        Of(
            "metadata",
            &[
                All("name"),
                All("uid"),
                All("resourceVersion"),
                All("creationTimestamp"),
                All("deletionTimestamp"),
                Besides("labels", &[CPU_FEATURES]),
                Starting("annotations", &["nvidia.com/", "capstan.dev/"]),
            ],
        ),
        Of("spec", &[All("unschedulable"), All("taints")]),
        Of(
            "status",
            &[
                Starting("allocatable", &["nvidia.com/"]),
                Typed("conditions", &["Ready", "GPUReady"]),
                Of("nodeInfo", &[All("containerRuntimeVersion")]),
            ],
        ),
    ]
};

/// The slice of driver pods.
pub const DRIVERS: &str = "driver-pods";
/// The slice of validator pods.
pub const VALIDATORS: &str = "validator-pods";

/// Pods of NIMs. GPU operands may carry our label too, if a ClusterPolicy sets it: ten pods per node, of which only the
/// slices below are read.
const NIM_PODS: &str = "app.kubernetes.io/managed-by=k8s-nim-operator";
const DRIVER_LABELS: &str = "app.kubernetes.io/component in (nvidia-driver,nvidia-vgpu-host-manager)";
const VALIDATOR_LABELS: &str = "app in (nvidia-operator-validator,nvidia-sandbox-validator)";

/// All pods of a node, for a temporary watch: see [`crate::cache::Cache::watch_scoped`].
pub static NODE_PODS: Kind = built_in("", "v1", "Pod", "pods").keep(Keep::Pod).slice("node-pods");

/// The table, a singleton: rows are compared by address.
pub static KINDS: LazyLock<&'static [Kind]> = LazyLock::new(|| {
    let ours = capstan_api::kinds().filter_map(custom);
    ours.chain(OTHERS.iter().copied()).collect::<Vec<_>>().leak()
});

/// The row of one of our custom resources, if it is watched.
fn custom(entry: &Entry) -> Option<Kind> {
    let purpose = match entry.handling {
        Handling::Unwatched => return None,
        Handling::Watched => Use::Read,
        Handling::Made => Use::Make,
        Handling::Reported => Use::Report,
        Handling::Reconciled => Use::Reconcile,
        Handling::MadeAndReconciled => Use::MakeAndReconcile,
    };
    let row = optional(entry.group, entry.version, entry.kind, entry.plural).to(purpose);
    Some(if entry.namespaced { row } else { row.cluster() })
}

use Use::{Change, Make, MakeOnce, Prune, Request};

/// The rows of all other kinds.
const OTHERS: &[Kind] = &[
    // Workloads that we create.
    built_in("apps", "v1", "DaemonSet", "daemonsets").ours().to(Make),
    built_in("apps", "v1", "Deployment", "deployments").ours().to(Make),
    built_in("apps", "v1", "StatefulSet", "statefulsets").ours().to(Prune),
    built_in("batch", "v1", "Job", "jobs").ours().to(Make),
    built_in("", "v1", "Pod", "pods").labels(NIM_PODS).to(Make),
    built_in("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers").ours().to(Make),
    built_in("", "v1", "Service", "services").ours().to(Make),
    optional("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets").ours().to(Make),
    optional("serving.kserve.io", "v1beta1", "InferenceService", "inferenceservices").ours().to(Make),
    optional("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes").ours().to(Make),
    optional("gateway.networking.k8s.io", "v1", "GRPCRoute", "grpcroutes").ours().to(Make),
    optional("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors").ours().to(Make),
    optional("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups").ours().to(Make),
    // Their dependencies; users create some of them, without our label.
    built_in("", "v1", "ServiceAccount", "serviceaccounts").to(Make),
    built_in("rbac.authorization.k8s.io", "v1", "Role", "roles").to(Make),
    built_in("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings").to(Make),
    built_in("networking.k8s.io", "v1", "Ingress", "ingresses").to(Make),
    built_in("", "v1", "ConfigMap", "configmaps").fields("metadata.name!=kube-root-ca.crt").to(Make),
    built_in("", "v1", "Secret", "secrets").fields(SECRETS).keep(Keep::Keys).to(Make),
    built_in("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims").to(MakeOnce),
    optional("inference.networking.k8s.io", "v1", "InferencePool", "inferencepools").to(Make),
    optional("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates").to(Make),
    optional("resource.k8s.io", "v1", "DeviceClass", "deviceclasses").ours().cluster().to(Make),
    // The fields that are read are the same in all versions.
    optional("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims").or(&["v1beta2", "v1beta1"]),
    built_in("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles").ours().cluster().to(Make),
    built_in("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings").ours().cluster().to(Make),
    built_in("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses").cluster().to(Make),
    optional("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules").ours().to(Make),
    optional("security.openshift.io", "v1", "SecurityContextConstraints", "securitycontextconstraints")
        .ours()
        .cluster()
        .to(Make),
    built_in("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies")
        .ours()
        .cluster()
        .to(Make),
    built_in(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
    )
    .ours()
    .cluster()
    .to(Make),
    // Driver upgrades.
    built_in("", "v1", "Pod", "pods").labels(DRIVER_LABELS).keep(Keep::Pod).packed().slice(DRIVERS),
    built_in("", "v1", "Pod", "pods").labels(VALIDATOR_LABELS).keep(Keep::Pod).packed().slice(VALIDATORS),
    built_in("apps", "v1", "ControllerRevision", "controllerrevisions").labels(DRIVER_LABELS),
    optional("maintenance.nvidia.com", "v1alpha1", "NodeMaintenance", "nodemaintenances").to(Request),
    // The cluster itself.
    built_in("", "v1", "Namespace", "namespaces").cluster().keep(Keep::Metadata),
    optional("config.openshift.io", "v1", "ClusterVersion", "clusterversions").cluster(),
    optional("config.openshift.io", "v1", "Proxy", "proxies").cluster(),
    optional("image.openshift.io", "v1", "ImageStream", "imagestreams").fields("metadata.name=driver-toolkit"),
    built_in("", "v1", "Node", "nodes").cluster().keep(Keep::Only(NODE)).packed().to(Change),
    built_in("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions")
        .cluster()
        .keep(Keep::Metadata),
];

/// The row of `gvk` in `table`.
pub fn find(table: &'static [Kind], gvk: &Gvk) -> Option<&'static Kind> {
    table.iter().find(|kind| kind.is(gvk))
}
