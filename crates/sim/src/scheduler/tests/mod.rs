//! Tests of the scheduler's decisions, without a server.

mod affinity;
mod devices;
mod filters;
mod laws;
mod preemption;
mod scores;
mod stories;
mod volumes;

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::{Value, json};

use super::devices::Ledger;
use super::pod::PodInfo;
use super::schedule::{Decision, schedule};
use super::state::State;
use super::view::View;
use crate::Pod;
use capstan_semantics::LabelSelector;

/// An in-memory cluster.
#[derive(Default)]
struct World {
    state: State,
    ledger: Ledger,
    objects: Objects,
}

#[derive(Default)]
struct Objects {
    claims: HashMap<String, Arc<PersistentVolumeClaim>>,
    volumes: Vec<Arc<PersistentVolume>>,
    classes: HashMap<String, Arc<StorageClass>>,
    budgets: Vec<Arc<PodDisruptionBudget>>,
    resource_claims: HashMap<String, Arc<ResourceClaim>>,
    device_classes: HashMap<String, Arc<DeviceClass>>,
    siblings: Option<LabelSelector>,
}

impl View for Objects {
    fn volume_claim(&self, key: &str) -> Option<Arc<PersistentVolumeClaim>> {
        self.claims.get(key).cloned()
    }

    fn volume(&self, name: &str) -> Option<Arc<PersistentVolume>> {
        self.volumes.iter().find(|volume| volume.metadata.name.as_deref() == Some(name)).cloned()
    }

    fn volumes(&self) -> Vec<Arc<PersistentVolume>> {
        self.volumes.clone()
    }

    fn storage_class(&self, name: &str) -> Option<Arc<StorageClass>> {
        self.classes.get(name).cloned()
    }

    fn resource_claim(&self, key: &str) -> Option<Arc<ResourceClaim>> {
        self.resource_claims.get(key).cloned()
    }

    fn device_class(&self, name: &str) -> Option<Arc<DeviceClass>> {
        self.device_classes.get(name).cloned()
    }

    fn disruption_budgets(&self, _: &str) -> Vec<Arc<PodDisruptionBudget>> {
        self.budgets.clone()
    }

    fn siblings(&self, _: &PodInfo) -> Option<LabelSelector> {
        self.siblings.clone()
    }
}

impl World {
    /// A cluster with nodes.
    fn with(nodes: impl IntoIterator<Item = Node>) -> Self {
        let mut world = Self::default();
        for node in nodes {
            world.state.set_node(Arc::new(node));
        }
        world
    }

    /// Adds a running pod to a node.
    fn run(&mut self, node: &str, mut pod: Pod) {
        pod.spec_mut().node_name = Some(node.to_owned());
        self.state.set_pod(&Arc::new(pod));
    }

    fn decide(&mut self, pod: &Pod) -> Decision {
        schedule(&mut self.state, &self.ledger, &self.objects, &PodInfo::new(Arc::new(pod.clone())))
    }

    /// The node for a pod, or the message.
    fn schedule(&mut self, pod: &Pod) -> Result<String, String> {
        match self.decide(pod) {
            Decision::Place(id, _) => Ok(self.state.node(id).name.to_string()),
            Decision::Unschedulable(unschedulable) => Err(unschedulable.message),
        }
    }

    /// Schedules and places a pod.
    fn place(&mut self, pod: Pod) -> String {
        let node = self.schedule(&pod).unwrap();
        self.run(&node, pod);
        node
    }
}

/// A node with 4 CPUs, 16Gi, 10 pods and 2 devices.
fn node(name: &str, change: Value) -> Node {
    let mut value = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {"allocatable": {"cpu": "4", "memory": "16Gi", "pods": "10", "example.com/device": "2"}},
    });
    json_patch::merge(&mut value, &change);
    serde_json::from_value(value).unwrap()
}

/// A pod with one container without requests.
fn pod(name: &str, change: Value) -> Pod {
    let mut value = json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")},
        "spec": {"containers": [{"name": "c"}]},
    });
    json_patch::merge(&mut value, &change);
    serde_json::from_value(value).unwrap()
}

/// A pod with resource requests.
fn asking(name: &str, requests: Value) -> Pod {
    pod(name, json!({"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}}))
}

fn zone(name: &str, zone: &str) -> Node {
    node(name, json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}}))
}
