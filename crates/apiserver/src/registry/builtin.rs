//! The table of built-in resources: what `kubectl api-resources` shows on a fresh cluster.
//!
//! One row per resource; the singular is the kind in lower case, the schema is found by group, version and kind.

use super::{ALL_VERBS, Origin, Resource, Subresource};
use crate::schema::Child;

const READ_WRITE: &[&str] = &["get", "patch", "update"];
const CREATE: &[&str] = &["create"];
const CONNECT: &[&str] = &["create", "get"];
const PROXY: &[&str] = &["create", "delete", "get", "patch", "update"];

/// The `status` subresource.
pub const STATUS: Subresource = same("status", READ_WRITE);
/// The `scale` subresource.
pub const SCALE: Subresource = other("scale", "Scale", Some(("autoscaling", "v1")), READ_WRITE);

const POD_SUBRESOURCES: &[Subresource] = &[
    other("attach", "PodAttachOptions", None, CONNECT),
    other("binding", "Binding", None, CREATE),
    same("ephemeralcontainers", READ_WRITE),
    other("eviction", "Eviction", Some(("policy", "v1")), CREATE),
    other("exec", "PodExecOptions", None, CONNECT),
    same("log", &["get"]),
    other("portforward", "PodPortForwardOptions", None, CONNECT),
    other("proxy", "PodProxyOptions", None, PROXY),
    same("resize", READ_WRITE),
    STATUS,
];

const fn same(name: &'static str, verbs: &'static [&'static str]) -> Subresource {
    Subresource { name, kind: None, group_version: None, verbs }
}

const fn other(
    name: &'static str,
    kind: &'static str,
    group_version: Option<(&'static str, &'static str)>,
    verbs: &'static [&'static str],
) -> Subresource {
    Subresource { name, kind: Some(kind), group_version, verbs }
}

/// One row.
#[derive(Clone, Copy)]
struct Row {
    plural: &'static str,
    kind: &'static str,
    namespaced: bool,
    short: &'static [&'static str],
    categories: &'static [&'static str],
    verbs: &'static [&'static str],
    subresources: &'static [Subresource],
}

impl Row {
    const fn short(self, short: &'static [&'static str]) -> Self {
        Self { short, ..self }
    }

    const fn all(self) -> Self {
        Self { categories: &["all"], ..self }
    }

    const fn extends_api(self) -> Self {
        Self { categories: &["api-extensions"], ..self }
    }

    const fn verbs(self, verbs: &'static [&'static str]) -> Self {
        Self { verbs, ..self }
    }

    const fn sub(self, subresources: &'static [Subresource]) -> Self {
        Self { subresources, ..self }
    }

    const fn status(self) -> Self {
        self.sub(&[STATUS])
    }
}

const fn namespaced(plural: &'static str, kind: &'static str) -> Row {
    let (short, categories, subresources): (_, _, &[Subresource]) = (&[], &[], &[]);
    Row { plural, kind, namespaced: true, short, categories, verbs: ALL_VERBS, subresources }
}

const fn cluster(plural: &'static str, kind: &'static str) -> Row {
    Row { namespaced: false, ..namespaced(plural, kind) }
}

const CORE: &[Row] = &[
    namespaced("bindings", "Binding").verbs(CREATE),
    cluster("componentstatuses", "ComponentStatus").short(&["cs"]).verbs(&["get", "list"]),
    namespaced("configmaps", "ConfigMap").short(&["cm"]),
    namespaced("endpoints", "Endpoints").short(&["ep"]),
    namespaced("events", "Event").short(&["ev"]),
    namespaced("limitranges", "LimitRange").short(&["limits"]),
    cluster("namespaces", "Namespace")
        .short(&["ns"])
        .verbs(&["create", "delete", "get", "list", "patch", "update", "watch"])
        .sub(&[same("finalize", &["update"]), STATUS]),
    cluster("nodes", "Node").short(&["no"]).sub(&[other("proxy", "NodeProxyOptions", None, PROXY), STATUS]),
    namespaced("persistentvolumeclaims", "PersistentVolumeClaim").short(&["pvc"]).status(),
    cluster("persistentvolumes", "PersistentVolume").short(&["pv"]).status(),
    namespaced("pods", "Pod").short(&["po"]).all().sub(POD_SUBRESOURCES),
    namespaced("podtemplates", "PodTemplate"),
    namespaced("replicationcontrollers", "ReplicationController").short(&["rc"]).all().sub(&[SCALE, STATUS]),
    namespaced("resourcequotas", "ResourceQuota").short(&["quota"]).status(),
    namespaced("secrets", "Secret"),
    namespaced("serviceaccounts", "ServiceAccount").short(&["sa"]).sub(&[other(
        "token",
        "TokenRequest",
        Some(("authentication.k8s.io", "v1")),
        CREATE,
    )]),
    namespaced("services", "Service")
        .short(&["svc"])
        .all()
        .sub(&[other("proxy", "ServiceProxyOptions", None, PROXY), STATUS]),
];

