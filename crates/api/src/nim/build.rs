//! NIMBuild: builds an optimized engine out of a cached model.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use k8s_openapi::api::core::v1::{EnvVar, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::cache::NimProfile;
use crate::common::Image;
use crate::resource::{Column, Handling, Kind, Namespaced, Resource};

/// Builds an engine out of a cached model, once.
pub type NimBuild = Resource<NimBuildSpec>;

/// Builds an engine out of a cached model, once, and adds it to the cache. Cannot change after creation.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self == oldSelf",
    "message": "spec cannot change after creation; create a new NIMBuild instead",
}]))]
pub struct NimBuildSpec {
    /// Cache to build from, and into.
    pub nim_cache: BuildCacheRef,
    /// Name of the model built; the name of this object when unset.
    pub model_name: Option<String>,
    /// NIM image that builds.
    pub image: Image,
    /// Resources of the build; GPUs belong here.
    pub resources: Option<BuildResources>,
    /// Taints that the build tolerates.
    pub tolerations: Option<Vec<Toleration>>,
    /// Labels that a node must have to run the build.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Environment of the build; an entry here wins over Capstan's of the same name.
    pub env: Option<Vec<EnvVar>>,
    /// Labels of the pod that builds.
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations of the pod that builds.
    pub annotations: Option<BTreeMap<String, String>>,
}

impl Kind for NimBuildSpec {
    type Status = NimBuildStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = "v1alpha1";
    const KIND: &'static str = "NIMBuild";
    const PLURAL: &'static str = "nimbuilds";
    const HANDLING: Handling = Handling::Reconciled;
    const COLUMNS: &'static [Column] = &[Column::STATE, Column::AGE_WITH_FORMAT];
}

/// A NIMCache in the same namespace, and what to build from it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BuildCacheRef {
    /// Name of the NIMCache.
    pub name: String,
    /// Buildable profile to use; may be unset when the cache has exactly one.
    pub profile: Option<String>,
}

/// Resources of a build.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BuildResources {
    /// What the build may use at most.
    pub limits: Option<BTreeMap<String, Quantity>>,
    /// What the node must have free; the limits when unset.
    pub requests: Option<BTreeMap<String, Quantity>>,
}

/// State of a build.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NimBuildStatus {
    /// `NotReady`, `Pending`, `Started`, `InProgress`, `Ready` or `Failed`.
    pub state: Option<String>,
    /// Steps done and what went wrong.
    pub conditions: Option<Vec<Condition>>,
    /// Profile that is built from.
    pub input_profile: Option<NimProfile>,
    /// Profile that was built.
    pub output_profile: Option<NimProfile>,
}
