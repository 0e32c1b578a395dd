//! Controllers of the control plane: one module each; its `reconcile` brings one object closer to its spec.
//!
//! A reconcile reads caches only, decides, and writes the difference. It is idempotent: in the desired state it writes
//! nothing.

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
pub use node_lifecycle::NodeGracePeriods;
pub use volume::Provisioning;

/// Selection and configuration of controllers.
#[derive(Clone)]
pub struct Settings {
    /// CA certificate, PEM, that is published in every namespace; `None` without TLS.
    pub root_ca: Option<Arc<str>>,
    /// When a node without heartbeats becomes unreachable; `None` for never.
    pub node_grace: Option<NodeGracePeriods>,
    /// Provisioner of volumes for claims.
    pub provisioning: Provisioning,
    /// Whether controllers and nodes record events: thousands of nodes produce more than anyone reads.
    pub events: bool,
    /// Whether Services get endpoints: with thousands of pods they are rewritten on every change.
    pub endpoints: bool,
    /// Whether DaemonSet pods after the first are copies of it, which skips admission for thousands of identical pods.
    /// Policies and webhooks do not see copies, nor their deletion by the controller; the scheduler does not see copies
    /// without resource requests.
    pub copies: bool,
    /// Event TTL.
    pub event_ttl: Duration,
    /// Source of metrics for autoscalers.
    pub metrics: Option<Arc<dyn Metrics>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            root_ca: None,
            node_grace: Some(NodeGracePeriods::default()),
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
