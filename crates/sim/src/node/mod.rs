//! Virtual nodes: a kubelet that runs containers which are not there.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;

use crate::context::Context;

/// A node to be.
#[derive(Clone, Debug, Default)]
pub struct NodeTemplate {
    /// Name.
    pub name: String,
    /// Labels, besides those that every node has.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Capacity, besides the usual `cpu`, `memory`, `pods` and `ephemeral-storage`.
    pub capacity: BTreeMap<String, String>,
    /// Taints.
    pub taints: Vec<Taint>,
}

/// Which nodes there are, and how they behave.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The nodes at the start.
    pub nodes: Vec<NodeTemplate>,
}

/// Starts the nodes.
pub(crate) fn start(context: &Context, settings: Settings) {
    let _ = (context, settings);
}
