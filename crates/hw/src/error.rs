//! Hardware errors, by how a caller handles them.

use std::path::PathBuf;

/// Why a hardware call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// NVML library not found: no driver is installed below the searched root.
    #[error("no libnvidia-ml.so.1 in {}; is the driver installed, and its root mounted there?", searched.display())]
    NoLibrary {
        /// The driver root that was searched.
        searched: PathBuf,
    },
    /// The library exists, but the kernel module is not loaded or does not respond.
    #[error("the NVIDIA kernel driver does not answer: {0}")]
    NoDriver(String),
    /// NVML and kernel module versions differ, as after an upgrade without a reload.
    #[error("the NVIDIA library and kernel module have different versions; reload the module or reboot the node")]
    VersionMismatch,
    /// The GPU has fallen off the bus.
    #[error("GPU is lost: it does not answer on the PCI bus any more")]
    Lost,
    /// Not supported by this GPU or driver.
    #[error("not supported by this GPU or driver")]
    NotSupported,
    /// There is no such device.
    #[error("no device {0}")]
    NotFound(String),
    /// Permission denied.
    #[error("no permission to {0}")]
    NoPermission(&'static str),
    /// The device is in use by a process.
    #[error("{0} is in use; stop the processes that use it first")]
    InUse(String),
    /// Anything else, with the call that failed.
    #[error("{call}: {why}")]
    Call {
        /// The failed call.
        call: &'static str,
        /// The error.
        why: String,
    },
    /// A kernel file could not be read or parsed.
    #[error("{}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The kernel rejected a write to one of its files.
    #[error("cannot write '{value}' to {}: {why}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What was written.
        value: String,
        /// The error.
        why: String,
    },
}

impl Error {
    /// Whether a retry may succeed without a change of the request.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::NoLibrary { .. }
                | Self::NoDriver(_)
                | Self::VersionMismatch
                | Self::InUse(_)
                | Self::Call { .. }
                | Self::Write { .. }
        )
    }
}
