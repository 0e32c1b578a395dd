//! Labels and annotations of GPU nodes: which there are, and which are ours.

use capstan_api::gpu::cluster_policy::sandbox::{SandboxMode, Workload};
use capstan_node::{deploy_label, labels};

/// Set by node feature discovery; any of them says that the node has an NVIDIA GPU.
pub const PCI: [&str; 3] = [
    "feature.node.kubernetes.io/pci-10de.present",
    "feature.node.kubernetes.io/pci-0302_10de.present",
    "feature.node.kubernetes.io/pci-0300_10de.present",
];
/// Whether the node has GPUs to be used.
pub const PRESENT: &str = labels::GPU_PRESENT;
/// The user's switch: `false` keeps every operand off the node.
pub const OPERANDS: &str = labels::DEPLOY_OPERANDS;
/// What the user wants the node's GPUs to be used for.
pub const WORKLOAD: &str = labels::WORKLOAD_CONFIG;
/// Whether GPUs can be partitioned, as feature discovery says.
pub const MIG_CAPABLE: &str = labels::MIG_CAPABLE;
/// GPU model, as feature discovery says.
pub const PRODUCT: &str = labels::GPU_PRODUCT;
/// Set on vGPU guests.
pub const VGPU_HOST_DRIVER: &str = labels::VGPU_HOST_DRIVER;
/// Layout of the partitions.
pub const MIG_CONFIG: &str = labels::MIG_CONFIG;
/// The layout without partitions.
pub const MIG_OFF: &str = "all-disabled";
/// NVIDIADriver that installs the node's driver.
pub const OWNER: &str = labels::DRIVER_OWNER;
/// Annotation: drivers are upgraded automatically on this node. The driver manager reads it.
pub const AUTO_UPGRADE: &str = labels::UPGRADE_ENABLED;
/// Annotation: we chose the MIG layout, so that it goes with us.
pub const MIG_CONFIG_IS_OURS: &str = "capstan.dev/mig-config-by-default";

/// Annotation: the startup taint that we gave the node, or found there, and will lift.
pub const STARTUP_TAINT: &str = "capstan.dev/startup-taint";

/// What runs the containers of the node, unless it is containerd: operands that depend on it are chosen by this.
pub const RUNTIME: &str = "capstan.dev/container-runtime";

macro_rules! deploy {
    ($($name:literal),*) => { &[$(deploy_label!($name)),*] };
}

/// Operands of nodes that run containers.
pub const CONTAINER: &[&str] = deploy![
    "driver",
    "gpu-feature-discovery",
    "container-toolkit",
    "device-plugin",
    "dcgm",
    "dcgm-exporter",
    "node-status-exporter",
    "operator-validator",
    "client"
];
/// Operands of nodes that hand whole GPUs to sandboxes, besides device plugin and cc-manager.
const PASSTHROUGH: &[&str] = deploy!["sandbox-validator", "vfio-manager", "kata-manager", "client"];
/// Operands of nodes whose GPUs virtual machines share, besides cc-manager.
const VGPU: &[&str] =
    deploy!["sandbox-device-plugin", "vgpu-manager", "vgpu-device-manager", "sandbox-validator", "client"];
/// Operands of a GPUCluster.
pub const DRA: &[&str] = deploy!["driver", "dra-driver", "dra-validator", "dcgm-dra", "dcgm-exporter-dra"];
/// Device plugins of sandboxes.
const KUBEVIRT_PLUGIN: &str = deploy_label!("sandbox-device-plugin");
const KATA_PLUGIN: &str = deploy_label!("kata-sandbox-device-plugin");
/// Confidential computing.
pub const CC_MANAGER: &str = deploy_label!("cc-manager");
/// Partitioning.
pub const MIG_MANAGER: &str = deploy_label!("mig-manager");
/// The DRA driver, which has to outlive the claims that it prepared.
pub const DRA_DRIVER: &str = deploy_label!("dra-driver");
/// The driver.
pub const DRIVER: &str = labels::DEPLOY_DRIVER;
/// What offers GPUs to the kubelet.
pub const DEVICE_PLUGIN: &str = capstan_node::DEVICE_PLUGIN.deploy_label();
const VGPU_MANAGER: &str = deploy_label!("vgpu-manager");

/// Every key that says where an operand runs, each once.
pub fn all() -> impl Iterator<Item = &'static str> {
    let dra = DRA.iter().filter(|key| !CONTAINER.contains(key));
    let vgpu = VGPU.iter().filter(|key| !PASSTHROUGH.contains(key) && **key != KUBEVIRT_PLUGIN);
    let passthrough = PASSTHROUGH.iter().filter(|key| !CONTAINER.contains(key));
    let others = [KUBEVIRT_PLUGIN, KATA_PLUGIN, CC_MANAGER, MIG_MANAGER];
    CONTAINER.iter().chain(passthrough).chain(vgpu).chain(dra).copied().chain(others)
}

/// The operands of a node with this workload. `cc_manager` says whether that one is deployed at all: its label, its
/// DaemonSet and the validator that waits for it must agree.
pub fn operands(workload: Workload, mode: SandboxMode, cc_manager: bool) -> impl Iterator<Item = &'static str> + Clone {
    let plugin = match (workload, mode) {
        (Workload::VmPassthrough, SandboxMode::Kubevirt) => Some(KUBEVIRT_PLUGIN),
        (Workload::VmPassthrough, SandboxMode::Kata) => Some(KATA_PLUGIN),
        _ => None,
    };
    let set = match workload {
        Workload::Container => CONTAINER,
        Workload::VmPassthrough => PASSTHROUGH,
        Workload::VmVgpu => VGPU,
    };
    let cc_manager = (cc_manager && workload != Workload::Container).then_some(CC_MANAGER);
    set.iter().copied().chain(plugin).chain(cc_manager)
}

/// Whether the key belongs to device plugins, so that a GPUCluster removes it.
pub fn plugin_only(key: &str) -> bool {
    !DRA.contains(&key) && key != VGPU_MANAGER
}

/// Whether a value of a deploy label is one that we, or a manager that pauses operands, set. Any other is the user's:
/// `false` keeps one operand off one node.
pub fn is_ours(value: &str) -> bool {
    matches!(value, "true" | "") || value.starts_with("paused-for-")
}
