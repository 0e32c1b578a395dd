//! The scheduler: selects a node for each pod.
//!
//! The decision is pure: [`schedule::schedule`] reads a [`state::State`] that is updated pod by pod, and applies the
//! rules of [`cycle`] to each node. One task owns the state, processes cache events, schedules one pod after the other,
//! and passes pods to [`bind`], which writes.

mod actor;
mod backlog;
mod bind;
pub mod counts;
pub mod cycle;
mod device_search;
mod device_selector;
pub mod devices;
pub mod message;
pub mod pod;
pub mod preempt;
pub mod resources;
pub mod schedule;
pub mod score;
pub mod state;
#[cfg(test)]
mod tests;
pub mod topology;
pub mod view;
pub mod volumes;

use crate::context::Context;

/// Configuration of the scheduler.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether it runs at all.
    pub enabled: bool,
    /// Schedules pods with this `schedulerName`.
    pub name: String,
    /// Number of concurrent binding writes.
    pub binders: usize,
    /// Whether `Scheduled` events are recorded. `FailedScheduling` events always are.
    pub report_success: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { enabled: true, name: "default-scheduler".to_owned(), binders: 4, report_success: true }
    }
}

/// Starts the scheduler.
pub(crate) fn start(context: &Context, settings: &Settings) {
    if settings.enabled {
        actor::start(context, settings.clone());
    }
}
