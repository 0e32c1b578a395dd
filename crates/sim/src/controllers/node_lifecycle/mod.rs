//! Node lifecycle: a node that is not heard of is tainted, and its pods go after a while.
//!
//! Nobody polls. A heartbeat is noted, and each node is looked at when its grace period could be over.

mod eviction;
mod health;
mod taints;
mod zones;

use std::time::Duration;

use crate::context::Context;

/// How nodes are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grace {
    /// A node that is not heard of for so long is unreachable.
    pub beats: Duration,
    /// The same, for a node that never was heard of.
    pub startup: Duration,
}

impl Default for Grace {
    fn default() -> Self {
        Self { beats: Duration::from_secs(50), startup: Duration::from_secs(60) }
    }
}

pub(crate) fn start(context: &Context, grace: Option<Grace>) {
    health::start(context, grace);
    eviction::start(context);
}
