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
mod disruption;
mod endpoints;
mod hash;
mod job;
mod pods;
mod replica_set;
mod revision;
mod service_account;
mod stateful_set;

use std::sync::Arc;

use crate::context::Context;

/// Which controllers run, and how.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The certificate authority, PEM, that every namespace gets; none if there is no TLS.
    pub root_ca: Option<Arc<str>>,
}

/// Starts all controllers.
pub(crate) fn start(context: &Context, settings: &Settings) {
    cron_job::start(context);
    daemon_set::start(context);
    deployment::start(context);
    disruption::start(context);
    endpoints::start(context);
    job::start(context);
    replica_set::start(context);
    service_account::start(context, settings.root_ca.clone());
    stateful_set::start(context);
}
