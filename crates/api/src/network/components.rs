//! Components of a cluster policy that need little more than an image.

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::image::{ConfiguredImage, ImageSpec};

/// What pods need to have more than one network.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecondaryNetwork {
    /// Multus, which attaches the networks; `config` is its whole CNI configuration as JSON.
    pub multus: Option<ConfiguredImage>,
    /// The common CNI plugins, such as macvlan, host-device and the IPAM plugins.
    pub cni_plugins: Option<ImageSpec>,
    /// The CNI plugin for IP over InfiniBand.
    pub ipoib: Option<ImageSpec>,
}

/// Adds the InfiniBand GUIDs of pods to partitions (PKeys) through the fabric manager UFM.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IbKubernetes {
    /// The image.
    #[serde(flatten)]
    pub image: ImageSpec,
    /// Seconds between updates of the fabric manager.
    #[schemars(range(min = 0), extend("default" = 5))]
    pub periodic_update_seconds: Option<i64>,
    /// First GUID that pods may get, as eight hex bytes with colons.
    #[serde(rename = "pKeyGUIDPoolRangeStart")]
    pub pkey_guid_pool_range_start: String,
    /// Last GUID that pods may get; greater than the first.
    #[serde(rename = "pKeyGUIDPoolRangeEnd")]
    pub pkey_guid_pool_range_end: String,
    /// Secret in the operator's namespace with address and login of UFM.
    pub ufm_secret: String,
}

/// NVIDIA's IPAM plugin: addresses from pools that are split over the nodes.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NvIpam {
    /// The image.
    #[serde(flatten)]
    pub image: ImageSpec,
    /// Check address pools by a webhook; needs cert-manager, except on OpenShift. Off when unset.
    pub enable_webhook: Option<bool>,
}

/// Collects counters of cards and pods and serves them to Prometheus.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DocaTelemetryService {
    /// The image.
    #[serde(flatten)]
    pub image: ImageSpec,
    /// Where its configuration comes from; the operator makes one when unset.
    pub config: Option<DocaTelemetryConfig>,
}

/// Where the configuration of the telemetry service comes from.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DocaTelemetryConfig {
    /// ConfigMap in the operator's namespace.
    pub from_config_map: Option<String>,
}

/// Sets up nodes for the rails of a Spectrum-X fabric.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpectrumXOperator {
    /// The image.
    #[serde(flatten)]
    pub image: ImageSpec,
    /// Image for the planes of a multi-plane fabric; not used when unset.
    pub x_plane: Option<ImageSpec>,
}
