//! Source of a command's snapshot: a cluster or a file.

use std::path::PathBuf;

use anyhow::Result;
use capstan_inspect::Snapshot;

/// Source of a command's snapshot.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Source {
    /// Kubeconfig file of the cluster [default: the current cluster]
    #[arg(long, value_name = "FILE", conflicts_with = "snapshot")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Read a snapshot or an archive of `capstan gather` instead of a cluster
    #[arg(long, value_name = "FILE")]
    pub(crate) snapshot: Option<PathBuf>,
}

impl Source {
    /// Reads the snapshot.
    pub(crate) async fn get(&self) -> Result<Snapshot> {
        Ok(match &self.snapshot {
            Some(file) => Snapshot::load(file)?,
            None => Snapshot::read(&self.client().await?).await?,
        })
    }

    /// Reads the snapshot; from a cluster only these kinds.
    pub(crate) async fn of_kinds<S: AsRef<str>>(&self, kinds: &[S]) -> Result<Snapshot> {
        Ok(match &self.snapshot {
            Some(file) => Snapshot::load(file)?,
            None => Snapshot::read_kinds(&self.client().await?, kinds).await?,
        })
    }

    /// A client of the cluster.
    pub(crate) async fn client(&self) -> Result<kube::Client> {
        crate::connect(self.kubeconfig.as_deref(), "cli").await
    }
}
