//! Aggregates over all nodes, updated on changes: iterating all nodes would cost too much.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use capstan_plan::{Live, Orchestrator};
use capstan_runtime::Cache;
use k8s_openapi::api::core::v1::Node;

/// Node counts by distribution and GPU product. Clones share one state.
#[derive(Clone, Default)]
pub(crate) struct Nodes {
    count: Arc<Mutex<Count>>,
}

#[derive(Default)]
struct Count {
    orchestrators: BTreeMap<Orchestrator, usize>,
    products: BTreeMap<String, usize>,
}

impl Nodes {
    /// Subscribes to node changes.
    pub(crate) fn follow(cache: &Cache) -> Self {
        let nodes = Self::default();
        let count = nodes.count.clone();
        cache.subscribe(move |change| {
            if !change.is::<Node>() {
                return;
            }
            let mut count = count.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(old) = change.old {
                *count.orchestrators.entry(of(old)).or_insert(1) -= 1;
                if let Some(product) = product(old) {
                    *count.products.entry(product).or_insert(1) -= 1;
                }
            }
            if let Some(new) = change.new {
                *count.orchestrators.entry(of(new)).or_insert(0) += 1;
                if let Some(product) = product(new) {
                    *count.products.entry(product).or_insert(0) += 1;
                }
            }
            count.products.retain(|_, nodes| *nodes > 0);
        });
        nodes
    }

    /// The distribution; the first in the order of the enum wins.
    pub(crate) fn orchestrator(&self) -> Orchestrator {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let mut present = count.orchestrators.iter().filter(|(_, nodes)| **nodes > 0);
        present.next().map_or_else(Orchestrator::default, |(one, _)| *one)
    }

    /// Products of the GPUs in the cluster.
    pub(crate) fn products(&self) -> BTreeSet<String> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner).products.keys().cloned().collect()
    }
}

fn product(node: &Live) -> Option<String> {
    let product = node["metadata"]["labels"]["nvidia.com/gpu.product"].as_str()?.trim();
    (!product.is_empty()).then(|| product.to_owned())
}

fn of(node: &Live) -> Orchestrator {
    let labels = node["metadata"]["labels"].as_object();
    Orchestrator::of_node(labels.into_iter().flat_map(|labels| labels.keys().map(String::as_str)))
}
