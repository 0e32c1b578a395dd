//! Errors of inspections.

use std::io;
use std::path::PathBuf;

/// Why a cluster or a file could not be inspected.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server does not respond.
    #[error("the cluster does not answer: {0}")]
    Unreachable(String),
    /// Objects of a kind cannot be listed.
    #[error("cannot list {kind}: {why}")]
    List {
        /// Kind and group: `DaemonSet.apps`.
        kind: String,
        /// The client's error.
        why: String,
    },
    /// A file cannot be read.
    #[error("cannot read {}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}", file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// An archive without a snapshot.
    #[error("{} is no archive of capstan gather", file.display())]
    NoArchive {
        /// The file.
        file: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// A file that is not a snapshot.
    #[error("{} is no snapshot of a cluster: {why}; make one with capstan gather", file.display())]
    NoSnapshot {
        /// The file.
        file: PathBuf,
        /// The parse error.
        why: String,
    },
    /// A snapshot cannot be written as JSON.
    #[error("cannot write a snapshot")]
    Encode(#[source] serde_json::Error),
    /// An object cannot be written as YAML.
    #[error("cannot write an object as YAML: {0}")]
    Yaml(String),
    /// The archive would exceed its size limit, whatever is left out.
    #[error("the objects alone are {size}: give more with --max-size")]
    TooLarge {
        /// Size of the smallest archive.
        size: crate::gather::Size,
    },
}

/// The innermost source of an error: the wrapping errors of a client add nothing.
pub(crate) fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
