//! Labels and annotations of a Node object that more than one crate reads or writes.

/// A deploy label by operand: `deploy_label!("dcgm")` is `nvidia.com/gpu.deploy.dcgm`.
#[macro_export]
macro_rules! deploy_label {
    ($name:literal) => {
        concat!("nvidia.com/gpu.deploy.", $name)
    };
}

/// Whether the node has GPUs.
pub const GPU_PRESENT: &str = "nvidia.com/gpu.present";
/// Prefix of deploy labels; the operand follows.
pub const DEPLOY_PREFIX: &str = "nvidia.com/gpu.deploy.";
/// Set by users: `false` keeps every operand off the node.
pub const DEPLOY_OPERANDS: &str = deploy_label!("operands");
/// Whether the operator deploys a driver to the node.
pub const DEPLOY_DRIVER: &str = deploy_label!("driver");
/// Value of a deploy label while a driver upgrade keeps the operand off the node.
pub const PAUSED_FOR_DRIVER_UPGRADE: &str = "paused-for-driver-upgrade";

/// Workload type of the node's GPUs: containers, or one of two kinds of virtual machines.
pub const WORKLOAD_CONFIG: &str = "nvidia.com/gpu.workload.config";
/// The node's device plugin config.
pub const DEVICE_PLUGIN_CONFIG: &str = "nvidia.com/device-plugin.config";
/// Whether GPUs support MIG, from feature discovery.
pub const MIG_CAPABLE: &str = "nvidia.com/mig.capable";
/// MIG layout.
pub const MIG_CONFIG: &str = "nvidia.com/mig.config";
/// State of the MIG manager.
pub const MIG_CONFIG_STATE: &str = "nvidia.com/mig.config.state";
/// GPU model, from feature discovery.
pub const GPU_PRODUCT: &str = "nvidia.com/gpu.product";
/// Set on guests with vGPUs.
pub const VGPU_HOST_DRIVER: &str = "nvidia.com/vgpu.host-driver-version";
/// The NVIDIADriver that manages the node's driver.
pub const DRIVER_OWNER: &str = "nvidia.com/gpu-operator.driver.owner";

/// State of the node's driver upgrade.
pub const UPGRADE_STATE: &str = "nvidia.com/gpu-driver-upgrade-state";
/// Annotation: automatic driver upgrades are enabled on this node.
pub const UPGRADE_ENABLED: &str = "nvidia.com/gpu-driver-upgrade-enabled";
