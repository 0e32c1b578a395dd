//! Training jobs that a NemoCustomizer starts.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use k8s_openapi::api::core::v1::{Affinity, EnvVar, PodAffinity, ResourceRequirements, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::shared::ConfigMapRef;
use crate::common::{Image, PersistentVolumeClaim};

/// Image, volumes and pods of training jobs.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrainingConfig {
    /// Image of the training containers.
    pub image: Image,
    /// ConfigMap with further settings under its key `training`, in YAML; the fields here win.
    pub config_map: Option<ConfigMapRef>,
    /// Volume of the models, mounted read-only into training jobs and filled by download jobs.
    #[serde(rename = "modelPVC")]
    pub model_pvc: PersistentVolumeClaim,
    /// Volume that each job gets for its own files.
    #[serde(rename = "workspacePVC")]
    pub workspace_pvc: WorkspaceVolume,
    /// Environment of the training containers.
    pub env: Option<Vec<EnvVar>>,
    /// Environment that tunes the network between nodes: settings of NCCL and UCX.
    pub network_config: Option<Vec<EnvVar>>,
    /// Seconds after which a finished job is deleted.
    pub ttl_seconds_after_finished: Option<i64>,
    /// Seconds after which a running job is given up.
    pub timeout: Option<i64>,
    /// Queue of Run:ai that jobs are put into.
    #[schemars(extend("default" = "default"))]
    pub runai_queue: Option<String>,
    /// Labels that a node must have to run the pods.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Taints that the pods put up with.
    pub tolerations: Option<Vec<Toleration>>,
    /// Which nodes, and which other pods nearby, the pods want or avoid.
    pub affinity: Option<Affinity>,
    /// Deprecated: use `affinity.podAffinity`.
    pub pod_affinity: Option<PodAffinity>,
    /// Compute resources of the training containers.
    pub resources: Option<ResourceRequirements>,
    /// Size of `/dev/shm`, as a quantity: `8Gi`; no limit of its own when unset.
    pub shared_memory_size_limit: Option<Quantity>,
}

/// Volume that each training job gets for its own files.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceVolume {
    /// Storage class of the claim; the cluster's default class when unset.
    pub storage_class: Option<String>,
    /// Capacity of the claim, as a quantity: `10Gi`.
    pub size: Option<String>,
    /// Access mode of the claim: `ReadWriteOnce`, `ReadWriteMany` and so on.
    pub volume_access_mode: Option<String>,
    /// Directory in the container where it is mounted.
    #[schemars(extend("default" = "/pvc/workspace"))]
    pub mount_path: Option<String>,
}
