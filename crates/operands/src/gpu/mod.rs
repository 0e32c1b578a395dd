//! GPU nodes: what makes the GPUs of a cluster usable.
//!
//! [`policy`] is the ClusterPolicy with its operands, [`gpu_cluster`] the same through claims, [`nodes`] the labels by which
//! nodes get them, [`namespace`] those of the namespace in which they run, [`upgrade`] how drivers are replaced, [`fleet`]
//! what a decision knows of the nodes.

pub mod agent;
pub mod cluster;
pub mod fleet;
mod image;
pub mod kernels;
pub mod namespace;
pub mod nodes;
pub mod policy;
pub mod upgrade;

pub use agent::{Agent, Layout};
pub use cluster::{Cluster, OpenShift};
pub use fleet::Fleet;
pub use image::IMAGES;
pub use policy::{gpu_cluster, nvidia_driver};