const GROUPS: &[(&str, &str, &[Row])] = &[
    ("", "v1", CORE),
    (
        "admissionregistration.k8s.io",
        "v1",
        &[
            cluster("mutatingadmissionpolicies", "MutatingAdmissionPolicy").extends_api(),
            cluster("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding").extends_api(),
            cluster("mutatingwebhookconfigurations", "MutatingWebhookConfiguration").extends_api(),
            cluster("validatingadmissionpolicies", "ValidatingAdmissionPolicy").extends_api().status(),
            cluster("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding").extends_api(),
            cluster("validatingwebhookconfigurations", "ValidatingWebhookConfiguration").extends_api(),
        ],
    ),
    (
        "apiextensions.k8s.io",
        "v1",
        &[cluster("customresourcedefinitions", "CustomResourceDefinition")
            .short(&["crd", "crds"])
            .extends_api()
            .status()],
    ),
    ("apiregistration.k8s.io", "v1", &[cluster("apiservices", "APIService").extends_api().status()]),
    (
        "apps",
        "v1",
        &[
            namespaced("controllerrevisions", "ControllerRevision"),
            namespaced("daemonsets", "DaemonSet").short(&["ds"]).all().status(),
            namespaced("deployments", "Deployment").short(&["deploy"]).all().sub(&[SCALE, STATUS]),
            namespaced("replicasets", "ReplicaSet").short(&["rs"]).all().sub(&[SCALE, STATUS]),
            namespaced("statefulsets", "StatefulSet").short(&["sts"]).all().sub(&[SCALE, STATUS]),
        ],
    ),
    (
        "authentication.k8s.io",
        "v1",
        &[
            cluster("selfsubjectreviews", "SelfSubjectReview").verbs(CREATE),
            cluster("tokenreviews", "TokenReview").verbs(CREATE),
        ],
    ),
    (
        "authorization.k8s.io",
        "v1",
        &[
            namespaced("localsubjectaccessreviews", "LocalSubjectAccessReview").verbs(CREATE),
            cluster("selfsubjectaccessreviews", "SelfSubjectAccessReview").verbs(CREATE),
            cluster("selfsubjectrulesreviews", "SelfSubjectRulesReview").verbs(CREATE),
            cluster("subjectaccessreviews", "SubjectAccessReview").verbs(CREATE),
        ],
    ),
    (
        "autoscaling",
        "v1",
        &[namespaced("horizontalpodautoscalers", "HorizontalPodAutoscaler").short(&["hpa"]).all().status()],
    ),
    (
        "autoscaling",
        "v2",
        &[namespaced("horizontalpodautoscalers", "HorizontalPodAutoscaler").short(&["hpa"]).all().status()],
    ),
    (
        "batch",
        "v1",
        &[namespaced("cronjobs", "CronJob").short(&["cj"]).all().status(), namespaced("jobs", "Job").all().status()],
    ),
    (
        "certificates.k8s.io",
        "v1",
        &[
            cluster("certificatesigningrequests", "CertificateSigningRequest")
                .short(&["csr"])
                .sub(&[same("approval", READ_WRITE), STATUS]),
            cluster("clustertrustbundles", "ClusterTrustBundle"),
            namespaced("podcertificaterequests", "PodCertificateRequest").status(),
        ],
    ),
    ("coordination.k8s.io", "v1", &[namespaced("leases", "Lease")]),
    ("discovery.k8s.io", "v1", &[namespaced("endpointslices", "EndpointSlice")]),
    ("events.k8s.io", "v1", &[namespaced("events", "Event").short(&["ev"])]),
    (
        "flowcontrol.apiserver.k8s.io",
        "v1",
        &[
            cluster("flowschemas", "FlowSchema").status(),
            cluster("prioritylevelconfigurations", "PriorityLevelConfiguration").status(),
        ],
    ),
    (
        "networking.k8s.io",
        "v1",
        &[
            cluster("ingressclasses", "IngressClass"),
            namespaced("ingresses", "Ingress").short(&["ing"]).status(),
            cluster("ipaddresses", "IPAddress").short(&["ip"]),
            namespaced("networkpolicies", "NetworkPolicy").short(&["netpol"]),
            cluster("servicecidrs", "ServiceCIDR").status(),
        ],
    ),
    ("node.k8s.io", "v1", &[cluster("runtimeclasses", "RuntimeClass")]),
    ("policy", "v1", &[namespaced("poddisruptionbudgets", "PodDisruptionBudget").short(&["pdb"]).status()]),
    (
        "rbac.authorization.k8s.io",
        "v1",
        &[
            cluster("clusterrolebindings", "ClusterRoleBinding"),
            cluster("clusterroles", "ClusterRole"),
            namespaced("rolebindings", "RoleBinding"),
            namespaced("roles", "Role"),
        ],
    ),
    (
        "resource.k8s.io",
        "v1",
        &[
            cluster("deviceclasses", "DeviceClass"),
            cluster("devicetaintrules", "DeviceTaintRule").status(),
            namespaced("resourceclaims", "ResourceClaim").status(),
            namespaced("resourceclaimtemplates", "ResourceClaimTemplate"),
            cluster("resourceslices", "ResourceSlice"),
        ],
    ),
    ("scheduling.k8s.io", "v1", &[cluster("priorityclasses", "PriorityClass").short(&["pc"])]),
    (
        "storage.k8s.io",
        "v1",
        &[
            cluster("csidrivers", "CSIDriver"),
            cluster("csinodes", "CSINode").status(),
            namespaced("csistoragecapacities", "CSIStorageCapacity"),
            cluster("storageclasses", "StorageClass").short(&["sc"]),
            cluster("volumeattachments", "VolumeAttachment").status(),
            cluster("volumeattributesclasses", "VolumeAttributesClass").short(&["vac"]),
        ],
    ),
    ("storagemigration.k8s.io", "v1", &[cluster("storageversionmigrations", "StorageVersionMigration").status()]),
];

