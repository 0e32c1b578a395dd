//! GPU nodes: what makes the GPUs of a cluster usable.
//!
//! [`cluster_policy`] is the ClusterPolicy with its operands, [`gpu_cluster`] the same through claims, [`nvidia_driver`]
//! drivers for some nodes, `components` what they all deploy, [`nodes`] the labels by which nodes get them, [`namespace`] those of the namespace in which they run, [`upgrade`] how drivers are replaced, [`fleet`]
//! what a decision knows of the nodes.

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
