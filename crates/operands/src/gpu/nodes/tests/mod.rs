//! Labels of nodes, decision by decision.

mod evidence;
mod labels;
mod owners;
mod ready;
mod taint;

use std::collections::BTreeMap;

use capstan_api::gpu::{ClusterPolicy, GpuCluster, NvidiaDriver};
use serde_json::{Value, json};

use super::*;

pub(super) const PCI: &str = "feature.node.kubernetes.io/pci-10de.present";

/// A node with metadata that can be changed.
#[derive(Clone, Debug, Default)]
pub(super) struct Host {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) unschedulable: bool,
    pub(super) runtime: Option<ContainerRuntime>,
}

impl Host {
    /// A node on which a GPU was found.
    pub(super) fn gpu() -> Self {
        Self::default().label(PCI, "true")
    }

    pub(super) fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// With the label that deploys an operand.
    pub(super) fn operand(self, name: &str, value: &str) -> Self {
        self.label(&format!("nvidia.com/gpu.deploy.{name}"), value)
    }

    pub(super) fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.into(), value.into());
        self
    }

    pub(super) fn node(&self) -> Node<'_> {
        Node {
            name: "a",
            labels: Entries::Map(&self.labels),
            annotations: Entries::Map(&self.annotations),
            unschedulable: self.unschedulable,
            runtime: self.runtime,
        }
    }

    /// The node after one patch. A second decision has nothing to add.
    pub(super) fn settle(&self, wanted: &Wanted, facts: &NodeFacts) -> Self {
        let mut host = self.clone();
        host.apply(&decide(wanted, &self.node(), facts).patch);
        let again = decide(wanted, &host.node(), facts).patch;
        assert!(again.is_empty(), "a second patch: {again:?}");
        host
    }

    pub(super) fn apply(&mut self, patch: &NodePatch) {
        for (map, changes) in [(&mut self.labels, &patch.labels), (&mut self.annotations, &patch.annotations)] {
            for (key, value) in changes {
                match value {
                    Some(value) => map.insert(key.clone(), value.clone()),
                    None => map.remove(key),
                };
            }
        }
        self.unschedulable = patch.unschedulable.unwrap_or(self.unschedulable);
    }

    /// Names of the operands that are deployed.
    pub(super) fn operands(&self) -> Vec<&str> {
        let on = self.labels.iter().filter(|(_, value)| *value == "true");
        on.filter_map(|(key, _)| key.strip_prefix("nvidia.com/gpu.deploy.")).collect()
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }
}

pub(super) fn policy(spec: Value) -> Wanted {
    Wanted::of(Some(&cluster_policy(spec)), None, &[])
}

pub(super) fn cluster_policy(spec: Value) -> ClusterPolicy {
    let sections = [
        "operator",
        "daemonsets",
        "driver",
        "toolkit",
        "devicePlugin",
        "dcgmExporter",
        "dcgm",
        "nodeStatusExporter",
        "gfd",
    ];
    let required = sections.into_iter().map(|section| (section.to_owned(), json!({}))).collect();
    resource("policy", Value::Object(required), spec)
}

pub(super) fn gpu_cluster() -> GpuCluster {
    resource("gpu-cluster", json!({"draDriver": {}}), json!({}))
}

pub(super) fn driver(name: &str, spec: Value) -> NvidiaDriver {
    resource(name, json!({"default": false, "driverType": "gpu", "image": "driver"}), spec)
}

fn resource<T: serde::de::DeserializeOwned>(name: &str, mut required: Value, spec: Value) -> T {
    for (field, value) in spec.as_object().unwrap() {
        required[field] = value.clone();
    }
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": required})).unwrap()
}

/// No pod that matters is on the node.
pub(super) const QUIET: NodeFacts =
    NodeFacts { claims_in_use: Some(false), orphaned_driver: false, owned_driver: false };
