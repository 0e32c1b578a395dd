//! NVIDIADriver: the GPU driver of a set of nodes.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use k8s_openapi::api::core::v1::{NodeAffinity, PodSecurityContext, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::component::{ConfigMapRef, DriverManager, EnvVar, Resources};
use super::driver_parts::{DriverSidecar, KernelModuleType, Probe, Rdma};
use super::upgrade::{AutoUpgradeByDefault, UpgradePolicy};
use crate::resource::{Cluster, Column, Handling, Kind, Resource};

/// The driver of a set of nodes.
pub type NvidiaDriver = Resource<NvidiaDriverSpec>;

/// Installs one version and flavour of the GPU driver on the nodes that it selects; no node may be selected twice.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.default) && self.default ? !has(self.nodeSelector) || size(self.nodeSelector) == 0 : true",
    "message": "nodeSelector: the default driver serves the nodes that no other selects; remove nodeSelector or default",
}]))]
pub struct NvidiaDriverSpec {
    /// Whether this driver serves the GPU nodes that no other NVIDIADriver selects; at most one may.
    #[schemars(extend("default" = false))]
    pub default: bool,
    /// What the driver is for; cannot be changed.
    #[schemars(extend("default" = "gpu", "x-kubernetes-validations" = [{
        "rule": "self == oldSelf",
        "message": "driverType cannot be changed; create another NVIDIADriver instead",
    }]))]
    pub driver_type: DriverType,
    /// Whether images with modules built for the node's kernel are used; off when unset. Cannot be changed once set.
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "self == oldSelf",
        "message": "usePrecompiled cannot be changed; create another NVIDIADriver instead",
    }]))]
    pub use_precompiled: Option<bool>,
    /// Deprecated and without effect: see `kernelModuleType`.
    pub use_open_kernel_modules: Option<bool>,
    /// Flavour of the kernel modules.
    #[schemars(extend("default" = "auto"))]
    pub kernel_module_type: Option<KernelModuleType>,
    /// Probe that waits for the driver to be installed; replaces the built-in numbers as a whole.
    pub startup_probe: Option<Probe>,
    /// Probe that restarts a broken driver container; asks what the startup probe asks.
    pub liveness_probe: Option<Probe>,
    /// Probe that says whether the driver works; asks what the startup probe asks.
    pub readiness_probe: Option<Probe>,
    /// GPUDirect RDMA.
    pub rdma: Option<Rdma>,
    /// GPUDirect Storage: loads nvidia-fs beside the driver.
    pub gds: Option<DriverSidecar>,
    /// GDRCopy: loads gdrdrv beside the driver.
    pub gdrcopy: Option<DriverSidecar>,
    /// How drivers are upgraded; automatically, one node at a time, when unset.
    #[schemars(with = "Option<AutoUpgradeByDefault>")]
    pub upgrade_policy: Option<UpgradePolicy>,
    /// Registry and path in front of the image name; needs `version` too.
    pub repository: Option<String>,
    /// Image name; a complete reference when `repository` and `version` are unset. Tags get the operating system appended.
    #[schemars(extend("default" = "nvcr.io/nvidia/driver"))]
    pub image: String,
    /// Driver version: the tag, or a digest that starts with `sha256:`.
    pub version: Option<String>,
    /// When nodes pull the image: Always, Never or IfNotPresent; IfNotPresent when unset.
    pub image_pull_policy: Option<String>,
    /// Names of registry credentials in the operator's namespace.
    pub image_pull_secrets: Option<Vec<String>>,
    /// The init container that unloads the old driver.
    pub manager: Option<DriverManager>,
    /// CPU, memory and other resources of each container.
    pub resources: Option<Resources>,
    /// Further arguments of the driver container.
    pub args: Option<Vec<String>>,
    /// Further environment of the driver container.
    pub env: Option<Vec<EnvVar>>,
    /// ConfigMap whose keys are files for the distribution's repository directory.
    pub repo_config: Option<ConfigMapRef>,
    /// ConfigMap with certificates that the driver container trusts.
    pub cert_config: Option<ConfigMapRef>,
    /// License of vGPU guests.
    pub licensing_config: Option<LicensingConfig>,
    /// ConfigMap with `nvidia-topologyd.conf` for vGPU guests.
    pub virtual_topology_config: Option<ConfigMapRef>,
    /// ConfigMap with a file of parameters per kernel module, such as `nvidia.conf`.
    pub kernel_module_config: Option<ConfigMapRef>,
    /// Secret whose keys become environment variables of the driver container; it must exist.
    pub secret_env: Option<String>,
    /// Labels of the nodes that get this driver; all GPU nodes when unset.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Accepted for compatibility, without effect: see `nodeSelector`.
    pub node_affinity: Option<NodeAffinity>,
    /// Taints that the driver pods tolerate besides `nvidia.com/gpu`.
    pub tolerations: Option<Vec<Toleration>>,
    /// Labels of DaemonSet and pods; `app` and `app.kubernetes.io/…` are left out.
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations of DaemonSet and pods.
    pub annotations: Option<BTreeMap<String, String>>,
    /// Priority of the driver pods; `system-node-critical` when unset.
    pub priority_class_name: Option<String>,
    /// Security settings of the driver pods as a whole.
    pub pod_security_context: Option<PodSecurityContext>,
    /// Whether the driver pods share their node's network; off when unset.
    pub host_network: Option<bool>,
}

impl Kind for NvidiaDriverSpec {
    type Status = NvidiaDriverStatus;
    type Scope = Cluster;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = "v1alpha1";
    const KIND: &'static str = "NVIDIADriver";
    const PLURAL: &'static str = "nvidiadrivers";
    const HANDLING: Handling = Handling::Reconciled;
    const SHORT_NAMES: &'static [&'static str] = &["nvd", "nvdriver", "nvdrivers"];
    const COLUMNS: &'static [Column] =
        &[Column::STATE, Column::new("Default", "boolean", ".spec.default"), Column::AGE_AS_STRING];
}

/// What a driver is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DriverType {
    /// Whole GPUs.
    #[default]
    Gpu,
    /// Shares of GPUs, in a guest.
    Vgpu,
    /// The host of such guests.
    VgpuHostManager,
}

/// License of vGPU guests.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LicensingConfig {
    /// Deprecated: ConfigMap with `gridd.conf` and the client token; use `secretName`.
    pub name: Option<String>,
    /// Secret with `gridd.conf` and the client token; wins over the ConfigMap.
    pub secret_name: Option<String>,
    /// Whether the license comes from the license system by its client token; on when unset.
    pub nls_enabled: Option<bool>,
}

/// How far the driver is.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NvidiaDriverStatus {
    /// Whether the driver is ready on all of its nodes.
    pub state: NvidiaDriverState,
    /// Namespace of the driver pods.
    pub namespace: Option<String>,
    /// The same in more words: Ready and Error.
    pub conditions: Option<Vec<Condition>>,
}

/// Summary of an NVIDIADriver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum NvidiaDriverState {
    /// Reserved.
    Ignored,
    /// The driver is ready on all of its nodes.
    Ready,
    /// Some node is not ready, or something is wrong; see the conditions.
    #[default]
    NotReady,
    /// The ClusterPolicy installs drivers itself.
    Disabled,
}
