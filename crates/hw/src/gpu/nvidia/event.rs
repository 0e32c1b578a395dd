//! GPU events of the driver.

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::gpu::nvidia::Events;

/// A GPU event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The GPU; `None` if the driver did not name it.
    pub gpu: Option<String>,
    /// GPU instance and compute instance, if the event is confined to them.
    pub instance: Option<(u32, u32)>,
    /// Kind of event.
    pub kind: EventKind,
}

/// Kind of event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventKind {
    /// An XID error, by number.
    Xid(u64),
    /// A corrected ECC error.
    SingleBitEcc,
    /// An uncorrected ECC error.
    DoubleBitEcc,
}

/// An event subscription, and the GPUs that it does not cover.
pub struct EventSubscription {
    /// The event queue.
    pub events: Box<dyn Events>,
    /// GPUs without event support: they count as healthy, unmonitored.
    pub unsupported: Vec<String>,
    /// GPUs whose subscription failed: they count as unhealthy.
    pub refused: Vec<(String, Error)>,
}
