//! Where commands get their snapshot from: a cluster or a file.

use std::path::PathBuf;

use anyhow::Result;
use capstan_inspect::Snapshot;

/// Where commands get their snapshot from.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Source {
    /// The cluster; the current one when absent
    #[arg(long, value_name = "FILE", conflicts_with = "snapshot")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// A snapshot or an archive of `capstan gather` instead of a cluster
    #[arg(long, value_name = "FILE")]
    pub(crate) snapshot: Option<PathBuf>,
}

impl Source {
    /// The snapshot that was asked for.
    pub(crate) async fn get(&self) -> Result<Snapshot> {
        Ok(match &self.snapshot {
            Some(file) => Snapshot::load(file)?,
            None => Snapshot::read(&self.client().await?).await?,
        })
    }

    /// The same with these kinds alone, where a cluster is asked.
    pub(crate) async fn of_kinds<S: AsRef<str>>(&self, kinds: &[S]) -> Result<Snapshot> {
        Ok(match &self.snapshot {
            Some(file) => Snapshot::load(file)?,
            None => Snapshot::read_kinds(&self.client().await?, kinds).await?,
        })
    }

    /// The cluster that was asked for.
    pub(crate) async fn client(&self) -> Result<kube::Client> {
        crate::connect(self.kubeconfig.as_deref(), "cli").await
    }
}
