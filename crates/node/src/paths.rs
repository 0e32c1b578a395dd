//! Directories and sockets of a node that several operands mount.

/// What operands of a GPU node keep while the machine runs.
pub const RUN: &str = "/run/nvidia";
/// Root of the driver that a driver container loaded.
pub const DRIVER_ROOT: &str = "/run/nvidia/driver";
/// State of the container toolkit.
pub const TOOLKIT_RUN: &str = "/run/nvidia/toolkit";
/// Process id of the container toolkit, while it runs.
pub const TOOLKIT_PID: &str = "/run/nvidia/toolkit/toolkit.pid";
/// Where the container toolkit is installed.
pub const TOOLKIT_INSTALL: &str = "/usr/local/nvidia";
/// Pipes and shared memory of MPS.
pub const MPS: &str = "/run/nvidia/mps";
/// Where containers of the network driver say that they are ready.
pub const MOFED: &str = "/run/mellanox/drivers";
/// Where container runtimes read CDI specs that do not survive a reboot.
pub const CDI: &str = "/var/run/cdi";
/// Sockets of the kubelet and of device plugins.
pub const DEVICE_PLUGINS: &str = "/var/lib/kubelet/device-plugins";
/// The socket on which the kubelet says which pod holds which device.
pub const POD_RESOURCES_SOCKET: &str = "/var/lib/kubelet/pod-resources/kubelet.sock";
/// Where Node Feature Discovery reads features that others found.
pub const NODE_FEATURES: &str = "/etc/kubernetes/node-feature-discovery/features.d";
