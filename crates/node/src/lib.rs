//! The contract of a GPU node, shared by operator, agent, simulator and inspection.
//!
//! [`labels`] are keys of the Node object, [`validation`] the files with which operands signal readiness, [`paths`]
//! shared directories, and [`ROLES`] the agent's roles. Names and values are those of the GPU Operator: other images
//! read and write them too. Constants only.

pub mod labels;
pub mod paths;
mod roles;
pub mod validation;

pub use roles::*;
