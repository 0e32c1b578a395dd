//! Publishers of labels: a file for Node Feature Discovery, standard output, or the API server.

use std::path::{Path, PathBuf};

use futures::future::BoxFuture;

use super::labels::Labels;
use super::node::NodeFeatures;
use crate::{Error, Result, files};

/// Labels and features of a node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeReport {
    /// Labels by full name.
    pub labels: Labels,
    /// Node features, for NodeFeatureRules.
    pub node: Option<NodeFeatures>,
}

impl NodeReport {
    /// All labels together.
    pub fn all(&self) -> Labels {
        let node = self.node.iter().flat_map(|node| node.labels.clone());
        node.chain(self.labels.clone()).collect()
    }
}

/// An output for labels.
pub trait Publisher: Send + Sync {
    /// Publishes these labels, replacing all earlier ones.
    fn publish<'a>(&'a self, report: &'a NodeReport) -> BoxFuture<'a, Result<()>>;
    /// Removes all published labels.
    fn withdraw(&self) -> BoxFuture<'_, Result<()>>;
}

/// A file with a line for each label.
pub struct File(pub PathBuf);

impl Publisher for File {
    fn publish<'a>(&'a self, report: &'a NodeReport) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            if let Some(dir) = self.0.parent() {
                let made = std::fs::create_dir_all(dir);
                made.map_err(|source| Error::Io { what: format!("cannot make {}", dir.display()), source })?;
            }
            files::write(&self.0, lines(&report.all()).as_bytes())
        })
    }

    fn withdraw(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            // Temporary directory of GPU Feature Discovery.
            let beside = self.0.parent().unwrap_or(Path::new("/")).join("gfd-tmp");
            let _ = std::fs::remove_dir_all(beside);
            files::remove(&self.0)
        })
    }
}

/// Standard output.
pub struct Stdout;

impl Publisher for Stdout {
    fn publish<'a>(&'a self, report: &'a NodeReport) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            use std::io::Write;
            let written = std::io::stdout().write_all(lines(&report.all()).as_bytes());
            written.map_err(|source| Error::Io { what: "cannot print".into(), source })
        })
    }

    fn withdraw(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

fn lines(labels: &Labels) -> String {
    labels.iter().map(|(name, value)| format!("{name}={value}\n")).collect()
}
