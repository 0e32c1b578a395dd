//! NIMCache: a model downloaded once, for services to share.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use k8s_openapi::api::core::v1::{EnvVar, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::cache_source::NimSource;
use crate::common::{ExtraContainer, PersistentVolumeClaim, Proxy};
use crate::resource::{Column, Handling, Kind, Namespaced, Resource};

/// Downloads a model into a volume.
pub type NimCache = Resource<NimCacheSpec>;

/// Downloads a model, or a dataset, into a volume that services share.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NimCacheSpec {
    /// Where the model comes from.
    pub source: NimSource,
    /// Where it is put.
    pub storage: NimCacheStorage,
    /// Resources of the download.
    pub resources: Option<CacheResources>,
    /// Taints that the download tolerates.
    pub tolerations: Option<Vec<Toleration>>,
    /// Labels that a node must have to run the download; those of nodes with an NVIDIA device when unset.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// User as which the download runs; 1000 when unset.
    #[serde(rename = "userID")]
    pub user_id: Option<i64>,
    /// Group as which the download runs and to which the volume belongs; 2000 when unset.
    #[serde(rename = "groupID")]
    pub group_id: Option<i64>,
    /// Deprecated and refused when used: set `proxy.certConfigMap` instead.
    pub cert_config: Option<CertConfig>,
    /// Environment of the download; an entry here wins over Capstan's of the same name.
    pub env: Option<Vec<EnvVar>>,
    /// RuntimeClass of the download.
    pub runtime_class_name: Option<String>,
    /// Proxy and extra certificates for the download.
    pub proxy: Option<Proxy>,
    /// Containers that run to their end, in order, before the download starts.
    pub init_containers: Option<Vec<ExtraContainer>>,
}

impl Kind for NimCacheSpec {
    type Status = NimCacheStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = "v1alpha1";
    const KIND: &'static str = "NIMCache";
    const PLURAL: &'static str = "nimcaches";
    const HANDLING: Handling = Handling::Reconciled;
    const COLUMNS: &'static [Column] =
        &[Column::STATE, Column::new("PVC", "string", ".status.pvc"), Column::AGE_WITH_FORMAT];
}

/// Where the model is put.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NimCacheStorage {
    /// Claim that holds the model. Give it `ReadWriteMany` if several nodes serve from it.
    pub pvc: Option<PersistentVolumeClaim>,
    /// Deprecated and without effect: use `pvc`.
    pub host_path: Option<String>,
}

/// Resources of the download, each both requested and the limit.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CacheResources {
    /// CPU.
    pub cpu: Option<Quantity>,
    /// Memory.
    pub memory: Option<Quantity>,
}

/// Certificates to trust, in the old form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertConfig {
    /// ConfigMap with the certificates.
    pub name: String,
    /// Directory at which they were mounted.
    pub mount_path: String,
}

/// State of a cache.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NimCacheStatus {
    /// `NotReady`, `PVC-Created`, `Started`, `Pending`, `InProgress`, `Ready` or `Failed`.
    pub state: Option<String>,
    /// Layout of the cached model: empty, `model-free` or `native`.
    #[serde(rename = "type")]
    pub type_: Option<String>,
    /// Claim that holds the model.
    pub pvc: Option<String>,
    /// Profiles in the cache.
    pub profiles: Option<Vec<NimProfile>>,
    /// Steps done and what went wrong.
    pub conditions: Option<Vec<Condition>>,
}

/// One form of a model, made for certain GPUs, precision and engine.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NimProfile {
    /// Id of the profile.
    pub name: Option<String>,
    /// Model that the profile is of.
    pub model: Option<String>,
    /// Release of the profile.
    pub release: Option<String>,
    /// Tags of the profile: GPU, precision, engine, parallelism …
    pub config: Option<BTreeMap<String, String>>,
}
