//! NodeFeature: the raw features of one node, published by the worker on it (or by third parties).

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::resource::{Kind, Layout, Namespaced, NoStatus, Resource};

/// What was found on one node. The label `nfd.node.kubernetes.io/node-name` says which one.
pub type NodeFeature = Resource<NodeFeatureSpec>;

/// Features of one node and labels wished for it; the label `nfd.node.kubernetes.io/node-name` names the node.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeFeatureSpec {
    /// Features that rules can match on; those of several objects for one node are merged.
    pub features: Option<Features>,
    /// Labels to put on the node; names without a domain get `feature.node.kubernetes.io/` in front.
    pub labels: Option<BTreeMap<String, String>>,
}

/// Features by kind of value. Keys are `<domain>.<feature>`, e.g. `cpu.cpuid`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Features {
    /// Features whose elements are only present or absent, e.g. `kernel.loadedmodule`.
    pub flags: Option<BTreeMap<String, FlagFeatures>>,
    /// Features whose elements have a value, e.g. `kernel.version`.
    pub attributes: Option<BTreeMap<String, AttributeFeatures>>,
    /// Features that occur several times, each with attributes of its own, e.g. `pci.device`.
    pub instances: Option<BTreeMap<String, InstanceFeatures>>,
}

/// Elements without a value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlagFeatures {
    /// The elements that are present, each with an empty object.
    pub elements: BTreeMap<String, Present>,
}

/// Mark of an element that is present and has no value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Present {}

/// Elements with a value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AttributeFeatures {
    /// Values by element name.
    pub elements: BTreeMap<String, String>,
}

/// Occurrences of a feature.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InstanceFeatures {
    /// One entry per occurrence, e.g. per PCI device.
    pub elements: Vec<InstanceFeature>,
}

/// One occurrence of a feature.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InstanceFeature {
    /// Values by attribute name, e.g. `vendor` and `class` of a PCI device.
    pub attributes: BTreeMap<String, String>,
}

impl Kind for NodeFeatureSpec {
    type Status = NoStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = super::VERSION;
    const KIND: &'static str = "NodeFeature";
    const PLURAL: &'static str = "nodefeatures";
    const LAYOUT: Layout = Layout::SpecRequired;
    const STATUS_SUBRESOURCE: bool = false;
}