/// All built-in resources.
pub fn resources() -> Vec<Resource> {
    GROUPS.iter().flat_map(|(group, version, rows)| rows.iter().map(|row| resource(group, version, row))).collect()
}

/// Name of the definition that describes a built-in kind: `io.k8s.api.apps.v1.Deployment`.
pub fn definition_name(group: &str, version: &str, kind: &str) -> String {
    match group {
        "" => format!("io.k8s.api.core.{version}.{kind}"),
        "apiextensions.k8s.io" => format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.{version}.{kind}"),
        "apiregistration.k8s.io" => format!("io.k8s.kube-aggregator.pkg.apis.apiregistration.{version}.{kind}"),
        group => format!("io.k8s.api.{}.{version}.{kind}", group.split('.').next().unwrap_or(group)),
    }
}

fn resource(group: &str, version: &str, row: &Row) -> Resource {
    // Two APIs have a second version with another schema: see `convert`.
    let (storage_group, storage_version) = match (group, row.plural) {
        ("autoscaling", _) => ("autoscaling", "v2"),
        ("events.k8s.io", _) => ("", "v1"),
        _ => (group, version),
    };
    Resource {
        group: group.into(),
        version: version.into(),
        storage_group: storage_group.into(),
        storage_version: storage_version.into(),
        kind: row.kind.into(),
        list_kind: format!("{}List", row.kind).into(),
        plural: row.plural.into(),
        singular: row.kind.to_lowercase().into(),
        short_names: row.short.iter().map(|name| (*name).to_owned()).collect(),
        categories: row.categories.iter().map(|name| (*name).to_owned()).collect(),
        namespaced: row.namespaced,
        verbs: row.verbs,
        subresources: row.subresources.to_vec(),
        shape: Child::named(&definition_name(group, version, row.kind)),
        origin: Origin::Builtin,
    }
}
