//! Why a cluster or a file could not be inspected.

use std::io;
use std::path::PathBuf;

/// Why a cluster or a file could not be inspected.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server does not answer.
    #[error("the cluster does not answer: {0}")]
    Unreachable(String),
    /// Objects of a kind cannot be listed.
    #[error("cannot list {kind}: {why}")]
    List {
        /// As in `DaemonSet.apps`.
        kind: String,
        /// What the client says.
        why: String,
    },
    /// A file cannot be read.
    #[error("cannot read {}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}", file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file that looks like an archive holds no snapshot.
    #[error("{} is no archive of capstan gather", file.display())]
    NoArchive {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        source: io::Error,
    },
    /// A file is no snapshot.
    #[error("{} is no snapshot of a cluster: {why}; make one with capstan gather", file.display())]
    NoSnapshot {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A snapshot cannot be written as JSON.
    #[error("cannot write a snapshot")]
    Encode(#[source] serde_json::Error),
    /// An object cannot be written as YAML.
    #[error("cannot write an object as YAML: {0}")]
    Yaml(String),
    /// An archive would be larger than it may be, whatever is left out.
    #[error("the objects alone are {size}: give more with --max-size")]
    TooLarge {
        /// How large the smallest archive is.
        size: crate::gather::Size,
    },
}

/// The deepest cause of an error: what a client wraps around it tells no more.
pub(crate) fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
