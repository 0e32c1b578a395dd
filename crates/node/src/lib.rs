//! The contract of a node, shared by whoever deploys to it, runs on it, imitates it or looks at it.
//!
//! [`labels`] are the keys of the Node object, [`validation`] the files by which operands tell each other how far the
//! node is, [`paths`] the directories that they agree on, and [`ROLES`] what the agent can be. Names and values are those
//! of the GPU Operator: images of others read and write them too. Nothing here does anything.

pub mod labels;
pub mod paths;
mod roles;
pub mod validation;

pub use roles::*;
