//! The endpoint picker (EPP) of an inference gateway.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use k8s_openapi::api::core::v1::{ConfigMapKeySelector, ContainerPort, Probe};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

use super::container::ExtraContainer;

/// An endpoint picker and its configuration, either inline or in a ConfigMap.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(has(self.configMapRef) && has(self.config))",
    "message": "eppConfig: configMapRef and config are both set; keep one of them",
}]))]
pub struct EppConfig {
    /// Image, arguments and environment of the picker. Its own arguments replace all that Capstan would pass.
    pub container_spec: ExtraContainer,
    /// Readiness probe; gRPC health on port 9003 when unset.
    pub readiness_probe: Option<Probe>,
    /// Liveness probe; gRPC health on port 9003 when unset.
    pub liveness_probe: Option<Probe>,
    /// Startup probe; none when unset.
    pub startup_probe: Option<Probe>,
    /// Ports of the picker; 9002 for the gateway, 9003 for health and 9090 for metrics when unset.
    pub ports: Option<Vec<ContainerPort>>,
    /// Key of an existing ConfigMap that holds the configuration.
    pub config_map_ref: Option<ConfigMapKeySelector>,
    /// Configuration, stored by Capstan in a ConfigMap of its own.
    pub config: Option<EndpointPickerConfig>,
}

/// Plugins of the picker and how they are combined. Fields not known here are passed on as they are.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct EndpointPickerConfig {
    /// API version in which the picker reads this configuration.
    pub api_version: Option<String>,
    /// Kind as which the picker reads this configuration: `EndpointPickerConfig`.
    pub kind: Option<String>,
    /// Experimental features of the picker to switch on, by name.
    pub feature_gates: Option<Vec<String>>,
    /// Plugins to load.
    pub plugins: Vec<PickerPlugin>,
    /// Profiles, each a way to score replicas.
    pub scheduling_profiles: Vec<SchedulingProfile>,
    /// When replicas count as overloaded; the picker's own thresholds when unset.
    pub saturation_detector: Option<SaturationDetector>,
    /// Where the picker gets data about replicas.
    pub data: Option<PickerData>,
    /// All other fields.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: BTreeMap<String, Value>,
}

/// One plugin.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PickerPlugin {
    /// Type of the plugin, as the picker knows it.
    #[serde(rename = "type")]
    pub type_: String,
    /// Name by which profiles refer to it; its type when unset.
    pub name: Option<String>,
    /// Parameters of the plugin: JSON, encoded in base64.
    // The schema admits nothing but text. Read as any JSON, so that an object which a wider schema let in still decodes.
    #[schemars(with = "Option<String>", extend("format" = "byte"))]
    pub parameters: Option<Value>,
}

/// Plugins that together choose a replica.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingProfile {
    /// Name of the profile.
    pub name: String,
    /// Plugins, in the order in which they run.
    pub plugins: Vec<WeightedPlugin>,
}

/// Use of a plugin in a profile.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WeightedPlugin {
    /// Name of the plugin.
    pub plugin_ref: String,
    /// Weight of its score against the other scorers.
    pub weight: Option<i64>,
}

/// Thresholds above which a replica counts as overloaded.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SaturationDetector {
    /// Requests waiting in a replica.
    pub queue_depth_threshold: Option<i64>,
    /// Used share of the key-value cache, 0 to 1.
    pub kv_cache_util_threshold: Option<f64>,
    /// Age after which a replica's metrics are no longer trusted, as a duration: `200ms`.
    pub metrics_staleness_threshold: Option<String>,
}

/// Data layer of the picker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PickerData {
    /// Sources of data.
    pub sources: Vec<PickerDataSource>,
}

/// One source of data about replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PickerDataSource {
    /// Name of the plugin that fetches the data.
    pub plugin_ref: String,
    /// What is taken out of the data.
    pub extractors: Vec<PickerDataExtractor>,
}

/// One extractor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PickerDataExtractor {
    /// Name of the plugin that extracts.
    pub plugin_ref: String,
}
