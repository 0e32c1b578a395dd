//! Faults of GPUs as the driver reports them.

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::gpu::nvidia::Events;

/// One report of the driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The GPU, or `None` when the driver could not say which.
    pub gpu: Option<String>,
    /// GPU instance and compute instance where the fault is known to be confined to them.
    pub instance: Option<(u32, u32)>,
    /// What happened.
    pub kind: EventKind,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventKind {
    /// An XID error, by number.
    Xid(u64),
    /// A memory error that was corrected.
    SingleBitEcc,
    /// A memory error that was not.
    DoubleBitEcc,
}

/// A listener, and the GPUs that it cannot hear.
pub struct Watched {
    /// Where events arrive.
    pub events: Box<dyn Events>,
    /// GPUs that cannot report events: they count as healthy, unwatched.
    pub silent: Vec<String>,
    /// GPUs that should report events and refused: they count as unhealthy.
    pub refused: Vec<(String, Error)>,
}
