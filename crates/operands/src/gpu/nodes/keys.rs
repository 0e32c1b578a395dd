//! Labels and annotations of GPU nodes, and which are ours.

use capstan_api::gpu::cluster_policy::sandbox::{SandboxMode, Workload};
use capstan_node::{deploy_label, labels};

/// Set by NFD; any of them means an NVIDIA GPU.
pub const PCI: [&str; 3] = [
    "feature.node.kubernetes.io/pci-10de.present",
    "feature.node.kubernetes.io/pci-0302_10de.present",
    "feature.node.kubernetes.io/pci-0300_10de.present",
];
/// Whether the node has GPUs.
pub const PRESENT: &str = labels::GPU_PRESENT;
/// The user's switch: `false` keeps every operand off the node.
pub const OPERANDS: &str = labels::DEPLOY_OPERANDS;
/// The workload type of the node.
pub const WORKLOAD: &str = labels::WORKLOAD_CONFIG;
/// Whether GPUs are MIG-capable, by GPU feature discovery.
pub const MIG_CAPABLE: &str = labels::MIG_CAPABLE;
/// GPU product, by GPU feature discovery.
pub const PRODUCT: &str = labels::GPU_PRODUCT;
/// Set on vGPU guests.
pub const VGPU_HOST_DRIVER: &str = labels::VGPU_HOST_DRIVER;
/// MIG layout.
pub const MIG_CONFIG: &str = labels::MIG_CONFIG;
/// The layout without MIG.
pub const MIG_OFF: &str = "all-disabled";
/// NVIDIADriver that installs the node's driver.
pub const OWNER: &str = labels::DRIVER_OWNER;
/// Annotation: drivers are upgraded automatically on this node. The driver manager reads it.
pub const AUTO_UPGRADE: &str = labels::UPGRADE_ENABLED;
/// Annotation: we set the MIG layout by default, and remove it with our labels.
pub const MIG_CONFIG_IS_OURS: &str = "capstan.dev/mig-config-by-default";

/// Annotation: the startup taint that we set or adopted, and will remove.
pub const STARTUP_TAINT: &str = "capstan.dev/startup-taint";

/// Container runtime of the node, unless it is containerd: selects runtime-specific operands.
pub const RUNTIME: &str = "capstan.dev/container-runtime";

macro_rules! deploy {
    ($($name:literal),*) => { &[$(deploy_label!($name)),*] };
}

/// Operands of nodes for containers.
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
/// Operands of nodes with GPU passthrough, besides device plugin and cc-manager.
const PASSTHROUGH: &[&str] = deploy!["sandbox-validator", "vfio-manager", "kata-manager", "client"];
/// Operands of vGPU nodes, besides cc-manager.
const VGPU: &[&str] =
    deploy!["sandbox-device-plugin", "vgpu-manager", "vgpu-device-manager", "sandbox-validator", "client"];
/// Operands of a GPUCluster.
pub const DRA: &[&str] = deploy!["driver", "dra-driver", "dra-validator", "dcgm-dra", "dcgm-exporter-dra"];
/// Sandbox device plugins.
const KUBEVIRT_PLUGIN: &str = deploy_label!("sandbox-device-plugin");
const KATA_PLUGIN: &str = deploy_label!("kata-sandbox-device-plugin");
/// Confidential computing manager.
pub const CC_MANAGER: &str = deploy_label!("cc-manager");
/// MIG manager.
pub const MIG_MANAGER: &str = deploy_label!("mig-manager");
/// The DRA driver, which has to outlive the claims that it prepared.
pub const DRA_DRIVER: &str = deploy_label!("dra-driver");
/// The driver.
pub const DRIVER: &str = labels::DEPLOY_DRIVER;
/// The device plugin.
pub const DEVICE_PLUGIN: &str = capstan_node::DEVICE_PLUGIN.deploy_label();
const VGPU_MANAGER: &str = deploy_label!("vgpu-manager");

/// All deploy labels, each once.
pub fn all() -> impl Iterator<Item = &'static str> {
    let dra = DRA.iter().filter(|key| !CONTAINER.contains(key));
    let vgpu = VGPU.iter().filter(|key| !PASSTHROUGH.contains(key) && **key != KUBEVIRT_PLUGIN);
    let passthrough = PASSTHROUGH.iter().filter(|key| !CONTAINER.contains(key));
    let others = [KUBEVIRT_PLUGIN, KATA_PLUGIN, CC_MANAGER, MIG_MANAGER];
    CONTAINER.iter().chain(passthrough).chain(vgpu).chain(dra).copied().chain(others)
}

/// The operands of a node with this workload. `cc_manager` is whether it is deployed: its label, its DaemonSet and the
/// validator that waits for it must agree.
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

/// Whether the label belongs to device plugins, so that a GPUCluster removes it.
pub fn plugin_only(key: &str) -> bool {
    !DRA.contains(&key) && key != VGPU_MANAGER
}

/// Whether a deploy label has a value of ours, or of a manager that pauses operands. Others are the user's: `false`
/// keeps one operand off one node.
pub fn is_ours(value: &str) -> bool {
    matches!(value, "true" | "") || value.starts_with("paused-for-")
}
