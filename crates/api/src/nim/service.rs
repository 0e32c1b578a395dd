//! NIMService: a model server with its Service, routes, autoscaler and storage.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use k8s_openapi::api::core::v1::{Affinity, EnvVar, PodAffinity, ResourceRequirements, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use serde_with::skip_serializing_none;

use super::dra::DraResource;
use super::expose::Expose;
use super::multi_node::MultiNode;
use super::service_status::NimServiceStatus;
use crate::common::{Autoscaling, ExtraContainer, Image, Metrics, PersistentVolumeClaim, Proxy, ServerProbe};
use crate::resource::{Column, Handling, Kind, Namespaced, Resource};

/// Serves a model.
pub type NimService = Resource<NimServiceSpec>;

/// Serves a model: pods with a NIM image, and the Service, routes, autoscaler and storage around them.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules(&[&[FIXED_DEVICES], RULES].concat())))]
pub struct NimServiceSpec {
    /// NIM image to serve with.
    pub image: Image,
    /// Replaces the entrypoint of the image. Only for services on one node, outside KServe.
    pub command: Option<Vec<String>>,
    /// Replaces the arguments of the image. Only for services on one node, outside KServe.
    pub args: Option<Vec<String>>,
    /// Environment of the serving container; an entry here wins over Capstan's of the same name.
    pub env: Option<Vec<EnvVar>>,
    /// Secret with the key `NGC_API_KEY`, for models of Hugging Face `HF_TOKEN`, by which models are fetched.
    pub auth_secret: Option<String>,
    /// Where the model lies.
    pub storage: Option<NimServiceStorage>,
    /// Labels of all objects made for the service; those that Capstan sets win.
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations of all objects made for the service; those that Capstan sets win.
    pub annotations: Option<BTreeMap<String, String>>,
    /// Labels that a node must have to run the pods.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Taints that the pods tolerate.
    pub tolerations: Option<Vec<Toleration>>,
    /// Affinity of the pods.
    pub affinity: Option<Affinity>,
    /// Deprecated and without effect: use `affinity`.
    pub pod_affinity: Option<PodAffinity>,
    /// Resources of the serving container. GPUs are added by the cached profile when not given. No `claims` here.
    pub resources: Option<ResourceRequirements>,
    /// Devices by dynamic resource allocation, Kubernetes 1.34 or newer. Cannot change after creation.
    pub dra_resources: Option<Vec<DraResource>>,
    /// How clients reach the service.
    pub expose: Option<Expose>,
    /// Liveness probe; `/v1/health/live` when unset.
    pub liveness_probe: Option<ServerProbe>,
    /// Readiness probe; `/v1/health/ready` when unset.
    pub readiness_probe: Option<ServerProbe>,
    /// Startup probe; `/v1/health/ready`, for 20 minutes, when unset.
    pub startup_probe: Option<ServerProbe>,
    /// Autoscaling; off when unset.
    pub scale: Option<Autoscaling>,
    /// Scheduler of the pods; the cluster's default one when unset.
    pub scheduler_name: Option<String>,
    /// RuntimeClass of the pods.
    pub runtime_class_name: Option<String>,
    /// PriorityClass of the pods.
    pub priority_class_name: Option<String>,
    /// Scraping by Prometheus; off when unset.
    pub metrics: Option<Metrics>,
    /// Number of replicas, 1 when unset; must be unset with autoscaling. 0 stops the service.
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
    /// User as which the containers run; 1000 when unset.
    #[serde(rename = "userID")]
    pub user_id: Option<i64>,
    /// Group as which the containers run and to which volumes belong; 2000 when unset.
    #[serde(rename = "groupID")]
    pub group_id: Option<i64>,
    /// Proxy and extra certificates for downloads.
    pub proxy: Option<Proxy>,
    /// Spreads each replica over several nodes; excludes autoscaling.
    pub multi_node: Option<MultiNode>,
    /// What runs the server.
    #[schemars(extend("default" = "standalone"))]
    pub inference_platform: Option<InferencePlatform>,
    /// Containers that run to their end, in order, before the server starts. Their own `env` wins over the server's.
    pub init_containers: Option<Vec<ExtraContainer>>,
    /// Containers that run beside the server, with its volumes. Their own `env` wins over the server's.
    pub sidecar_containers: Option<Vec<ExtraContainer>>,
}

impl Kind for NimServiceSpec {
    type Status = NimServiceStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = "v1alpha1";
    const KIND: &'static str = "NIMService";
    const PLURAL: &'static str = "nimservices";
    const HANDLING: Handling = Handling::MadeAndReconciled;
    const COLUMNS: &'static [Column] = &[Column::STATE, Column::AGE_WITH_FORMAT];
}

/// A CEL rule and what it says when it is broken.
type Rule = (&'static str, &'static str);

/// Rule of a NIMService only: the services of a pipeline are a list, whose items have no former self.
const FIXED_DEVICES: Rule = (
    "(has(self.draResources) && has(oldSelf.draResources) && self.draResources == oldSelf.draResources) || (!has(self.draResources) && !has(oldSelf.draResources))",
    "spec.draResources cannot change after creation; create a new NIMService instead",
);

/// Rules of a service, alone or in a pipeline.
pub(super) const RULES: &[Rule] = &[
    (
        "!(has(self.multiNode) && has(self.scale) && has(self.scale.enabled) && self.scale.enabled)",
        "spec.scale.enabled cannot be true with spec.multiNode; switch autoscaling off or remove multiNode",
    ),
    (
        "!(has(self.scale) && has(self.scale.enabled) && self.scale.enabled && has(self.replicas))",
        "spec.replicas cannot be set while spec.scale.enabled is true; remove replicas or switch autoscaling off",
    ),
    (
        "!(has(self.expose) && has(self.expose.ingress) && has(self.expose.ingress.enabled) && self.expose.ingress.enabled && has(self.expose.router) && has(self.expose.router.ingress))",
        "spec.expose.ingress is deprecated and cannot be enabled beside spec.expose.router.ingress; keep the latter",
    ),
];

/// `rules` as `x-kubernetes-validations`.
pub(super) fn rules(rules: &[Rule]) -> Value {
    rules.iter().map(|(rule, message)| json!({"rule": rule, "message": message})).collect()
}

/// What runs a model server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InferencePlatform {
    /// A Deployment, or a LeaderWorkerSet for several nodes.
    #[default]
    Standalone,
    /// An InferenceService of KServe.
    KServe,
}

/// Where the model lies. The first that is set counts: `nimCache`, `pvc`, `emptyDir`, `hostPath`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NimServiceStorage {
    /// Uses the volume of a NIMCache; the service waits until that is ready.
    pub nim_cache: Option<NimCacheRef>,
    /// Uses a claim, which the server fills at its first start.
    pub pvc: Option<PersistentVolumeClaim>,
    /// Uses a directory of the node, made if missing.
    pub host_path: Option<String>,
    /// Uses node storage that is lost with the pod.
    pub empty_dir: Option<EmptyDir>,
    /// Mounts the claim read-only; writable when unset.
    pub read_only: Option<bool>,
    /// Size of `/dev/shm`; no limit of its own when unset.
    pub shared_memory_size_limit: Option<Quantity>,
}

/// A NIMCache in the same namespace.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NimCacheRef {
    /// Name of the NIMCache.
    pub name: Option<String>,
    /// Cached profile to serve; the server chooses when unset.
    pub profile: Option<String>,
}

/// Node storage that is lost with the pod.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EmptyDir {
    /// Size above which the pod is evicted; no limit when unset.
    pub size_limit: Option<Quantity>,
}
