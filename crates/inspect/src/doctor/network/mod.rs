//! Rules about network devices.

mod devices;

use super::{NOT_READY, Rule};

/// Rules about network devices.
pub(crate) const RULES: &[Rule] = &[
    Rule { name: "rdma-missing", explains: &[NOT_READY], check: devices::rdma },
    Rule { name: "vfs-missing", explains: &[&["rdma-missing", "not-ready"]], check: devices::vfs },
];
