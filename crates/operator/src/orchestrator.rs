//! What the cluster is made with, kept up to date as nodes come and go: a look at all of them would cost too much.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use capstan_plan::{Live, Orchestrator};
use capstan_runtime::Cache;

/// How many nodes say what. Clones share one state.
#[derive(Clone, Default)]
pub(crate) struct Nodes {
    count: Arc<Mutex<BTreeMap<Orchestrator, usize>>>,
}

impl Nodes {
    /// Follows the nodes that the cache sees.
    pub(crate) fn follow(cache: &Cache) -> Self {
        let nodes = Self::default();
        let count = nodes.count.clone();
        cache.subscribe(move |change| {
            if change.kind.kind != "Node" {
                return;
            }
            let mut count = count.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(old) = change.old.map(of) {
                *count.entry(old).or_insert(1) -= 1;
            }
            if let Some(new) = change.new.map(of) {
                *count.entry(new).or_insert(0) += 1;
            }
        });
        nodes
    }

    /// What the nodes say; the first in the order of the enum wins.
    pub(crate) fn orchestrator(&self) -> Orchestrator {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        count.iter().find(|(_, nodes)| **nodes > 0).map_or_else(Orchestrator::default, |(one, _)| *one)
    }
}

fn of(node: &Live) -> Orchestrator {
    let labels = node["metadata"]["labels"].as_object();
    Orchestrator::of_node(labels.into_iter().flat_map(|labels| labels.keys().map(String::as_str)))
}
