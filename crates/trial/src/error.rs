//! Errors of trial runs.

use std::io;
use std::path::PathBuf;

use kube::runtime::watcher;

/// Why a trial run failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A manifest, a fleet or an option is invalid. The message names the place and the fix.
    #[error("{0}")]
    Invalid(String),
    /// A file cannot be read.
    #[error("cannot read {}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The cluster does not serve the kind of a manifest.
    #[error("the cluster does not serve the kind of {what}")]
    NotServed {
        /// Kind and name.
        what: String,
        /// The client's error.
        source: kube::Error,
    },
    /// The API server rejected a manifest.
    #[error("the cluster refused {what}: {why}")]
    Refused {
        /// Kind and name.
        what: String,
        /// The server's message.
        why: String,
    },
    /// A request failed.
    #[error("cannot {what}")]
    Request {
        /// The operation: `apply NIMService x`.
        what: String,
        /// The client's error.
        source: kube::Error,
    },
    /// A watch failed.
    #[error("cannot watch {what}")]
    Watch {
        /// The watched objects.
        what: &'static str,
        /// The client's error.
        source: watcher::Error,
    },
    /// A watch ended.
    #[error("the watch of {0} ended")]
    WatchEnded(&'static str),
    /// The embedded cluster did not start.
    #[error("the cluster of the trial run did not start")]
    Cluster(#[source] capstan_sim::StartError),
    /// The operator did not start.
    #[error("the operator did not start in the trial run")]
    Operator(#[source] capstan_operator::Error),
    /// The operator stopped, or did not become ready.
    #[error("the operator did not get ready in the trial run")]
    OperatorNotReady,
    /// The fleet did not become ready.
    #[error("the fleet was not ready after a week: {0}")]
    FleetNotReady(String),
    /// No custom resource selects the drivers of the cluster.
    #[error("the cluster has no ClusterPolicy and no NVIDIADriver: there is no driver to upgrade")]
    NoDriver,
    /// The snapshot could not be read.
    #[error(transparent)]
    Inspect(#[from] capstan_inspect::Error),
    /// The tokio runtime could not be started.
    #[error("cannot start a runtime for the trial run")]
    Runtime(#[source] io::Error),
    /// The trial run panicked.
    #[error("the trial run panicked")]
    Panicked,
}
