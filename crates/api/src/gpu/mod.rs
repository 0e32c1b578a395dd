//! NVIDIA GPUs: ClusterPolicy (device-plugin stack), GPUCluster (DRA stack), NVIDIADriver (drivers per set of nodes).
//!
//! A cluster runs either a ClusterPolicy or a GPUCluster; drivers come from the former or from NVIDIADrivers. What
//! several of them share has a file of its own: [`component`], [`driver_parts`], [`upgrade`], [`daemonsets`], [`dcgm`].

pub mod cluster_policy;
pub mod component;
pub mod daemonsets;
pub mod dcgm;
pub mod driver_parts;
pub mod gpu_cluster;
pub mod nvidia_driver;
pub mod upgrade;

pub use cluster_policy::{ClusterPolicy, ClusterPolicySpec};
pub use gpu_cluster::{GpuCluster, GpuClusterSpec};
pub use nvidia_driver::{NvidiaDriver, NvidiaDriverSpec};

use crate::crd::Entry;

/// API group of all kinds here.
pub const GROUP: &str = "nvidia.com";

/// Kinds of this domain.
pub const KINDS: &[Entry] =
    &[Entry::of::<ClusterPolicySpec>(), Entry::of::<NvidiaDriverSpec>(), Entry::of::<GpuClusterSpec>()];
