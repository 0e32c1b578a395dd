//! Controllers: each file is one, and in it `reconcile` brings one object closer to what its spec says.
//!
//! A reconcile looks at the caches only, decides, and writes what differs. It may run at any time and any number of
//! times; when all is well it writes nothing.

mod backoff;
mod common;
mod cron_job;
mod cron_schedule;
mod daemon_set;
mod deployment;
mod hash;
mod job;
mod pods;
mod replica_set;
mod revision;
mod stateful_set;

use crate::context::Context;

/// Which controllers run, and how.
#[derive(Clone, Debug, Default)]
pub struct Settings {}

/// Starts all controllers.
pub(crate) fn start(context: &Context, settings: &Settings) {
    let _ = settings;
    cron_job::start(context);
    daemon_set::start(context);
    deployment::start(context);
    job::start(context);
    replica_set::start(context);
    stateful_set::start(context);
}
