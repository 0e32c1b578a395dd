//! Cluster state of the scheduler: nodes and their free resources, updated pod by pod.
//!
//! Nothing is recomputed per scheduling cycle: sums per node, pod counts by selector and anti-affinity terms are
//! updated when a pod is added or removed.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use super::counts::{Counters, Terms};
use super::pod::{HostPort, PodInfo, is_finished};
use super::resources::Resources;
use crate::Pod;
use capstan_semantics::Labels;
use capstan_semantics::quantity::units;

/// Index of a node in [`State`]. Stable while the node exists.
pub type NodeId = usize;

/// A node and its pods.
#[derive(Clone, Debug, Default)]
pub struct NodeState {
    /// Name.
    pub name: Arc<str>,
    /// The object; `None` if pods are bound to a node that does not exist.
    pub node: Option<Arc<Node>>,
    /// Allocatable resources.
    pub allocatable: Resources,
    /// Maximum number of pods.
    pub max_pods: i64,
    /// Requests of its pods.
    pub requested: Resources,
    /// `cpu` requests in thousandths, with defaults for containers without any.
    pub assumed_milli_cpu: i64,
    /// `memory` requests, with defaults for containers without any.
    pub assumed_memory: i64,
    /// The pods.
    pub pods: Vec<Arc<PodInfo>>,
    ports: Vec<HostPort>,
}

impl NodeState {
    /// A node without pods.
    pub fn new(node: Arc<Node>) -> Self {
        let mut state = Self { name: node.metadata.name.as_deref().unwrap_or_default().into(), ..Self::default() };
        state.set_node(node);
        state
    }

    fn set_node(&mut self, node: Arc<Node>) {
        let status = node.status.as_ref();
        let allocatable = status.and_then(|status| status.allocatable.as_ref().or(status.capacity.as_ref()));
        self.allocatable = Resources::of_list(allocatable);
        self.max_pods = allocatable.and_then(|list| list.get("pods")).map_or(0, units);
        self.node = Some(node);
    }

    /// The value of a label of the node.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.node.as_ref()?.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// Whether any of the host ports is in use.
    pub fn has_ports(&self, ports: &[HostPort]) -> bool {
        ports.iter().any(|port| self.ports.iter().any(|used| used.conflicts(port)))
    }

    /// Adds a pod.
    pub fn add(&mut self, pod: Arc<PodInfo>) {
        self.requested.add(&pod.requests.exact);
        self.assumed_milli_cpu += pod.requests.assumed_milli_cpu;
        self.assumed_memory += pod.requests.assumed_memory;
        self.ports.extend(pod.ports.iter().cloned());
        self.pods.push(pod);
    }

    /// Removes a pod.
    pub fn remove(&mut self, key: &str) -> Option<Arc<PodInfo>> {
        let at = self.pods.iter().position(|pod| &*pod.key == key)?;
        let pod = self.pods.swap_remove(at);
        self.requested.subtract(&pod.requests.exact);
        self.assumed_milli_cpu -= pod.requests.assumed_milli_cpu;
        self.assumed_memory -= pod.requests.assumed_memory;
        for port in &pod.ports {
            if let Some(at) = self.ports.iter().position(|used| used == port) {
                self.ports.swap_remove(at);
            }
        }
        Some(pod)
    }
}

/// All nodes and their pods.
#[derive(Debug, Default)]
pub struct State {
    nodes: Vec<NodeState>,
    free: Vec<NodeId>,
    ids: HashMap<Arc<str>, NodeId>,
    /// Nodes with an object, in order of creation.
    order: Vec<NodeId>,
    pods: HashMap<Arc<str>, NodeId>,
    nominated: HashMap<Arc<str>, Vec<Arc<PodInfo>>>,
    claims_in_use: HashMap<Arc<str>, u32>,
    namespaces: HashMap<String, Labels>,
    pub(super) counters: Counters,
    pub(super) terms: Terms,
    /// Where the next search for nodes starts.
    pub(super) next: usize,
}

