//! NIMPipeline: several NIM services that belong together.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::service::{NimServiceSpec, RULES, rules};
use crate::resource::{Column, Handling, Kind, Namespaced, Resource};

/// Services that are made, and report their state, together.
pub type NimPipeline = Resource<NimPipelineSpec>;

/// Services that are made, and report their state, together.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NimPipelineSpec {
    /// The services.
    pub services: Option<Vec<PipelineService>>,
}

impl Kind for NimPipelineSpec {
    type Status = NimPipelineStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = "v1alpha1";
    const KIND: &'static str = "NIMPipeline";
    const PLURAL: &'static str = "nimpipelines";
    const HANDLING: Handling = Handling::Reconciled;
    const COLUMNS: &'static [Column] = &[Column::STATE, Column::AGE_WITH_FORMAT];
}

/// One service of a pipeline.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PipelineService {
    /// Name of the NIMService that is made.
    pub name: Option<String>,
    /// Whether the NIMService exists. It does not when unset, and is deleted when switched off.
    pub enabled: Option<bool>,
    /// Spec of the NIMService.
    #[schemars(extend("x-kubernetes-validations" = rules(RULES)))]
    pub spec: Option<NimServiceSpec>,
    /// Other services that this one is told about through its environment.
    pub dependencies: Option<Vec<ServiceDependency>>,
}

/// A service that another one calls.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceDependency {
    /// Name of the service called.
    pub name: String,
    /// Port of the service called.
    pub port: i32,
    /// Environment variable to set in the calling service.
    pub env_name: Option<String>,
    /// Value of that variable.
    pub env_value: Option<String>,
}

/// State of a pipeline.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NimPipelineStatus {
    /// `Ready` once all enabled services are, `Failed` if one is, else `NotReady`.
    pub state: Option<String>,
    /// State of each service, by name.
    pub states: Option<BTreeMap<String, String>>,
    /// Details behind the state.
    pub conditions: Option<Vec<Condition>>,
}
