//! Parts of a driver installation that ClusterPolicy and NVIDIADriver share.

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::component::{EnvVar, Image};

/// Flavour of the kernel modules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum KernelModuleType {
    /// What the driver recommends for the GPUs it finds.
    #[default]
    Auto,
    /// Open modules.
    Open,
    /// Closed modules.
    Proprietary,
}

/// Numbers of a probe of the driver container; what it runs is fixed.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// Seconds from the start of the container to the first try.
    pub initial_delay_seconds: Option<i32>,
    /// Seconds after which a try counts as failed.
    #[schemars(range(min = 1))]
    pub timeout_seconds: Option<i32>,
    /// Seconds between tries.
    #[schemars(range(min = 1))]
    pub period_seconds: Option<i32>,
    /// Successes in a row after a failure until the probe counts as passed.
    #[schemars(range(min = 1))]
    pub success_threshold: Option<i32>,
    /// Failures in a row until the probe counts as failed.
    #[schemars(range(min = 1))]
    pub failure_threshold: Option<i32>,
}

/// GPUDirect RDMA: network cards read and write GPU memory directly.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rdma {
    /// Whether nvidia-peermem is loaded beside the driver; off when unset.
    pub enabled: Option<bool>,
    /// Whether it is built against a network driver installed on the host rather than in a container; off when unset.
    pub use_host_mofed: Option<bool>,
}

/// A further kernel module, loaded by a sidecar of the driver; cannot be combined with precompiled drivers.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriverSidecar {
    /// Image of the sidecar; the operating system is appended to a tag.
    #[serde(flatten)]
    pub image: Image,
    /// Whether the module is loaded; off when unset.
    pub enabled: Option<bool>,
    /// Has no effect.
    pub args: Option<Vec<String>>,
    /// Environment of the sidecar.
    pub env: Option<Vec<EnvVar>>,
}
