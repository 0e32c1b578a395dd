//! The table of kinds: what is watched, how much of it is kept, and what is done with it. One row per kind.
//!
//! Watches, pruning and access rights derive from it. A kind that no row names cannot be read or written here.

use std::fmt;

use capstan_plan::kit::hash_json;
use capstan_plan::{CPU_FEATURES, Gvk, Ref};
use serde_json::Value;

use crate::pods;
use crate::trim::{self, Part};

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

const NVIDIA: &str = "apps.nvidia.com";

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

use Use::{Change, Make, MakeAndReconcile, MakeOnce, Prune, Reconcile, Report, Request};

/// The table. There is one in a program, which a `const` would not promise: rows are told apart by where they are.
pub static KINDS: &[Kind] = &[
    // Custom resources that we reconcile.
    optional(NVIDIA, "v1alpha1", "NIMService", "nimservices").to(MakeAndReconcile),
    optional(NVIDIA, "v1alpha1", "NIMCache", "nimcaches").to(Reconcile),
    optional(NVIDIA, "v1alpha1", "NIMPipeline", "nimpipelines").to(Reconcile),
    optional(NVIDIA, "v1alpha1", "NIMBuild", "nimbuilds").to(Reconcile),
    optional(NVIDIA, "v1alpha1", "NemoCustomizer", "nemocustomizers"),
    optional(NVIDIA, "v1alpha1", "NemoDatastore", "nemodatastores"),
    optional(NVIDIA, "v1alpha1", "NemoEntitystore", "nemoentitystores"),
    optional(NVIDIA, "v1alpha1", "NemoEvaluator", "nemoevaluators"),
    optional(NVIDIA, "v1alpha1", "NemoGuardrail", "nemoguardrails"),
    optional("nvidia.com", "v1", "ClusterPolicy", "clusterpolicies").cluster().to(Report),
    optional("nvidia.com", "v1alpha1", "NVIDIADriver", "nvidiadrivers").cluster().to(Reconcile),
    optional("nvidia.com", "v1alpha1", "GPUCluster", "gpuclusters").cluster().to(Reconcile),
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
    optional("resource.nvidia.com", "v1beta1", "ComputeDomain", "computedomains").to(Make),
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

impl Kind {
    /// Group, version and kind.
    pub fn gvk(&self) -> Gvk {
        Gvk { group: self.group.into(), version: self.version.into(), kind: self.kind.into() }
    }

    /// Whether this is the row of `gvk`; rows of slices are of no kind.
    pub fn is(&self, gvk: &Gvk) -> bool {
        self.slice.is_empty() && self.kind == gvk.kind && self.group == gvk.group && self.version == gvk.version
    }

    /// Its name in logs and metrics.
    pub fn label(&self) -> &'static str {
        if self.slice.is_empty() { self.kind } else { self.slice }
    }

    /// The object of this kind of that name.
    pub fn reference(&self, namespace: &str, name: &str) -> Ref {
        Ref { gvk: self.gvk(), namespace: namespace.into(), name: name.into() }
    }

    /// URL path of the objects in `namespace`, or of all if it is empty.
    pub fn path(&self, namespace: &str) -> String {
        self.path_in(self.version, namespace)
    }

    /// The same in another version.
    pub(crate) fn path_in(&self, version: &str, namespace: &str) -> String {
        let root =
            if self.group.is_empty() { format!("/api/{version}") } else { format!("/apis/{}/{version}", self.group) };
        match self.scope {
            Scope::Namespaced if !namespace.is_empty() => format!("{root}/namespaces/{namespace}/{}", self.plural),
            _ => format!("{root}/{}", self.plural),
        }
    }

    /// The label selector of the watch.
    pub(crate) fn label_selector(&self) -> Option<String> {
        match (self.select, MANAGERS) {
            (Select::Ours, [one]) => Some(format!("{MANAGED_BY}={one}")),
            (Select::Ours, many) => Some(format!("{MANAGED_BY} in ({})", many.join(","))),
            (Select::Labels(selector), _) => Some(selector.into()),
            _ => None,
        }
    }

    /// The field selector of the watch.
    pub(crate) fn field_selector(&self) -> Option<&'static str> {
        match self.select {
            Select::Fields(selector) => Some(selector),
            _ => None,
        }
    }

    /// Whether the watch shows `object`. A field selector is taken to select what we write.
    pub(crate) fn selects(&self, object: &Value) -> bool {
        let label = || object["metadata"]["labels"][MANAGED_BY].as_str();
        self.select != Select::Ours || label().is_some_and(|value| MANAGERS.contains(&value))
    }

    /// Whether a cached object can be compared with a wanted one.
    pub(crate) fn is_comparable(&self) -> bool {
        !matches!(self.keep, Keep::Keys | Keep::Metadata | Keep::Pod)
    }

    /// Reads an object, but not what is dropped anyway.
    pub(crate) fn read(&self, text: &str) -> serde_json::Result<Value> {
        self.read_news(text, &|_| true)
    }

    /// The same, but only to its metadata if these are no news.
    pub(crate) fn read_news(&self, text: &str, news: &dyn Fn(&Value) -> bool) -> serde_json::Result<Value> {
        let parts = match self.keep {
            Keep::Only(parts) => Some(parts),
            Keep::Pod => Some(pods::READ),
            Keep::Full | Keep::Keys | Keep::Metadata => None,
        };
        trim::read(text, parts, news)
    }

    /// Drops what is not kept.
    pub(crate) fn trim(&self, object: &mut Value) {
        // Items of a list do not say what they are.
        object["apiVersion"] = self.gvk().api_version().into();
        object["kind"] = self.kind.into();
        remove(object, "/metadata/managedFields");
        remove(object, "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration");
        match self.keep {
            Keep::Full => {}
            Keep::Only(parts) => {
                if let Some(fields) = object.as_object_mut() {
                    trim::only(fields, parts);
                }
            }
            Keep::Pod => pods::trim(object),
            Keep::Keys => {
                for field in ["data", "stringData", "binaryData"] {
                    if let Some(data) = object.get_mut(field).and_then(Value::as_object_mut) {
                        data.values_mut().for_each(|value| *value = hash_json(value).into());
                    }
                }
            }
            Keep::Metadata => {
                if let Some(fields) = object.as_object_mut() {
                    fields.retain(|name, _| ["apiVersion", "kind", "metadata"].contains(&name.as_str()));
                }
            }
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

fn remove(object: &mut Value, pointer: &str) {
    let Some((parent, name)) = pointer.rsplit_once('/') else { return };
    if let Some(fields) = object.pointer_mut(parent).and_then(Value::as_object_mut) {
        fields.remove(&name.replace("~1", "/"));
    }
}

/// The row of `gvk` in `table`.
pub fn find(table: &'static [Kind], gvk: &Gvk) -> Option<&'static Kind> {
    table.iter().find(|kind| kind.is(gvk))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use capstan_plan::kit::hash;
    use serde_json::json;

    use super::*;

    fn row(kind: &str) -> &'static Kind {
        KINDS.iter().find(|row| row.kind == kind).unwrap()
    }

    #[test]
    fn every_kind_and_every_slice_has_one_row() {
        let names: BTreeSet<_> = KINDS.iter().map(|row| (row.group, row.kind, row.slice)).collect();
        assert_eq!(names.len(), KINDS.len());
    }

    #[test]
    fn what_nobody_reads_is_dropped() {
        let cases = [
            (
                "Secret",
                json!({"data": {"NGC_API_KEY": "c2VjcmV0"}}),
                json!({"data": {"NGC_API_KEY": hash("\"c2VjcmV0\"")}}),
            ),
            ("CustomResourceDefinition", json!({"spec": {"group": "x"}}), json!({})),
            ("ConfigMap", json!({"data": {"a": "b"}}), json!({"data": {"a": "b"}})),
        ];
        for (kind, mut object, mut expected) in cases {
            let applied = "kubectl.kubernetes.io/last-applied-configuration";
            object["metadata"] =
                json!({"name": "a", "managedFields": [], "annotations": {applied: "long", "short": ""}});
            row(kind).trim(&mut object);
            expected["apiVersion"] = row(kind).gvk().api_version().into();
            expected["kind"] = kind.into();
            expected["metadata"] = json!({"name": "a", "annotations": {"short": ""}});
            assert_eq!(object, expected, "{kind}");
        }
    }

    /// A node as they are: feature discovery says a hundred things about its processor, the kubelet fifty about images.
    fn node() -> Value {
        let mut labels: serde_json::Map<String, Value> =
            (0..80).map(|number| (format!("{CPU_FEATURES}FEATURE{number}"), "true".into())).collect();
        for (key, value) in [
            ("feature.node.kubernetes.io/pci-10de.present", "true"),
            ("feature.node.kubernetes.io/kernel-version.full", "6.8.0-45-generic"),
            ("kubernetes.io/hostname", "gpu-node-0000"),
            ("nvidia.com/gpu.product", "NVIDIA-H200"),
        ] {
            labels.insert(key.into(), value.into());
        }
        for number in 0..12 {
            labels.insert(format!("nvidia.com/gpu.deploy.operand-{number}"), "true".into());
        }
        let image =
            |number: i32| json!({"names": [format!("example.com/{number}@sha256:{number:064}")], "sizeBytes": 1});
        let condition = |type_: &str| {
            json!({
                "type": type_, "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status",
                "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        };
        let conditions = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"].map(condition);
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": "gpu-node-0000", "uid": "2269c984-db9a-4b0e-9fd5-86df0ad269f7", "resourceVersion": "1000000",
                "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels,
                "annotations": {"nfd.node.kubernetes.io/feature-labels": "x".repeat(3000), "nvidia.com/a": "b"},
                "managedFields": [{"fieldsV1": {"f:labels": "x".repeat(5000)}}],
            },
            "spec": {"podCIDR": "10.0.0.0/24", "providerID": "x://y", "taints": [{"key": "k", "effect": "NoSchedule"}]},
            "status": {
                "images": (0..50).map(image).collect::<Vec<_>>(),
                "conditions": conditions,
                "nodeInfo": {"containerRuntimeVersion": "containerd://2.1.0", "bootID": "x".repeat(36)},
                "allocatable": {"cpu": "32", "memory": "256Gi", "nvidia.com/gpu": "8"},
            },
        })
    }

    #[test]
    fn of_a_node_that_is_kept_which_decisions_read() {
        let mut node = node();
        row("Node").trim(&mut node);
        for kept in [
            "/metadata/labels/nvidia.com~1gpu.product",
            "/metadata/labels/feature.node.kubernetes.io~1kernel-version.full",
            "/metadata/annotations/nvidia.com~1a",
            "/spec/taints/0/key",
            "/status/allocatable/nvidia.com~1gpu",
            "/status/nodeInfo/containerRuntimeVersion",
        ] {
            assert!(node.pointer(kept).is_some(), "{kept} is gone");
        }
        assert_eq!(node["status"]["conditions"][0]["type"], "Ready");
        for dropped in ["/metadata/managedFields", "/status/images", "/status/allocatable/cpu", "/spec/podCIDR"] {
            assert!(node.pointer(dropped).is_none(), "{dropped} is kept");
        }
    }

    #[test]
    fn a_node_takes_less_than_two_thousand_bytes() {
        let mut node = node();
        let before = node.to_string().len();
        row("Node").trim(&mut node);
        let after = node.to_string().len();
        assert!(before > 15_000 && after < 2_000, "{before} bytes, and {after} are kept");
    }

    #[test]
    fn paths_are_those_of_the_api() {
        assert_eq!(row("Deployment").path("ns"), "/apis/apps/v1/namespaces/ns/deployments");
        assert_eq!(row("Pod").path(""), "/api/v1/pods");
        assert_eq!(row("Node").path("ns"), "/api/v1/nodes");
    }

    #[test]
    fn workloads_are_selected_by_our_label() {
        assert_eq!(
            row("Deployment").label_selector().unwrap(),
            "app.kubernetes.io/managed-by in (k8s-nim-operator,gpu-operator)"
        );
        assert!(row("Deployment").selects(&json!({"metadata": {"labels": {MANAGED_BY: "k8s-nim-operator"}}})));
        assert!(!row("Deployment").selects(&json!({"metadata": {"labels": {MANAGED_BY: "Helm"}}})));
        assert!(row("Role").selects(&json!({})));
    }
}
