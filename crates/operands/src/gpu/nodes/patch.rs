//! The changes of a node, in one request.
//!
//! Contains only the keys that change: other writers, such as the driver manager that pauses operands, keep theirs.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::gpu::upgrade::keys::STATE;

/// A merge patch of one node; `None` removes a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodePatch {
    /// Labels.
    pub labels: BTreeMap<String, Option<String>>,
    /// Annotations.
    pub annotations: BTreeMap<String, Option<String>>,
    /// Cordon or uncordon.
    pub unschedulable: Option<bool>,
    /// All taints: the list is replaced as a whole.
    pub taints: Option<Vec<Value>>,
}

impl NodePatch {
    /// Whether there is no change.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty() && self.unschedulable.is_none() && self.taints.is_none()
    }

    /// Whether it needs a resourceVersion precondition: it writes the upgrade journal or fields that others write too.
    pub fn needs_lock(&self) -> bool {
        self.unschedulable.is_some() || self.taints.is_some() || self.labels.contains_key(STATE)
    }

    /// Sets a label.
    pub fn set(&mut self, key: &str, value: &str) {
        self.labels.insert(key.into(), Some(value.into()));
    }

    /// Removes a label.
    pub fn remove(&mut self, key: &str) {
        self.labels.insert(key.into(), None);
    }

    /// Sets an annotation.
    pub fn annotate(&mut self, key: &str, value: &str) {
        self.annotations.insert(key.into(), Some(value.into()));
    }

    /// Removes an annotation.
    pub fn strip(&mut self, key: &str) {
        self.annotations.insert(key.into(), None);
    }

    /// Merges `other`, which wins.
    pub fn merge(&mut self, other: Self) {
        self.labels.extend(other.labels);
        self.annotations.extend(other.annotations);
        self.unschedulable = other.unschedulable.or(self.unschedulable);
        self.taints = other.taints.or(self.taints.take());
    }

    /// The body of the request, with `resource_version` as precondition if given.
    pub fn to_json(&self, resource_version: Option<&str>) -> Value {
        let entries = |map: &BTreeMap<String, Option<String>>| {
            Value::Object(map.iter().map(|(key, value)| (key.clone(), json!(value))).collect())
        };
        let mut metadata = Map::new();
        if !self.labels.is_empty() {
            metadata.insert("labels".into(), entries(&self.labels));
        }
        if !self.annotations.is_empty() {
            metadata.insert("annotations".into(), entries(&self.annotations));
        }
        if let Some(version) = resource_version {
            metadata.insert("resourceVersion".into(), version.into());
        }
        let mut body = json!({"metadata": metadata});
        if let Some(unschedulable) = self.unschedulable {
            // The API server stores "schedulable" as the absence of the field.
            body["spec"] = json!({"unschedulable": unschedulable.then_some(true)});
        }
        if let Some(taints) = &self.taints {
            body["spec"]["taints"] = if taints.is_empty() { Value::Null } else { taints.clone().into() };
        }
        body
    }
}
