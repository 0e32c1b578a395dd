//! What can go wrong between us and the hardware, by what a caller does about it.

use std::path::PathBuf;

/// Why the hardware did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no NVML library: no driver is installed where we looked.
    #[error("no libnvidia-ml.so.1 in {}; is the driver installed, and its root mounted there?", searched.display())]
    NoLibrary {
        /// The driver root that was searched.
        searched: PathBuf,
    },
    /// The library is there, but the kernel module is not loaded or does not answer.
    #[error("the NVIDIA kernel driver does not answer: {0}")]
    NoDriver(String),
    /// User-space library and kernel module are of different versions, as after an upgrade without a reload.
    #[error("the NVIDIA library and kernel module have different versions; reload the module or reboot the node")]
    VersionMismatch,
    /// The GPU has fallen off the bus.
    #[error("GPU is lost: it does not answer on the PCI bus any more")]
    Lost,
    /// This GPU or driver has no such thing.
    #[error("not supported by this GPU or driver")]
    NotSupported,
    /// There is no such device.
    #[error("no device {0}")]
    NotFound(String),
    /// The process may not do that.
    #[error("no permission to {0}")]
    NoPermission(&'static str),
    /// A process uses what is to be changed.
    #[error("{0} is in use; stop the processes that use it first")]
    InUse(String),
    /// Anything else, with the call that failed.
    #[error("{call}: {why}")]
    Call {
        /// What was asked.
        call: &'static str,
        /// What came back.
        why: String,
    },
    /// A file of the kernel could not be read or understood.
    #[error("{}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The kernel refused what was written to one of its files.
    #[error("cannot write '{value}' to {}: {why}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What was written.
        value: String,
        /// What the kernel said.
        why: String,
    },
}

impl Error {
    /// Whether the same question may get an answer later, without anyone changing the request.
    pub fn may_pass(&self) -> bool {
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
