//! Plans of the GPU product.
//!
//! [`cluster_policy`] plans ClusterPolicies, [`gpu_cluster`] GPUClusters (DRA), [`nvidia_driver`] NVIDIADrivers;
//! `components` are the shared operands. [`nodes`] decides node labels, [`namespace`] labels of the operands'
//! namespace, [`upgrade`] driver upgrades, [`fleet`] aggregates nodes.

pub mod agent;
pub mod cluster;
pub mod cluster_policy;
pub(crate) mod components;
pub mod fleet;
pub mod gpu_cluster;
mod image;
pub mod kernels;
pub mod namespace;
pub mod nodes;
pub mod nvidia_driver;
pub mod upgrade;

pub use agent::{Agent, Layout};
pub use cluster::{Cluster, OpenShift};
pub use fleet::Fleet;
pub use image::IMAGES;
