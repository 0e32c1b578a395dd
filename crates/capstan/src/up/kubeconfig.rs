//! Kubeconfig of an embedded cluster: removed with the cluster, however it ends.

use std::ops::Deref;
use std::path::{Path, PathBuf};

/// A kubeconfig file that is removed on drop, unless its cluster is persistent.
pub(super) struct Kubeconfig {
    path: PathBuf,
    persistent: bool,
}

impl Kubeconfig {
    /// A file with the lifetime of its cluster.
    pub(super) fn of_process(path: PathBuf) -> Self {
        Self { path, persistent: false }
    }

    /// A file that remains valid for the next start of its cluster.
    pub(super) fn of_directory(path: PathBuf) -> Self {
        Self { path, persistent: true }
    }
}

impl Deref for Kubeconfig {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

impl Drop for Kubeconfig {
    fn drop(&mut self) {
        if !self.persistent {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
