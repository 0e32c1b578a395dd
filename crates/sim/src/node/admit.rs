//! Kubelet admission: whether a node accepts a pod that is bound to it, as pods are not only bound by the scheduler.

use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::core::v1::Node;

use crate::Pod;
use crate::scheduler::cycle::insufficient_of;
use crate::scheduler::pod::{HostPort, PodInfo};
use crate::scheduler::resources::Resources;
use capstan_semantics::node_selector::NodeAffinity;
use capstan_semantics::quantity::units;

/// Resource usage of the pods on a node.
#[derive(Debug, Default)]
pub(super) struct Usage {
    state: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    resources: Resources,
    pods: i64,
    ports: Vec<HostPort>,
}

/// Resource usage of one pod.
#[derive(Clone, Debug, Default)]
pub(super) struct Reservation {
    resources: Resources,
    ports: Vec<HostPort>,
}

/// Why a node rejects a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rejection {
    pub(super) reason: String,
    pub(super) message: String,
}

impl Usage {
    /// Number of admitted pods.
    pub(super) fn pods(&self) -> usize {
        usize::try_from(self.state.lock().unwrap_or_else(PoisonError::into_inner).pods).unwrap_or(0)
    }

    /// Admits a pod, or returns why it is rejected.
    pub(super) fn admit(&self, pod: &std::sync::Arc<Pod>, node: &Node) -> Result<Reservation, Rejection> {
        let info = PodInfo::new(pod.clone());
        let list = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let have = Resources::of_list(list);
        let most = list.and_then(|list| list.get("pods")).map_or(0, units);
        let mut wanted = info.requests.exact.clone();
        // A resource that the node does not report, such as one of removed devices, does not reject a pod.
        wanted.others.retain(|(name, _)| list.is_some_and(|list| list.contains_key(&**name)));
        let mut used = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lack) = insufficient_of(&wanted, &used.resources, &have, (used.pods, most)).first() {
            let message = format!(
                "Node didn't have enough resource: {}, requested: {}, used: {}, capacity: {}",
                lack.name, lack.requested, lack.used, lack.capacity
            );
            return Err(Rejection { reason: format!("OutOf{}", lack.name), message });
        }
        let predicate = |name: &str, why: &str| {
            Err(Rejection { reason: name.to_owned(), message: format!("Predicate {name} failed: {why}") })
        };
        if !NodeAffinity::of(info.spec()).allows(node) {
            return predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector");
        }
        if info.ports.iter().any(|port| used.ports.iter().any(|other| other.conflicts(port))) {
            return predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports");
        }
        let reservation = Reservation { resources: wanted, ports: info.ports };
        used.resources.add(&reservation.resources);
        used.pods += 1;
        used.ports.extend(reservation.ports.iter().cloned());
        Ok(reservation)
    }

    /// Releases the resources of a deleted or terminated pod.
    pub(super) fn release(&self, reservation: &Reservation) {
        let mut used = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        used.resources.subtract(&reservation.resources);
        used.pods -= 1;
        for port in &reservation.ports {
            if let Some(at) = used.ports.iter().position(|other| other == port) {
                used.ports.swap_remove(at);
            }
        }
    }
}
