//! ClusterPolicy's components on nodes that run virtual machines or confidential containers.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::gpu::component::{Component, ConfigMapRef, DriverManager};

/// Nodes that run virtual machines or confidential containers.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxWorkloads {
    /// Whether nodes may run anything but containers; off when unset.
    pub enabled: Option<bool>,
    /// What nodes without the label `nvidia.com/gpu.workload.config` run.
    #[schemars(extend("default" = "container"))]
    pub default_workload: Option<Workload>,
    /// What runs the sandboxes, hence which device plugin offers GPUs to them.
    #[schemars(extend("default" = "kubevirt"))]
    pub mode: Option<SandboxMode>,
}

/// What the GPUs of a node are used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Containers.
    #[default]
    Container,
    /// Sandboxes, each with whole GPUs.
    VmPassthrough,
    /// Virtual machines that share GPUs.
    VmVgpu,
}

/// What runs sandboxes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SandboxMode {
    /// KubeVirt.
    #[default]
    Kubevirt,
    /// Kata containers.
    Kata,
}

/// VFIO manager.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VfioManager {
    /// How its container runs.
    #[serde(flatten)]
    pub component: Component,
    /// The init container that unloads a GPU driver.
    pub driver_manager: Option<DriverManager>,
}

/// vGPU manager.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VgpuManager {
    /// How its container runs; the operating system is appended to a tag.
    #[serde(flatten)]
    pub component: Component,
    /// The init container that unloads the old driver.
    pub driver_manager: Option<DriverManager>,
    /// ConfigMap with a file of parameters per kernel module, such as `nvidia.conf`.
    pub kernel_module_config: Option<ConfigMapRef>,
}

/// vGPU device manager.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VgpuDeviceManager {
    /// How its container runs.
    #[serde(flatten)]
    pub component: Component,
    /// Named sets of vGPU devices, of which a node chooses one by its label `nvidia.com/vgpu.config`.
    pub config: Option<VgpuDevicesConfig>,
}

/// Named sets of vGPU devices.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VgpuDevicesConfig {
    /// ConfigMap with the sets under the key `config.yaml`; built-in sets when unset.
    pub name: Option<String>,
    /// Set for nodes without the label.
    #[schemars(extend("default" = "default"))]
    pub default: Option<String>,
}

/// Manager of confidential computing modes.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CcManager {
    /// How its container runs.
    #[serde(flatten)]
    pub component: Component,
    /// Mode of the GPUs of nodes without the label `nvidia.com/cc.mode`.
    pub default_mode: Option<CcMode>,
}

/// Confidential computing mode of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum CcMode {
    /// Memory is encrypted and the GPU attests itself.
    On,
    /// No confidential computing.
    #[default]
    Off,
    /// As `on`, yet open to debuggers and profilers.
    Devtools,
}

/// Deprecated: manager of Kata runtime classes.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KataManager {
    /// How its container ran.
    #[serde(flatten)]
    pub component: Component,
    /// Which runtime classes it installed.
    pub config: Option<KataConfig>,
}

/// Deprecated: Kata runtime classes.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KataConfig {
    /// Directory on the node that held their files.
    #[schemars(extend("default" = "/opt/nvidia-gpu-operator/artifacts/runtimeclasses"))]
    pub artifacts_dir: Option<String>,
    /// The runtime classes.
    pub runtime_classes: Option<Vec<KataRuntimeClass>>,
}

/// Deprecated: a Kata runtime class.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KataRuntimeClass {
    /// Its name.
    pub name: String,
    /// Labels of the nodes that had it.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Kernel and image that it booted.
    pub artifacts: KataArtifacts,
}

/// Deprecated: kernel and image of a Kata runtime class.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KataArtifacts {
    /// Image reference of the artifact.
    pub url: String,
    /// Registry credentials for it.
    pub pull_secret: Option<String>,
}
