//! Virtual nodes: kubelets that simulate containers.
//!
//! The pure state machine [`lifecycle`] decides what happens to a pod, and [`status`] derives its status; [`kubelet`]
//! drives the machines of all pods of all nodes with a few tasks and one timer, and writes the changes. Rules define
//! the [`Behaviour`] of containers, and a container can have a [`Body`]: a Rust function that it runs.

mod admit;
mod backoff;
mod behaviour;
mod bodies;
mod body;
mod disk;
mod files;
mod heartbeat;
mod kubelet;
mod lifecycle;
mod logs;
mod mounts;
mod nodes;
mod power;
mod report;
mod rootfs;
mod runtime;
mod service;
mod status;
mod template;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use behaviour::{Behaviour, Command, Exit, Match, PullFailure, RuleId, Rules, StartFailure, glob};
pub use body::{Body, ContainerContext, ExitCode};
pub use files::{Directory, FileError, Files};
pub use logs::LogSink;
pub use nodes::{NodeHandle, Nodes};
pub use runtime::Executed;
pub use service::HostService;
pub use template::NodeTemplate;

use capstan_apiserver::auth::Auth;

use crate::context::Context;

/// Nodes and their behaviour.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The initial nodes.
    pub nodes: Vec<NodeTemplate>,
    /// Behaviour of containers; later rules take precedence.
    pub rules: Vec<(Match, Behaviour)>,
    /// Lease renewal interval. With many nodes and much virtual time, a long interval is cheaper.
    pub heartbeat: Duration,
    /// Lease duration.
    pub lease: Duration,
    /// Events that nodes record.
    pub events: Events,
    /// Pod status updates by nodes.
    pub reports: Reports,
    /// Number of pods synced concurrently.
    pub workers: usize,
    /// How pods are treated that ran before their nodes started.
    pub existing_pods: ExistingPods,
    /// Root of the nodes' file systems, a directory for each; in memory if `None`. Only bodies that open files
    /// themselves need them on disk.
    pub hosts: Option<PathBuf>,
    /// Service that runs on every node beside its containers.
    pub service: Option<HostService>,
}

/// How pods are treated that ran before their nodes started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExistingPods {
    /// They start from scratch: the cluster is a copy of another one.
    New,
    /// Their nodes were off: containers restart, and restarts are counted.
    Rebooted,
}

/// Pod status updates by nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reports {
    /// Every change, as a kubelet does.
    Full,
    /// Changes that others wait for at once, other changes at most this often, none of terminating pods; bypasses
    /// admission and managedFields: for thousands of nodes.
    Brief(Duration),
}

/// Events that nodes record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Events {
    /// All, as a kubelet does: about four for each container that starts.
    All,
    /// Only warnings.
    Warnings,
    /// None.
    None,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            rules: Vec::new(),
            heartbeat: Duration::from_secs(10),
            lease: Duration::from_secs(40),
            events: Events::All,
            reports: Reports::Full,
            workers: 4,
            existing_pods: ExistingPods::New,
            hosts: None,
            service: None,
        }
    }
}

/// Starts the nodes.
pub(crate) fn start(context: &Context, auth: Arc<Auth>, settings: Settings) -> Nodes {
    Nodes::start(context, auth, settings)
}
