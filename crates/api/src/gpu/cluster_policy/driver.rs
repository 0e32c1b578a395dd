//! ClusterPolicy's driver: one for all GPU nodes of the cluster.

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::gpu::component::{Component, ConfigMapRef, DriverManager};
use crate::gpu::driver_parts::{KernelModuleType, Probe, Rdma};
use crate::gpu::upgrade::UpgradePolicy;

/// GPU driver in a container.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Driver {
    /// How its container runs; the operating system is appended to a tag.
    #[serde(flatten)]
    pub component: Component,
    /// Whether NVIDIADriver objects describe the drivers instead of this section; off when unset.
    #[serde(rename = "useNvidiaDriverCRD")]
    pub use_nvidia_driver_crd: Option<bool>,
    /// Whether images with modules built for the node's kernel are used, one DaemonSet per kernel; off when unset.
    pub use_precompiled: Option<bool>,
    /// Deprecated and without effect: see `kernelModuleType`.
    pub use_open_kernel_modules: Option<bool>,
    /// Flavour of the kernel modules.
    #[schemars(extend("default" = "auto"))]
    pub kernel_module_type: Option<KernelModuleType>,
    /// Changes to the probe that waits for the driver to be installed.
    pub startup_probe: Option<Probe>,
    /// Changes to the probe that restarts a broken driver container.
    pub liveness_probe: Option<Probe>,
    /// Changes to the probe that says whether the driver works.
    pub readiness_probe: Option<Probe>,
    /// GPUDirect RDMA.
    pub rdma: Option<Rdma>,
    /// How drivers are upgraded; by hand when unset.
    pub upgrade_policy: Option<UpgradePolicy>,
    /// The init container that unloads the old driver.
    pub manager: Option<DriverManager>,
    /// Package repositories for building the driver.
    pub repo_config: Option<RepoConfig>,
    /// ConfigMap with certificates that the driver container trusts.
    pub cert_config: Option<ConfigMapRef>,
    /// License of vGPU guests.
    pub licensing_config: Option<LicensingConfig>,
    /// Topology daemon of vGPU guests.
    pub virtual_topology: Option<VirtualTopology>,
    /// ConfigMap with a file of parameters per kernel module, such as `nvidia.conf`.
    pub kernel_module_config: Option<ConfigMapRef>,
    /// Secret whose keys become environment variables of the driver container.
    pub secret_env: Option<String>,
}

/// Package repositories for building the driver.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RepoConfig {
    /// ConfigMap whose keys are files for the distribution's repository directory.
    pub config_map_name: Option<String>,
}

/// License of vGPU guests.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LicensingConfig {
    /// Deprecated: ConfigMap with `gridd.conf` and the client token; use `secretName`.
    pub config_map_name: Option<String>,
    /// Secret with `gridd.conf` and the client token; wins over the ConfigMap.
    pub secret_name: Option<String>,
    /// Whether the license comes from the license system by its client token; off when unset.
    pub nls_enabled: Option<bool>,
}

/// Topology daemon of vGPU guests.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualTopology {
    /// ConfigMap with `nvidia-topologyd.conf`.
    pub config: Option<String>,
}
