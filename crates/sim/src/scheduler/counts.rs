//! Pod counts per selector and node, and the affinity terms of scheduled pods. Both are updated incrementally, so that
//! the cost of spreading and affinity does not grow with the cluster.

use std::collections::HashMap;
use std::sync::Arc;

use super::pod::{PodInfo, Term};
use super::state::NodeId;
use capstan_semantics::LabelSelector;

/// Maximum number of counters; beyond it the least recently used are evicted.
const MAX_COUNTERS: usize = 1024;

/// Number of pods by node. Nodes without such pods are absent.
pub type PerNode = HashMap<NodeId, u32>;

/// Selects the pods to count.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Counted {
    /// Namespaces, sorted; `None` for all.
    pub namespaces: Option<Vec<String>>,
    /// Labels.
    pub selector: LabelSelector,
    /// Whether terminating pods count.
    pub terminating: bool,
}

impl Counted {
    fn covers(&self, pod: &PodInfo) -> bool {
        (self.terminating || !pod.is_terminating())
            && self.namespaces.as_ref().is_none_or(|names| names.iter().any(|name| name == pod.namespace()))
            && self.selector.matches_labels(pod.labels())
    }
}

#[derive(Debug)]
struct Counter {
    counted: Counted,
    nodes: PerNode,
    used: u64,
}

/// Counts of pods by selector.
#[derive(Debug, Default)]
pub struct Counters {
    ids: HashMap<Counted, usize>,
    counters: Vec<Option<Counter>>,
    /// Counters by a label that their pods must have.
    by_label: HashMap<String, HashMap<String, Vec<usize>>>,
    others: Vec<usize>,
    clock: u64,
}

impl Counters {
    /// The counts. `None` if [`Counters::ensure`] was not called for it.
    pub fn get(&self, counted: &Counted) -> Option<&PerNode> {
        self.counters[*self.ids.get(counted)?].as_ref().map(|counter| &counter.nodes)
    }

    /// Starts to count, from the current pods.
    pub fn ensure<'a>(&mut self, counted: &Counted, pods: impl Iterator<Item = (NodeId, &'a Arc<PodInfo>)>) {
        self.clock += 1;
        if let Some(counter) = self.ids.get(counted).and_then(|id| self.counters[*id].as_mut()) {
            counter.used = self.clock;
            return;
        }
        if self.ids.len() >= MAX_COUNTERS {
            self.evict();
        }
        let mut nodes = PerNode::new();
        for (node, _) in pods.filter(|(_, pod)| counted.covers(pod)) {
            *nodes.entry(node).or_default() += 1;
        }
        let counter = Counter { counted: counted.clone(), nodes, used: self.clock };
        let id = self.counters.iter().position(Option::is_none).unwrap_or(self.counters.len());
        if id == self.counters.len() {
            self.counters.push(None);
        }
        self.counters[id] = Some(counter);
        self.ids.insert(counted.clone(), id);
        self.bucket(counted).push(id);
    }

    /// A pod was added to a node.
    pub fn add(&mut self, node: NodeId, pod: &PodInfo) {
        self.adjust(pod, |nodes| *nodes.entry(node).or_default() += 1);
    }

    /// A pod was removed from a node.
    pub fn remove(&mut self, node: NodeId, pod: &PodInfo) {
        self.adjust(pod, |nodes| decrement(nodes, node));
    }

    fn adjust(&mut self, pod: &PodInfo, with: impl Fn(&mut PerNode)) {
        if self.ids.is_empty() {
            return;
        }
        let labels = pod.labels().into_iter().flatten();
        let labelled = labels.filter_map(|(key, value)| self.by_label.get(key)?.get(value)).flatten();
        for id in labelled.chain(&self.others) {
            if let Some(counter) = self.counters[*id].as_mut().filter(|counter| counter.counted.covers(pod)) {
                with(&mut counter.nodes);
            }
        }
    }

    fn bucket(&mut self, counted: &Counted) -> &mut Vec<usize> {
        match counted.selector.required_label() {
            Some((key, value)) => self.by_label.entry(key.to_owned()).or_default().entry(value.to_owned()).or_default(),
            None => &mut self.others,
        }
    }

    /// Evicts the least recently used half.
    fn evict(&mut self) {
        let mut used: Vec<u64> = self.counters.iter().flatten().map(|counter| counter.used).collect();
        used.sort_unstable();
        let limit = used[used.len() / 2];
        for id in 0..self.counters.len() {
            if self.counters[id].as_ref().is_some_and(|counter| counter.used <= limit)
                && let Some(counter) = self.counters[id].take()
            {
                self.ids.remove(&counter.counted);
                self.bucket(&counter.counted).retain(|other| *other != id);
            }
        }
        self.by_label.retain(|_, values| {
            values.retain(|_, ids| !ids.is_empty());
            !values.is_empty()
        });
    }
}

/// Affinity terms of scheduled pods.
#[derive(Debug, Default)]
pub struct Terms {
    /// Required anti-affinity.
    pub anti: HashMap<Arc<Term>, PerNode>,
    /// Preferred affinity with weights; negative for anti-affinity.
    pub preferred: HashMap<(i64, Arc<Term>), PerNode>,
}

impl Terms {
    /// A pod was added to a node.
    pub fn add(&mut self, node: NodeId, pod: &PodInfo) {
        let Some(affinity) = &pod.affinity else { return };
        for term in &affinity.anti {
            *self.anti.entry(term.clone()).or_default().entry(node).or_default() += 1;
        }
        for preferred in preferred(pod) {
            *self.preferred.entry(preferred).or_default().entry(node).or_default() += 1;
        }
    }

    /// A pod was removed from a node.
    pub fn remove(&mut self, node: NodeId, pod: &PodInfo) {
        let Some(affinity) = &pod.affinity else { return };
        for term in &affinity.anti {
            if let Some(nodes) = self.anti.get_mut(term) {
                decrement(nodes, node);
                if nodes.is_empty() {
                    self.anti.remove(term);
                }
            }
        }
        for preferred in preferred(pod) {
            if let Some(nodes) = self.preferred.get_mut(&preferred) {
                decrement(nodes, node);
                if nodes.is_empty() {
                    self.preferred.remove(&preferred);
                }
            }
        }
    }
}

/// Preferred terms of a scheduled pod; required affinity counts with a small weight.
fn preferred(pod: &PodInfo) -> impl Iterator<Item = (i64, Arc<Term>)> {
    let affinity = pod.affinity.iter();
    affinity.flat_map(|affinity| {
        let required = affinity.required.iter().map(|term| (1, term.clone()));
        required.chain(affinity.preferred.iter().cloned())
    })
}

fn decrement(nodes: &mut PerNode, node: NodeId) {
    if let Some(count) = nodes.get_mut(&node) {
        *count -= 1;
        if *count == 0 {
            nodes.remove(&node);
        }
    }
}
