//! The scheduler: finds a node for each pod.

use crate::context::Context;

/// How the scheduler works.
#[derive(Clone, Debug, Default)]
pub struct Settings {}

/// Starts the scheduler.
pub(crate) fn start(context: &Context, settings: &Settings) {
    let _ = (context, settings);
}
