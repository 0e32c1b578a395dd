//! GPU nodes: what makes the GPUs of a cluster usable.

pub mod nodes;
pub mod upgrade;