impl State {
    /// Number of held items: pods, nodes, namespaces, claims and affinity terms.
    pub(super) fn len(&self) -> usize {
        let pods = self.pods.len() + self.nodes.iter().map(|node| node.pods.len()).sum::<usize>();
        let terms = self.terms.anti.len() + self.terms.preferred.len();
        pods + self.ids.len() + self.nominated.len() + self.claims_in_use.len() + self.namespaces.len() + terms
    }

    /// The schedulable nodes, in order.
    pub fn order(&self) -> &[NodeId] {
        &self.order
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> &NodeState {
        &self.nodes[id]
    }

    /// The node of that name, if its object exists.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.ids.get(name).copied().filter(|id| self.nodes[*id].node.is_some())
    }

    /// All pods on nodes.
    pub fn pods(&self) -> impl Iterator<Item = (NodeId, &Arc<PodInfo>)> {
        self.nodes.iter().enumerate().flat_map(|(id, node)| node.pods.iter().map(move |pod| (id, pod)))
    }

    /// The node that a pod is bound to or assumed on.
    pub fn node_of(&self, key: &str) -> Option<&NodeState> {
        self.pods.get(key).map(|id| &self.nodes[*id])
    }

    /// Labels of a namespace.
    pub fn namespace_labels(&self, namespace: &str) -> Option<&Labels> {
        self.namespaces.get(namespace)
    }

    /// All namespaces with their labels.
    pub fn namespaces(&self) -> impl Iterator<Item = (&String, &Labels)> {
        self.namespaces.iter()
    }

    /// Number of pods that use a PersistentVolumeClaim.
    pub fn users_of_claim(&self, key: &str) -> u32 {
        self.claims_in_use.get(key).copied().unwrap_or(0)
    }

    /// Pods that are nominated to a node.
    pub fn nominated(&self, node: &str) -> &[Arc<PodInfo>] {
        self.nominated.get(node).map_or(&[], Vec::as_slice)
    }

    /// Whether any pod is nominated.
    pub fn has_nominated(&self) -> bool {
        !self.nominated.is_empty()
    }

    /// A node was created or updated.
    pub fn set_node(&mut self, node: Arc<Node>) {
        let id = self.id(node.metadata.name.as_deref().unwrap_or_default());
        let before = self.nodes[id].node.is_some();
        self.nodes[id].set_node(node);
        if !before {
            self.order.push(id);
        }
    }

    /// A node was deleted. Pods bound to it are retained until they are deleted.
    pub fn remove_node(&mut self, name: &str) {
        let Some(id) = self.ids.get(name).copied() else { return };
        self.nodes[id].node = None;
        self.order.retain(|other| *other != id);
        self.reclaim(id);
    }

