//! The table of kinds: what is watched, how much of it is kept, and what is done with it. One row per kind; those of our
//! custom resources follow from their types.
//!
//! Watches, pruning and access rights derive from it. A kind that no row names cannot be read or written here.

mod row;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use capstan_api::Handling;
use capstan_api::crd::Entry;
use capstan_plan::{CPU_FEATURES, Gvk};

use crate::trim::Part;

/// Label by which objects of ours are told from others.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// Values of [`MANAGED_BY`] that are ours.
pub const MANAGERS: &[&str] = &["k8s-nim-operator", "gpu-operator"];

/// Whether objects of a kind live in namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In namespaces.
    Namespaced,
    /// Cluster-wide.
    Cluster,
}

/// Which objects of a kind are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// All of them.
    All,
    /// Those that carry our label: of workloads, a cluster has many that are none of our business.
    Ours,
    /// Those that a field selector selects.
    Fields(&'static str),
    /// Those that a label selector selects.
    Labels(&'static str),
}

/// How much of an object is kept. Managed fields and kubectl's copy of what was applied are never kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Everything.
    Full,
    /// Only these parts: of objects that are many, what decisions read.
    Only(&'static [Part]),
    /// The keys under `data`, with hashes for values, so that a change is seen and nothing is told. To keep such an object costs a read at every reconcile.
    Keys,
    /// Only metadata; the rest is not even sent to us. The same holds.
    Metadata,
    /// Of pods, what tells where they are, whose they are, how they do and whom they would be missed by.
    Pod,
}

/// How what is kept is held in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As text, which is read anew each time: ten times smaller.
    Text,
    /// Packed, ready to be looked at: for objects of which there are as many as nodes, and that are looked at together.
    Packed,
}

/// Whether a server may lack the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Every server has it.
    BuiltIn,
    /// It comes and goes with a CRD, an aggregated server or the server's version.
    Optional,
}

/// What is done with objects of a kind, beyond watching them. The access rights of the operator follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Nothing.
    Read,
    /// Their status is written: custom resources with a controller.
    Report,
    /// Their status and finalizers are written: custom resources with a controller.
    Reconcile,
    /// They are somebody else's and get labels and annotations of ours.
    Change,
    /// They are made, changed and pruned.
    Make,
    /// Both: custom resources that are also made for others.
    MakeAndReconcile,
    /// They are made and then left alone, since they hold data.
    MakeOnce,
    /// They are asked for and withdrawn: somebody else acts on them.
    Request,
    /// They are pruned: no plan wants them, but an earlier operator made them for the same owner.
    Prune,
}

impl Use {
    /// The verbs that this takes, in the order of the alphabet. A watch falls back to a list.
    pub fn verbs(self) -> &'static [&'static str] {
        match self {
            Self::Read | Self::Report => &["list", "watch"],
            Self::Reconcile | Self::Change => &["list", "patch", "watch"],
            // An apply is a patch, and a create where there is nothing to patch.
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
    /// Versions that are read as if they were that one, where a server lacks it; the best first.
    pub older: &'static [&'static str],
    /// Kind.
    pub kind: &'static str,
    /// Plural, as in URLs.
    pub plural: &'static str,
    /// Whether it lives in namespaces.
    pub scope: Scope,
    /// Which objects are watched.
    pub select: Select,
    /// How much of them is kept.
    pub keep: Keep,
    /// In which form.
    pub form: Form,
    /// Whether a server may lack it.
    pub presence: Presence,
    /// What is done with it.
    pub purpose: Use,
    /// Name of a slice of a kind that has a row of its own; empty for the row of the kind itself. Objects of a slice are
    /// found by that name only.
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

/// Secrets that are many, large and never of interest: Helm's releases and tokens of service accounts.
const SECRETS: &str = "type!=helm.sh/release.v1,type!=kubernetes.io/service-account-token";

/// What is read of nodes. There are thousands, and most of what they say is about images and processors.
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

/// The slice of pods that are drivers.
pub const DRIVERS: &str = "driver-pods";
/// The slice of pods that check drivers.
pub const VALIDATORS: &str = "validator-pods";

/// Pods of NIMs. Those of GPU operands may carry our label too, where a ClusterPolicy gives it to all of them: ten per node,
/// of which only the slices below are read.
const NIM_PODS: &str = "app.kubernetes.io/managed-by=k8s-nim-operator";
const DRIVER_LABELS: &str = "app.kubernetes.io/component in (nvidia-driver,nvidia-vgpu-host-manager)";
const VALIDATOR_LABELS: &str = "app in (nvidia-operator-validator,nvidia-sandbox-validator)";

/// All pods of a node, for as long as somebody wants to know them: see [`crate::cache::Cache::follow`].
pub static NODE_PODS: Kind = built_in("", "v1", "Pod", "pods").keep(Keep::Pod).slice("node-pods");

/// The table. There is one in a program: rows are told apart by where they are.
pub static KINDS: LazyLock<&'static [Kind]> = LazyLock::new(|| {
    let ours = capstan_api::kinds().filter_map(custom);
    ours.chain(OTHERS.iter().copied()).collect::<Vec<_>>().leak()
});

/// The row of a custom resource of ours, if anything is done with it.
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

/// The rows of kinds of others.
const OTHERS: &[Kind] = &[
    // Workloads that we make.
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
    // What surrounds them; users bring some of it, without our label.
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
    // What is read of claims looks the same in all of them.
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
    // Drivers and what upgrades need to know of them.
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
