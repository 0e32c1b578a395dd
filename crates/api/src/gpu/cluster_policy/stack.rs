//! ClusterPolicy's components on nodes that run containers: toolkit, device plugin, MIG, validator.

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::gpu::component::{Component, ConfigMapRef, EnvVar, Image, Resources};

/// Container toolkit.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Toolkit {
    /// How its container runs; `args` has no effect.
    #[serde(flatten)]
    pub component: Component,
    /// Directory on the node into which the toolkit is installed.
    #[schemars(extend("default" = "/usr/local/nvidia"))]
    pub install_dir: Option<String>,
}

/// Device plugin.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DevicePlugin {
    /// How its container runs.
    #[serde(flatten)]
    pub component: Component,
    /// Named configurations, of which a node chooses one by its label `nvidia.com/device-plugin.config`.
    pub config: Option<DevicePluginConfig>,
    /// GPU sharing by MPS.
    pub mps: Option<Mps>,
}

/// Named configurations of the device plugin.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DevicePluginConfig {
    /// ConfigMap with one configuration per key.
    pub name: Option<String>,
    /// Key that nodes without the label use.
    pub default: Option<String>,
}

/// GPU sharing by MPS.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Mps {
    /// Directory on the node for pipes and logs of MPS daemons.
    #[schemars(extend("default" = "/run/nvidia/mps"))]
    pub root: Option<String>,
}

/// How MIG devices are offered.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Mig {
    /// Names under which MIG devices are offered.
    pub strategy: Option<MigStrategy>,
}

/// Names under which MIG devices are offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum MigStrategy {
    /// MIG is not looked at.
    #[default]
    None,
    /// As `nvidia.com/gpu`; all devices of a node have the same size.
    Single,
    /// As `nvidia.com/mig-…`, by their size.
    Mixed,
}

/// MIG manager.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigManager {
    /// How its container runs.
    #[serde(flatten)]
    pub component: Component,
    /// Which layouts there are and which one nodes start with.
    pub config: Option<MigConfig>,
    /// ConfigMap that lists the clients to stop while GPUs are partitioned; a built-in list when unset.
    pub gpu_clients_config: Option<ConfigMapRef>,
}

/// Layouts of MIG devices.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigConfig {
    /// ConfigMap with layouts under the key `config.yaml`; built-in layouts when unset.
    pub name: Option<String>,
    /// Layout for MIG-capable nodes that have no label `nvidia.com/mig.config` yet.
    #[schemars(extend("default" = "all-disabled"))]
    pub default: Option<DefaultMigLayout>,
}

/// Layout for MIG-capable nodes that have chosen none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DefaultMigLayout {
    /// MIG is off.
    #[default]
    AllDisabled,
    /// GPUs stay as they are.
    #[serde(rename = "")]
    Unset,
}

/// Validator; its image also serves the init containers that wait for another component.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Validator {
    /// Its image.
    #[serde(flatten)]
    pub image: Image,
    /// CPU, memory and other resources of each container.
    pub resources: Option<Resources>,
    /// Arguments of the main container, instead of the built-in ones.
    pub args: Option<Vec<String>>,
    /// Environment of the main container.
    pub env: Option<Vec<EnvVar>>,
    /// Whether the pod shares its node's network.
    pub host_network: Option<bool>,
    /// Check of the device plugin.
    pub plugin: Option<Check>,
    /// Check of the container toolkit.
    pub toolkit: Option<Check>,
    /// Check of the driver.
    pub driver: Option<Check>,
    /// Check that a CUDA program runs.
    pub cuda: Option<Check>,
    /// Check that GPUs are bound to vfio-pci; sandboxes only.
    #[serde(rename = "vfioPCI")]
    pub vfio_pci: Option<Check>,
    /// Check of the vGPU manager; sandboxes only.
    pub vgpu_manager: Option<Check>,
    /// Check that vGPU devices exist; sandboxes only.
    pub vgpu_devices: Option<Check>,
}

/// One check of the validator.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// Environment of its init container.
    pub env: Option<Vec<EnvVar>>,
}
