//! The Node object of the node that this agent runs on. An agent reads no other Node.

use std::collections::BTreeMap;

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};

use crate::{Cx, Error, Result};

/// The parts of a Node that roles read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Capacity by resource.
    pub capacity: BTreeMap<String, String>,
    /// Allocatable by resource.
    pub allocatable: BTreeMap<String, String>,
}

impl NodeFacts {
    /// A label's value; an empty one counts as missing.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// GPU resources with at least one device, by name.
    pub fn gpus(resources: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, u64)> {
        let gpu = |name: &str| name.starts_with("nvidia.com/gpu") || name.starts_with("nvidia.com/mig-");
        let counted = resources.iter().filter(move |(name, _)| gpu(name));
        counted.filter_map(|(name, count)| Some((name.as_str(), count.parse().ok().filter(|&count| count > 0)?)))
    }
}

impl From<Node> for NodeFacts {
    fn from(node: Node) -> Self {
        let labels = node.labels().clone();
        let status = node.status.unwrap_or_default();
        let plain = |resources: Option<BTreeMap<String, _>>| {
            let named = resources.unwrap_or_default().into_iter();
            named.map(|(name, k8s_openapi::apimachinery::pkg::api::resource::Quantity(count))| (name, count)).collect()
        };
        Self { labels, capacity: plain(status.capacity), allocatable: plain(status.allocatable) }
    }
}

/// Reads and watches this Node from the API server.
#[derive(Clone)]
pub struct OwnNode {
    /// Client for the role's other requests.
    pub client: Client,
    /// Node name.
    pub name: String,
}

impl OwnNode {
    /// Connects to the API server for the node of this name.
    pub async fn connect(name: &str, cx: &Cx) -> Result<Self> {
        if name.is_empty() {
            return Err(Self::unnamed());
        }
        Ok(Self { client: cx.client().await?, name: name.to_owned() })
    }

    /// The error for a missing node name.
    pub(crate) fn unnamed() -> Error {
        Error::Config("--node-name (NODE_NAME) is empty: set it from spec.nodeName".into())
    }

    /// Reads the Node once.
    pub async fn facts(&self) -> Result<NodeFacts> {
        let node = Api::<Node>::all(self.client.clone()).get(&self.name).await;
        node.map(NodeFacts::from).map_err(|error| Error::External(format!("node {}: {error}", self.name)))
    }

    /// Watches the Node: its current state, then every change.
    pub fn watch(&self) -> impl Stream<Item = Result<NodeFacts>> + Send + 'static + use<> {
        let config = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let nodes = watcher(Api::<Node>::all(self.client.clone()), config).default_backoff().applied_objects();
        nodes.map_ok(NodeFacts::from).map(|item| item.map_err(|error| Error::External(format!("own node: {error}"))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_gpus_that_are_there_are_counted() {
        let resources =
            [("cpu", "16"), ("nvidia.com/gpu", "8"), ("nvidia.com/mig-1g.18gb", "0"), ("nvidia.com/gpu.shared", "x")];
        let resources = resources.map(|(name, count)| (name.to_owned(), count.to_owned())).into();
        assert_eq!(NodeFacts::gpus(&resources).collect::<Vec<_>>(), [("nvidia.com/gpu", 8)]);
    }
}
