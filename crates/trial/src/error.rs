//! Why a trial run could not be made.

use std::io;
use std::path::PathBuf;

use kube::runtime::watcher;

/// Why a trial run could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A manifest, a fleet or a choice of the user is wrong. The message names the place and the fix.
    #[error("{0}")]
    Invalid(String),
    /// A file cannot be read.
    #[error("cannot read {}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The cluster does not serve the kind of a manifest.
    #[error("the cluster does not serve the kind of {what}")]
    NotServed {
        /// Kind and name.
        what: String,
        /// What the client says.
        source: kube::Error,
    },
    /// The API server refused a manifest.
    #[error("the cluster refused {what}: {why}")]
    Refused {
        /// Kind and name.
        what: String,
        /// What the server says.
        why: String,
    },
    /// A request failed.
    #[error("cannot {what}")]
    Request {
        /// What was to be done: `apply NIMService x`.
        what: String,
        /// What the client says.
        source: kube::Error,
    },
    /// Objects cannot be watched.
    #[error("cannot watch {what}")]
    Watch {
        /// Which objects.
        what: &'static str,
        /// What the client says.
        source: watcher::Error,
    },
    /// A watch ended.
    #[error("the watch of {0} ended")]
    WatchEnded(&'static str),
    /// The cluster in this process did not start.
    #[error("the cluster of the trial run did not start")]
    Cluster(#[source] capstan_sim::StartError),
    /// The operator did not start.
    #[error("the operator did not start in the trial run")]
    Operator(#[source] capstan_operator::Error),
    /// The operator ended, or did not get ready.
    #[error("the operator did not get ready in the trial run")]
    OperatorNotReady,
    /// The fleet did not get ready.
    #[error("the fleet was not ready after a week: {0}")]
    FleetNotReady(String),
    /// Nobody chooses the drivers of the cluster.
    #[error("the cluster has no ClusterPolicy and no NVIDIADriver: there is no driver to upgrade")]
    NoDriver,
    /// The copy could not be read.
    #[error(transparent)]
    Inspect(#[from] capstan_inspect::Error),
    /// The system gives no runtime.
    #[error("cannot start a runtime for the trial run")]
    Runtime(#[source] io::Error),
    /// The trial run panicked.
    #[error("the trial run panicked")]
    Panicked,
}
