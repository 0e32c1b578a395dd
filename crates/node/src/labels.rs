//! Labels and annotations of a Node object that more than one crate reads or writes.

/// A deploy label by the name of its operand: `deploy_label!("dcgm")` is `nvidia.com/gpu.deploy.dcgm`.
#[macro_export]
macro_rules! deploy_label {
    ($name:literal) => {
        concat!("nvidia.com/gpu.deploy.", $name)
    };
}

/// Whether the node has GPUs to be used.
pub const GPU_PRESENT: &str = "nvidia.com/gpu.present";
/// What every deploy label begins with; the rest names the operand.
pub const DEPLOY_PREFIX: &str = "nvidia.com/gpu.deploy.";
/// The user's switch: `false` keeps every operand off the node.
pub const DEPLOY_OPERANDS: &str = deploy_label!("operands");
/// Whether the node gets a driver from the operator.
pub const DEPLOY_DRIVER: &str = deploy_label!("driver");
/// Value of a deploy label while the operand has to be away for a driver upgrade.
pub const PAUSED_FOR_DRIVER_UPGRADE: &str = "paused-for-driver-upgrade";

/// What the node's GPUs are used for: containers, or one of two kinds of virtual machines.
pub const WORKLOAD_CONFIG: &str = "nvidia.com/gpu.workload.config";
/// Which of the device plugin's configs the node has.
pub const DEVICE_PLUGIN_CONFIG: &str = "nvidia.com/device-plugin.config";
/// Whether GPUs can be partitioned, as feature discovery says.
pub const MIG_CAPABLE: &str = "nvidia.com/mig.capable";
/// Layout of the partitions.
pub const MIG_CONFIG: &str = "nvidia.com/mig.config";
/// How far the MIG manager is with the layout.
pub const MIG_CONFIG_STATE: &str = "nvidia.com/mig.config.state";
/// GPU model, as feature discovery says.
pub const GPU_PRODUCT: &str = "nvidia.com/gpu.product";
/// Set on guests with virtual GPUs.
pub const VGPU_HOST_DRIVER: &str = "nvidia.com/vgpu.host-driver-version";
/// The NVIDIADriver that installs the node's driver.
pub const DRIVER_OWNER: &str = "nvidia.com/gpu-operator.driver.owner";

/// How far the node's driver upgrade is.
pub const UPGRADE_STATE: &str = "nvidia.com/gpu-driver-upgrade-state";
/// Annotation: drivers are upgraded automatically on this node.
pub const UPGRADE_ENABLED: &str = "nvidia.com/gpu-driver-upgrade-enabled";
