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
mod event_ttl;
mod hash;
mod hpa;
mod job;
mod node_lifecycle;
mod pod_gc;
mod pods;
mod quota;
mod replica_set;
mod resource_claim;
mod revision;
mod service_account;
mod stateful_set;
mod volume;

use std::sync::Arc;
use std::time::Duration;

use crate::context::Context;

pub use hpa::Metrics;
pub use node_lifecycle::Grace;
pub use volume::Provisioning;

/// Which controllers run, and how.
#[derive(Clone)]
pub struct Settings {
    /// The certificate authority, PEM, that every namespace gets; none if there is no TLS.
    pub root_ca: Option<Arc<str>>,
    /// When a node that is not heard of is unreachable; nothing if never.
    pub node_grace: Option<Grace>,
    /// Who makes volumes for claims.
    pub provisioning: Provisioning,
    /// Whether controllers and nodes report events: thousands of nodes have more to report than anybody reads.
    pub events: bool,
    /// Whether services get endpoints: those of thousands of pods are written again whenever one of them changes.
    pub endpoints: bool,
    /// Whether pods of a daemon set after the first are copies of that: thousands of them would be admitted to the same
    /// effect. Policies and webhooks do not see copies, nor that a set deletes its pods; nor does the
    /// scheduler see copies that ask for nothing.
    pub copies: bool,
    /// How long events are kept.
    pub event_ttl: Duration,
    /// What autoscalers look at.
    pub metrics: Option<Arc<dyn Metrics>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            root_ca: None,
            node_grace: Some(Grace::default()),
            provisioning: Provisioning::All,
            events: true,
            endpoints: true,
            copies: false,
            event_ttl: Duration::from_secs(3600),
            metrics: None,
        }
    }
}

/// Starts all controllers.
pub(crate) fn start(context: &Context, settings: &Settings) {
    cron_job::start(context);
    daemon_set::start(context, settings.copies);
    deployment::start(context);
    disruption::start(context);
    if settings.endpoints {
        endpoints::start(context);
    }
    event_ttl::start(context, settings.event_ttl);
    hpa::start(context, settings.metrics.clone());
    job::start(context);
    node_lifecycle::start(context, settings.node_grace);
    pod_gc::start(context);
    quota::start(context);
    replica_set::start(context);
    resource_claim::start(context);
    service_account::start(context, settings.root_ca.clone());
    stateful_set::start(context);
    volume::start(context, settings.provisioning);
}