    /// A pod was created, updated or bound. It counts while it is on a node and has not terminated.
    pub fn set_pod(&mut self, pod: &Arc<Pod>) {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).filter(|name| !name.is_empty());
        match node {
            Some(node) if !is_finished(pod) => {
                if self.refresh(pod, node) {
                    return;
                }
                let info = Arc::new(PodInfo::new(pod.clone()));
                self.place(info, node);
            }
            Some(_) => self.remove_pod(&crate::informer::key_of(&pod.metadata)),
            None => {}
        }
    }

    /// Replaces a pod whose requests did not change, as on every status update. Returns false if it is not known on
    /// this node.
    fn refresh(&mut self, pod: &Arc<Pod>, node: &str) -> bool {
        let key = crate::informer::key_of(&pod.metadata);
        let Some(place) = self.pods.get(&key).map(|id| &mut self.nodes[*id]).filter(|place| &*place.name == node)
        else {
            return false;
        };
        let Some(known) = place.pods.iter_mut().find(|known| known.key == key) else { return false };
        let (before, now) = (&known.pod.metadata, &pod.metadata);
        // A changed spec has a new generation, where generations exist.
        let same_spec = (before.generation.is_some() && before.generation == now.generation) || known.pod.is_alike(pod);
        if before.uid != now.uid || before.labels != now.labels || !same_spec {
            return false;
        }
        Arc::make_mut(known).pod = pod.clone();
        true
    }

    /// Places a pod on a node, as assumed or as bound.
    pub fn place(&mut self, pod: Arc<PodInfo>, node: &str) {
        self.remove_nomination(&pod.key);
        let id = self.id(node);
        self.remove_pod(&pod.key);
        self.pods.insert(pod.key.clone(), id);
        for claim in &pod.volume_claims {
            *self.claims_in_use.entry(claim.clone()).or_default() += 1;
        }
        self.counters.add(id, &pod);
        self.terms.add(id, &pod);
        self.nodes[id].add(pod);
    }

    /// A pod was deleted or has terminated.
    pub fn remove_pod(&mut self, key: &str) {
        self.remove_nomination(key);
        let Some(id) = self.pods.remove(key) else { return };
        let Some(pod) = self.nodes[id].remove(key) else { return };
        for claim in &pod.volume_claims {
            if let Some(users) = self.claims_in_use.get_mut(claim) {
                *users -= 1;
                if *users == 0 {
                    self.claims_in_use.remove(claim);
                }
            }
        }
        self.counters.remove(id, &pod);
        self.terms.remove(id, &pod);
        self.reclaim(id);
    }

    /// Nominates a pod to a node, or clears its nomination.
    pub fn nominate(&mut self, pod: Arc<PodInfo>, node: Option<&str>) {
        self.remove_nomination(&pod.key);
        if let Some(node) = node {
            self.nominated.entry(node.into()).or_default().push(pod);
        }
    }

    fn remove_nomination(&mut self, key: &str) {
        if !self.nominated.is_empty() {
            for pods in self.nominated.values_mut() {
                pods.retain(|pod| &*pod.key != key);
            }
            self.nominated.retain(|_, pods| !pods.is_empty());
        }
    }

    /// A namespace was created, updated or deleted.
    pub fn set_namespace(&mut self, name: &str, labels: Option<Labels>) {
        match labels {
            Some(labels) => self.namespaces.insert(name.to_owned(), labels),
            None => self.namespaces.remove(name),
        };
    }

    fn id(&mut self, name: &str) -> NodeId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let name: Arc<str> = name.into();
        let state = NodeState { name: name.clone(), ..NodeState::default() };
        let id = match self.free.pop() {
            Some(id) => {
                self.nodes[id] = state;
                id
            }
            None => {
                self.nodes.push(state);
                self.nodes.len() - 1
            }
        };
        self.ids.insert(name, id);
        id
    }

    /// Drops a node without object and pods.
    fn reclaim(&mut self, id: NodeId) {
        let node = &mut self.nodes[id];
        if node.node.is_none() && node.pods.is_empty() && self.ids.get(&node.name) == Some(&id) {
            self.ids.remove(&node.name);
            *node = NodeState::default();
            self.free.push(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(cpu: &str, status: Value) -> Arc<Pod> {
        let container = json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
        let value = json!({
            "metadata": {"name": "p", "namespace": "s", "uid": "u"},
            "spec": {"nodeName": "n", "containers": [container]}, "status": status,
        });
        Arc::new(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn a_pod_is_known_as_it_is_now_and_counted_once() {
        let mut state = State::default();
        for (cpu, phase) in [("1", "Pending"), ("1", "Running"), ("2", "Running")] {
            let now = pod(cpu, json!({"phase": phase}));
            state.set_pod(&now);
            let node = state.node_of("s/p").unwrap();
            assert!(Arc::ptr_eq(&node.pods[0].pod, &now), "{cpu} {phase}");
            assert_eq!((node.pods.len(), node.requested.milli_cpu), (1, 1000 * cpu.parse::<i64>().unwrap()));
        }
        state.set_pod(&pod("2", json!({"phase": "Succeeded"})));
        assert!(state.node_of("s/p").is_none());
    }
}
