//! The kubeconfig of a cluster in this process: gone when the cluster is, however that ends.

use std::ops::Deref;
use std::path::{Path, PathBuf};

/// A kubeconfig file that is removed when this is dropped, unless its cluster can be started again.
pub(super) struct Kubeconfig {
    path: PathBuf,
    kept: bool,
}

impl Kubeconfig {
    /// Takes care of a file that goes with its cluster.
    pub(super) fn of_process(path: PathBuf) -> Self {
        Self { path, kept: false }
    }

    /// Takes care of a file that is still good when its cluster is started again.
    pub(super) fn of_directory(path: PathBuf) -> Self {
        Self { path, kept: true }
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
        if !self.kept {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
