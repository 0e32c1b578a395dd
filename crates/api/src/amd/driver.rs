//! Kernel driver of AMD GPUs: where it comes from, how it is loaded, how nodes move to a new version.

use crate::json_schema::JsonSchema;
use k8s_openapi::api::core::v1::{LocalObjectReference, Toleration};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// A driver image without tag: the path may hold upper case, underscores and `$MOD_NAMESPACE`.
const DRIVER_IMAGE: &str = concat!(
    r"^([a-z0-9]+(?:[._-][a-z0-9]+)*(:[0-9]+)?)(/[$a-zA-Z0-9_]+(?:[._-][$a-zA-Z0-9_]+)*)*",
    r"(?::[a-z0-9._-]+)?(?:@[a-zA-Z0-9]+:[a-f0-9]+)?$"
);

/// Kernel driver of the selected nodes.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Driver {
    /// Whether the driver is installed; false leaves the node's own driver in charge.
    #[schemars(extend("default" = true))]
    pub enable: Option<bool>,
    /// What the GPUs are used for, which decides on the driver.
    #[schemars(extend("default" = "container"))]
    pub driver_type: Option<DriverType>,
    /// Devices to bind to VFIO in the passthrough types.
    pub vfio_config: Option<VfioConfig>,
    /// How the kernel module is loaded and unloaded.
    pub kernel_module_config: Option<KernelModuleConfig>,
    /// Whether the kernel's own amdgpu is kept from loading; needs a reboot to take effect.
    pub blacklist: Option<bool>,
    /// Whether the driver is compiled from a source image instead of packages. OpenShift only.
    pub use_source_image: Option<bool>,
    /// Base URL of the driver packages; `https://repo.radeon.com` when unset.
    #[serde(rename = "amdgpuInstallerRepoURL")]
    pub amdgpu_installer_repo_url: Option<String>,
    /// Driver version; chosen by the node's operating system when unset.
    pub version: Option<String>,
    /// Repository of the driver images, without tag, to pull from and push builds to; the cluster's own registry when
    /// unset. The tag follows from operating system, kernel and version.
    #[schemars(regex(pattern = DRIVER_IMAGE))]
    pub image: Option<String>,
    /// How the driver image's registry is spoken to.
    #[serde(rename = "imageRegistryTLS")]
    pub image_registry_tls: Option<RegistryTls>,
    /// Secret in the same namespace with the registry's credentials, to pull and to push.
    pub image_registry_secret: Option<LocalObjectReference>,
    /// Keys that sign the kernel modules for Secure Boot.
    pub image_sign: Option<ImageSign>,
    /// How driver images are built.
    pub image_build: Option<ImageBuild>,
    /// How nodes move to a new version; nodes stay on theirs when unset.
    pub upgrade_policy: Option<DriverUpgradePolicy>,
    /// Taints that the driver's pods put up with.
    pub tolerations: Option<Vec<Toleration>>,
}

/// What the GPUs are used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DriverType {
    /// Containers on the node: the amdgpu driver.
    #[default]
    Container,
    /// Virtual machines that get virtual functions: the GIM host driver, virtual functions bound to VFIO.
    VfPassthrough,
    /// Virtual machines that get whole GPUs: no driver, physical functions bound to VFIO.
    PfPassthrough,
}

/// Devices to bind to VFIO.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VfioConfig {
    /// PCI device ids of vendor 1002, such as `74a1`; a built-in list by driver type when unset.
    #[serde(rename = "deviceIDs")]
    pub device_ids: Option<Vec<String>>,
}

/// How the kernel module is loaded and unloaded.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KernelModuleConfig {
    /// Arguments to `modprobe` when loading.
    pub load_args: Option<Vec<String>>,
    /// Arguments to `modprobe` when unloading.
    pub unload_args: Option<Vec<String>>,
    /// Module parameters, as `name=value`.
    pub parameters: Option<Vec<String>>,
}

/// How a registry is spoken to.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegistryTls {
    /// Whether plain HTTP is fine.
    pub insecure: Option<bool>,
    /// Whether any certificate is accepted.
    #[serde(rename = "insecureSkipTLSVerify")]
    pub insecure_skip_tls_verify: Option<bool>,
}

/// Keys that sign the kernel modules; nothing is signed unless both are set.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageSign {
    /// Secret with the private key.
    pub key_secret: Option<LocalObjectReference>,
    /// Secret with the certificate that the firmware trusts.
    pub cert_secret: Option<LocalObjectReference>,
}

/// How driver images are built.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageBuild {
    /// Registry of the base images, for clusters that mirror Docker Hub.
    #[schemars(extend("default" = "docker.io"))]
    pub base_image_registry: Option<String>,
    /// Repository of the source images; `docker.io/rocm/amdgpu-driver` when unset. OpenShift only.
    pub source_image_repo: Option<String>,
    /// Package repository to use during the build, for clusters without internet.
    #[serde(rename = "packageRepoURL")]
    pub package_repo_url: Option<String>,
    /// URL of the key that signs that repository.
    #[serde(rename = "gpgKeyURL")]
    pub gpg_key_url: Option<String>,
    /// How the base images' registry is spoken to.
    #[serde(rename = "baseImageRegistryTLS")]
    pub base_image_registry_tls: Option<RegistryTls>,
}

/// How nodes move to a new driver version.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriverUpgradePolicy {
    /// Whether nodes are upgraded; a policy without this field counts as enabled.
    pub enable: Option<bool>,
    /// Number of nodes upgraded at a time; 0 is no limit.
    #[schemars(range(min = 0), extend("default" = 1))]
    pub max_parallel_upgrades: Option<i64>,
    /// Number or share of nodes that may be unavailable, failed upgrades included; a share is rounded up.
    #[schemars(extend("default" = "25%"))]
    pub max_unavailable_nodes: Option<IntOrString>,
    /// Evicts pods that use GPUs before the upgrade; wins over `podDeletionPolicy`.
    pub node_drain_policy: Option<NodeDrainPolicy>,
    /// Deletes pods that use GPUs before the upgrade.
    pub pod_deletion_policy: Option<PodDeletionPolicy>,
    /// Whether nodes reboot to load the new driver.
    #[schemars(extend("default" = true))]
    pub reboot_required: Option<bool>,
}

/// How pods are evicted from a node.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeDrainPolicy {
    /// Whether pods without a controller, which nobody starts again, are evicted too.
    #[schemars(extend("default" = false))]
    pub force: Option<bool>,
    /// Seconds to wait for the pods to go; 0 waits for ever.
    #[schemars(range(min = 0), extend("default" = 300))]
    pub timeout_seconds: Option<i64>,
    /// Seconds that each pod gets to stop; −1 is the pod's own grace period.
    #[schemars(extend("default" = -1))]
    pub grace_period_seconds: Option<i64>,
    /// Whether pods of DaemonSets stay.
    #[schemars(extend("default" = true))]
    pub ignore_daemon_sets: Option<bool>,
    /// Namespaces whose pods stay.
    pub ignore_namespaces: Option<Vec<String>>,
}

/// How pods are deleted from a node.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodDeletionPolicy {
    /// Whether pods without a controller, which nobody starts again, are deleted too.
    #[schemars(extend("default" = false))]
    pub force: Option<bool>,
    /// Seconds to wait for the pods to go; 0 waits for ever.
    #[schemars(range(min = 0), extend("default" = 300))]
    pub timeout_seconds: Option<i64>,
    /// Seconds that each pod gets to stop; −1 is the pod's own grace period.
    #[schemars(extend("default" = -1))]
    pub grace_period_seconds: Option<i64>,
}
