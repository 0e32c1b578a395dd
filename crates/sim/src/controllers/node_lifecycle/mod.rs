//! Node lifecycle controller: taints nodes without heartbeats and evicts their pods.
//!
//! No polling: heartbeats are recorded, and each node is requeued for the end of its grace period.

mod eviction;
mod health;
mod taints;
mod zones;

use std::time::Duration;

use crate::context::Context;

/// Grace periods of heartbeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeGracePeriods {
    /// A node without a heartbeat for this long is unreachable.
    pub heartbeat: Duration,
    /// The same for a node that never sent one.
    pub startup: Duration,
}

impl Default for NodeGracePeriods {
    fn default() -> Self {
        Self { heartbeat: Duration::from_secs(50), startup: Duration::from_secs(60) }
    }
}

pub(crate) fn start(context: &Context, grace: Option<NodeGracePeriods>) {
    health::start(context, grace);
    eviction::start(context);
}
