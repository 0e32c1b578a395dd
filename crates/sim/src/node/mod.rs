//! Virtual nodes: kubelets that run containers which are not there.
//!
//! What happens to a pod is decided by a pure machine, [`lifecycle`], and worded by [`status`]; [`kubelet`] drives the
//! machines of all pods of all nodes with a few tasks and one timer, and writes what changed. Rules say how containers
//! behave ([`Behaviour`]), and a container can be given a [`Body`]: a Rust function that does its work.

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

/// Which nodes there are, and how they behave.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The nodes at the start.
    pub nodes: Vec<NodeTemplate>,
    /// How containers behave; later rules count more.
    pub rules: Vec<(Match, Behaviour)>,
    /// How often a node renews its lease. With many nodes and much virtual time, seldom is cheaper.
    pub heartbeat: Duration,
    /// How long a lease lasts.
    pub lease: Duration,
    /// Which events nodes report.
    pub events: Events,
    /// How nodes report on their pods.
    pub reports: Reports,
    /// How many pods are worked on at the same time.
    pub workers: usize,
    /// What becomes of pods that ran before their nodes were there.
    pub past: Past,
    /// Where the files of nodes are, a directory for each; in memory if nothing. Only bodies that open files themselves
    /// need them on disk.
    pub hosts: Option<PathBuf>,
    /// What runs on every node beside its containers.
    pub service: Option<HostService>,
}

/// What becomes of pods that ran before their nodes were there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Past {
    /// They start as if they had just come: the cluster is a copy of another one.
    Forgotten,
    /// Their nodes were off: containers start again, and are counted.
    Rebooted,
}

/// How nodes report on their pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reports {
    /// Every change, as a kubelet does.
    Full,
    /// What others wait for at once, everything else at most this often, nothing of pods that were deleted, and past
    /// admission and managed fields, as what nodes say of themselves: for thousands of nodes.
    Brief(Duration),
}

/// Which events are reported.
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
            past: Past::Forgotten,
            hosts: None,
            service: None,
        }
    }
}

/// Starts the nodes.
pub(crate) fn start(context: &Context, auth: Arc<Auth>, settings: Settings) -> Nodes {
    Nodes::start(context, auth, settings)
}
