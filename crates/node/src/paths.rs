//! Directories and sockets of a node that several operands mount.

/// Runtime directory of GPU operands.
pub const RUN: &str = "/run/nvidia";
/// Root of the driver container.
pub const DRIVER_ROOT: &str = "/run/nvidia/driver";
/// State of the container toolkit.
pub const TOOLKIT_RUN: &str = "/run/nvidia/toolkit";
/// PID file of the container toolkit.
pub const TOOLKIT_PID: &str = "/run/nvidia/toolkit/toolkit.pid";
/// Install directory of the container toolkit.
pub const TOOLKIT_INSTALL: &str = "/usr/local/nvidia";
/// Pipes and shared memory of MPS.
pub const MPS: &str = "/run/nvidia/mps";
/// Ready files of MOFED driver containers.
pub const MOFED: &str = "/run/mellanox/drivers";
/// CDI specs that do not survive a reboot.
pub const CDI: &str = "/var/run/cdi";
/// Sockets of the kubelet and of device plugins.
pub const DEVICE_PLUGINS: &str = "/var/lib/kubelet/device-plugins";
/// Socket of the kubelet's pod-resources API.
pub const POD_RESOURCES_SOCKET: &str = "/var/lib/kubelet/pod-resources/kubelet.sock";
/// Feature files for Node Feature Discovery.
pub const NODE_FEATURES: &str = "/etc/kubernetes/node-feature-discovery/features.d";
