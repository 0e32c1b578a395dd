//! GPU nodes: what makes the GPUs of a cluster usable.
//!
//! [`policy`] is the ClusterPolicy with its operands, [`nodes`] the labels by which nodes get them, [`upgrade`] how
//! drivers are replaced, [`fleet`] what a decision knows of the nodes.

pub mod cluster;
pub mod fleet;
mod image;
pub mod nodes;
pub mod policy;
pub mod upgrade;

pub use cluster::{Cluster, OpenShift};
pub use fleet::Fleet;
pub use image::IMAGES;
pub use policy::nvidia_driver;
