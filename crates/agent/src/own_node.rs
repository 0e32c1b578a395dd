//! The node that this agent runs on, as the API server knows it. An agent asks about its own node alone.

use std::collections::BTreeMap;

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};

use crate::{Cx, Error, Result};

/// What roles want to know of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// What it has, by resource.
    pub capacity: BTreeMap<String, String>,
    /// What of that pods may have.
    pub allocatable: BTreeMap<String, String>,
}

impl NodeFacts {
    /// A label's value; empty ones count as missing.
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

/// The API server, for questions about this node.
#[derive(Clone)]
pub struct OwnNode {
    /// For what else a role asks.
    pub client: Client,
    /// Its name.
    pub name: String,
}

impl OwnNode {
    /// The node of this name, as the API server knows it.
    pub async fn connect(name: &str, cx: &Cx) -> Result<Self> {
        if name.is_empty() {
            return Err(Self::unnamed());
        }
        Ok(Self { client: cx.client().await?, name: name.to_owned() })
    }

    /// What is wrong without a name.
    pub(crate) fn unnamed() -> Error {
        Error::Config("--node-name (NODE_NAME) is empty: set it from spec.nodeName".into())
    }

    /// What it is now.
    pub async fn facts(&self) -> Result<NodeFacts> {
        let node = Api::<Node>::all(self.client.clone()).get(&self.name).await;
        node.map(NodeFacts::from).map_err(|error| Error::Outside(format!("node {}: {error}", self.name)))
    }

    /// What it is, now and whenever it changes.
    pub fn watch(&self) -> impl Stream<Item = Result<NodeFacts>> + Send + 'static + use<> {
        let config = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let nodes = watcher(Api::<Node>::all(self.client.clone()), config).default_backoff().applied_objects();
        nodes.map_ok(NodeFacts::from).map(|item| item.map_err(|error| Error::Outside(format!("own node: {error}"))))
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
