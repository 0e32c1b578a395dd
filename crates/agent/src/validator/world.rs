//! Dependencies of checks: files below roots, GPUs, and the Node. Tests provide fakes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use capstan_hw::pci;
use futures::StreamExt;
use futures::stream::BoxStream;

use super::Options;
use crate::own_node::{NodeFacts, OwnNode};
use crate::{Cx, Error, OpenDriver, Result};

/// Watches the Node.
pub(super) type Watch = Arc<dyn Fn() -> BoxStream<'static, Result<NodeFacts>> + Send + Sync>;

/// Dependencies of a check.
pub struct World {
    /// Flags.
    pub options: Options,
    /// Context of the role.
    pub cx: Cx,
    /// Watches the Node.
    pub watch: Watch,
    /// Opens a driver.
    pub open: OpenDriver,
    /// For checks that create pods; `None` without an API server.
    pub node: Option<OwnNode>,
}

impl World {
    /// The dependencies on a real node.
    pub async fn new(options: Options, cx: Cx) -> Result<Self> {
        let options = options.within(&cx);
        let node = match options.node_name.as_str() {
            "" => None,
            name => OwnNode::connect(name, &cx).await.ok(),
        };
        let own = node.clone();
        let watch: Watch = Arc::new(move || match &own {
            Some(node) => node.watch().boxed(),
            None => futures::stream::iter([Err(Error::Config(
                "this check asks for the node's labels: set --node-name (NODE_NAME) and run it in a pod".into(),
            ))])
            .boxed(),
        });
        let open = cx.open_driver.clone();
        Ok(Self { options, cx, watch, open, node })
    }

    /// Reads the Node.
    pub async fn facts(&self) -> Result<NodeFacts> {
        let gone = || Error::External("the node's own object is gone".into());
        (self.watch)().next().await.unwrap_or_else(|| Err(gone()))
    }

    /// A file at a fixed path, such as one in `/proc`.
    pub fn fixed(&self, path: &str) -> PathBuf {
        self.cx.root.join(path.trim_start_matches('/'))
    }

    /// Directory of the MOFED driver's ready file.
    pub fn mofed_dir(&self) -> PathBuf {
        self.fixed(capstan_node::paths::MOFED)
    }

    /// Whether a kernel module is loaded and live.
    pub fn module_loaded(&self, name: &str) -> Result<bool> {
        let path = self.fixed("/proc/modules");
        let text = std::fs::read_to_string(&path)
            .map_err(|source| Error::Io { what: format!("cannot read {}", path.display()), source })?;
        Ok(loaded(&text, name))
    }

    /// The GPUs on the PCI bus.
    pub fn pci_gpus(&self) -> Result<Vec<pci::Device>> {
        Ok(pci::devices(&self.cx.root)?.into_iter().filter(pci::Device::is_gpu).collect())
    }

    /// Whether a file exists; one that cannot be inspected does not count.
    pub fn exists(&self, path: &Path) -> bool {
        path.symlink_metadata().is_ok()
    }
}

/// Whether /proc/modules lists this module as live.
pub(super) fn loaded(modules: &str, name: &str) -> bool {
    modules.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some(name) && !line.contains(" Unloading ") && !line.contains(" Loading ")
    })
}
