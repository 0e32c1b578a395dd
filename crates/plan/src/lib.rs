//! The pure core of every controller: a custom resource and [`Facts`] in, a [`Plan`] out.
//!
//! [`diff()`] compares what a plan wants with what is there, and says what to write. No I/O, no clock: `facts.now` is the
//! only time there is. The controller, the `plan` command, the simulator and the tests call the same functions.

pub mod conditions;
mod diff;
mod facts;
pub mod kit;
mod object;
mod packed;
mod question;

pub use diff::{
    Basis, Conflict, Decision, Deletion, Diff, FIELD_MANAGER, Owned, Write, decide, diff, holds, is_current,
};
pub use facts::{CPU_FEATURES, Facts, Orchestrator, ServerVersion};
pub use object::{Gvk, Live, LiveObjects, Object, Policy, Ref};
pub use packed::{Entries, Fields, Packed, Packer, Tree};
pub use question::{Answer, Image, Labels, LogPart, Proxies, Question, Sensitive};

use std::time::Duration;

/// What a controller decided about one custom resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan<S> {
    /// What should exist; `None` leaves what is there alone, for a spec that cannot be acted on.
    pub objects: Option<Vec<Object>>,
    /// The status to show.
    pub status: S,
    /// What to tell the user, once per change.
    pub events: Vec<Note>,
    /// When to look again though nothing changed.
    pub requeue: Option<Duration>,
    /// What to find out until then.
    pub questions: Vec<Question>,
    /// Whether the status is known to change to and fro for a while, as during an upgrade: its writes are debounced.
    pub transient: bool,
}

/// An event to record on the custom resource. The same note twice in a row is recorded once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Whether it needs attention.
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
    /// Somebody should look.
    Warning,
}
