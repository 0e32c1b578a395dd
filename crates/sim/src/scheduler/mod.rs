//! The scheduler: finds a node for each pod.
//!
//! The decision is pure: [`schedule::schedule`] looks at a [`state::State`] that is kept up to date pod by pod, and asks
//! the rules of [`cycle`] about node after node. One task owns the state, takes in what the caches tell it, decides about
//! one pod after the other, and hands pods to [`bind`], which writes.

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

/// How the scheduler works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether it runs at all.
    pub enabled: bool,
    /// Schedules pods with this `schedulerName`.
    pub name: String,
    /// How many bindings are written at the same time.
    pub binders: usize,
    /// Whether events say where each pod went. Pods that could not be scheduled always have events.
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
