//! The cluster as the scheduler sees it: nodes with what is left on them, kept up to date pod by pod.
//!
//! Nothing here is computed from scratch for a pod that is to be scheduled: sums per node, counts of pods by selector and
//! the terms of pods that keep others away are adjusted when a pod comes or goes.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use super::counts::{Counters, Terms};
use super::pod::{HostPort, PodInfo, is_finished};
use super::resources::Resources;
use crate::Pod;
use capstan_semantics::Labels;
use capstan_semantics::quantity::units;

/// Index of a node in [`State`]. It stays the same as long as the node is there.
pub type NodeId = usize;

/// A node, with what runs on it.
#[derive(Clone, Debug, Default)]
pub struct NodeState {
    /// Name.
    pub name: Arc<str>,
    /// The object; nothing if pods were bound to a node that is not there.
    pub node: Option<Arc<Node>>,
    /// What pods may use.
    pub allocatable: Resources,
    /// How many pods may run.
    pub max_pods: i64,
    /// What pods use.
    pub requested: Resources,
    /// `cpu` in thousandths that pods use, with a small amount for containers that ask for none.
    pub assumed_milli_cpu: i64,
    /// `memory` that pods use, with a small amount for containers that ask for none.
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

    /// Whether ports of the host are in use.
    pub fn has_ports(&self, ports: &[HostPort]) -> bool {
        ports.iter().any(|port| self.ports.iter().any(|used| used.clashes(port)))
    }

    /// Adds a pod.
    pub fn add(&mut self, pod: Arc<PodInfo>) {
        self.requested.add(&pod.requests.exact);
        self.assumed_milli_cpu += pod.requests.assumed_milli_cpu;
        self.assumed_memory += pod.requests.assumed_memory;
        self.ports.extend(pod.ports.iter().cloned());
        self.pods.push(pod);
    }

    /// Takes a pod away.
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

/// All nodes and the pods on them.
#[derive(Debug, Default)]
pub struct State {
    nodes: Vec<NodeState>,
    free: Vec<NodeId>,
    ids: HashMap<Arc<str>, NodeId>,
    /// Nodes whose object is there, in the order in which they came.
    order: Vec<NodeId>,
    pods: HashMap<Arc<str>, NodeId>,
    nominated: HashMap<Arc<str>, Vec<Arc<PodInfo>>>,
    claims_in_use: HashMap<Arc<str>, u32>,
    namespaces: HashMap<String, Labels>,
    pub(super) counters: Counters,
    pub(super) terms: Terms,
    /// Where the search for nodes starts.
    pub(super) next: usize,
}

impl State {
    /// How much is remembered: pods, nodes, namespaces, claims, and what pods say about others.
    pub(super) fn len(&self) -> usize {
        let pods = self.pods.len() + self.nodes.iter().map(|node| node.pods.len()).sum::<usize>();
        let terms = self.terms.anti.len() + self.terms.liked.len();
        pods + self.ids.len() + self.nominated.len() + self.claims_in_use.len() + self.namespaces.len() + terms
    }

    /// The nodes that pods can be scheduled to, in order.
    pub fn order(&self) -> &[NodeId] {
        &self.order
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> &NodeState {
        &self.nodes[id]
    }

    /// The node of that name, if its object is there.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.ids.get(name).copied().filter(|id| self.nodes[*id].node.is_some())
    }

    /// All pods on nodes.
    pub fn pods(&self) -> impl Iterator<Item = (NodeId, &Arc<PodInfo>)> {
        self.nodes.iter().enumerate().flat_map(|(id, node)| node.pods.iter().map(move |pod| (id, pod)))
    }

    /// The node that a pod is on or was assumed to be on.
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

    /// How many pods use a claim of a volume.
    pub fn users_of_claim(&self, key: &str) -> u32 {
        self.claims_in_use.get(key).copied().unwrap_or(0)
    }

    /// Pods that are to come to a node once others have left it.
    pub fn nominated(&self, node: &str) -> &[Arc<PodInfo>] {
        self.nominated.get(node).map_or(&[], Vec::as_slice)
    }

    /// Whether any pod waits for others to leave.
    pub fn has_nominated(&self) -> bool {
        !self.nominated.is_empty()
    }

    /// A node came or changed.
    pub fn set_node(&mut self, node: Arc<Node>) {
        let id = self.id(node.metadata.name.as_deref().unwrap_or_default());
        let before = self.nodes[id].node.is_some();
        self.nodes[id].set_node(node);
        if !before {
            self.order.push(id);
        }
    }

    /// A node went. Pods that are bound to it are remembered until they go.
    pub fn remove_node(&mut self, name: &str) {
        let Some(id) = self.ids.get(name).copied() else { return };
        self.nodes[id].node = None;
        self.order.retain(|other| *other != id);
        self.reclaim(id);
    }

    /// A pod came, changed or was bound. It counts while it is on a node and not over.
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

    /// Takes over the new state of a pod that asks for the same as before, as it does whenever its node reports on it.
    /// False if it is not known as such.
    fn refresh(&mut self, pod: &Arc<Pod>, node: &str) -> bool {
        let key = crate::informer::key_of(&pod.metadata);
        let Some(place) = self.pods.get(&key).map(|id| &mut self.nodes[*id]).filter(|place| &*place.name == node)
        else {
            return false;
        };
        let Some(known) = place.pods.iter_mut().find(|known| known.key == key) else { return false };
        let (before, now) = (&known.pod.metadata, &pod.metadata);
        // A spec that changes gets another generation, where there are generations.
        let same_spec = (before.generation.is_some() && before.generation == now.generation) || known.pod.is_alike(pod);
        if before.uid != now.uid || before.labels != now.labels || !same_spec {
            return false;
        }
        Arc::make_mut(known).pod = pod.clone();
        true
    }

    /// Puts a pod on a node, before or after the server knows.
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

    /// A pod went, or is over.
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

    /// Reserves a place on a node that others are to leave, or gives it up.
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

    /// A namespace came, changed or went.
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

    /// Forgets a node without object and pods.
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
