//! The pure core of every controller: a custom resource and [`Facts`] in, a [`Plan`] out.
//!
//! [`diff()`] compares the plan with the live objects and returns the writes. No I/O, no clock: `facts.now` is the only
//! time. The controller, the `plan` command, the simulator and the tests call the same functions.

pub mod conditions;
mod diff;
mod facts;
pub mod kit;
mod object;
mod packed;
mod query;

pub use diff::{
    Basis, Conflict, Decision, Deletion, Diff, FIELD_MANAGER, PropagationPolicy, Write, decide, diff, is_current,
    is_subset,
};
pub use facts::{CPU_FEATURES, Facts, Orchestrator, ServerVersion};
pub use object::{Gvk, Live, LiveObjects, Object, Policy, Ref};
pub use packed::{Entries, Fields, Packed, Packer, Tree};
pub use query::{Image, Labels, LogPart, Proxies, Query, QueryResult, Sensitive};

use std::time::Duration;

/// The decision of a controller on one custom resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan<S> {
    /// Desired objects; `None` leaves the live objects unchanged, for a spec that cannot be acted on.
    pub objects: Option<Vec<Object>>,
    /// The desired status.
    pub status: S,
    /// Events to record, once per change.
    pub events: Vec<Note>,
    /// Delay until the next reconcile without a change.
    pub requeue: Option<Duration>,
    /// External queries to run until then.
    pub queries: Vec<Query>,
    /// Whether the status is expected to flap for a while, as during an upgrade: its writes are debounced.
    pub transient: bool,
}

/// An event to record on the custom resource. The same note twice in a row is recorded once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Normal or Warning.
    pub severity: Severity,
    /// Stable, machine-readable reason.
    pub reason: &'static str,
    /// Sentence for people.
    pub message: String,
}

/// Whether an event needs attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// For information.
    Normal,
    /// Needs attention.
    Warning,
}
