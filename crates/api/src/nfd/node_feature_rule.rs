//! NodeFeatureRule: turns features into labels, annotations, extended resources and taints of nodes.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use k8s_openapi::api::core::v1::Taint;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::matching::{MatchAny, MatchFeature};
use crate::resource::{Cluster, Kind, Layout, NoStatus, Resource};

/// Rules that mark every node whose features match.
pub type NodeFeatureRule = Resource<NodeFeatureRuleSpec>;

/// Rules that mark every node whose features match; objects are evaluated in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeFeatureRuleSpec {
    /// Rules, evaluated in this order; where two set the same thing, the later one wins.
    pub rules: Vec<Rule>,
}

/// What to put on the nodes that match. Names without a domain get `feature.node.kubernetes.io/` in front.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// Name of the rule, for messages.
    pub name: String,
    /// Labels to set; a value `@domain.feature.element` is replaced by that attribute of the node.
    pub labels: Option<BTreeMap<String, String>>,
    /// Template that yields more labels, one `name=value` per line, from the matched elements; `labels` wins over it.
    pub labels_template: Option<String>,
    /// Annotations to set; values of up to 1024 bytes.
    pub annotations: Option<BTreeMap<String, String>>,
    /// Variables that later rules can match on, as elements of the feature `rule.matched`; never put on the node.
    pub vars: Option<BTreeMap<String, String>>,
    /// Template that yields more variables, one `name=value` per line; `vars` wins over it.
    pub vars_template: Option<String>,
    /// Taints to set; ignored unless taints are enabled for the whole installation.
    pub taints: Option<Vec<Taint>>,
    /// Extended resources to advertise, with their quantity; a value `@domain.feature.element` is replaced by that
    /// attribute of the node.
    pub extended_resources: Option<BTreeMap<String, String>>,
    /// Terms that must all match; every node matches when this and `matchAny` are empty.
    pub match_features: Option<Vec<MatchFeature>>,
    /// Alternatives of which at least one must match, in addition to `matchFeatures`.
    pub match_any: Option<Vec<MatchAny>>,
}

impl Kind for NodeFeatureRuleSpec {
    type Status = NoStatus;
    type Scope = Cluster;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = super::VERSION;
    const KIND: &'static str = "NodeFeatureRule";
    const PLURAL: &'static str = "nodefeaturerules";
    const SHORT_NAMES: &'static [&'static str] = &["nfr"];
    const LAYOUT: Layout = Layout::SpecRequired;
    const STATUS_SUBRESOURCE: bool = false;
}
