//! NodeFeatureGroup: lists the nodes whose features match.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::matching::{MatchAny, MatchFeature};
use crate::resource::{Kind, Layout, Namespaced, Resource};

/// The nodes whose features match.
pub type NodeFeatureGroup = Resource<NodeFeatureGroupSpec>;

/// Rules that decide which nodes belong to the group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeFeatureGroupSpec {
    /// Rules, evaluated in this order; a node that one of them matches belongs to the group.
    pub feature_group_rules: Vec<GroupRule>,
}

/// A rule that lets nodes into the group.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupRule {
    /// Name of the rule, for messages.
    pub name: String,
    /// Variables that later rules can match on, as elements of the feature `rule.matched`.
    pub vars: Option<BTreeMap<String, String>>,
    /// Template that yields more variables, one `name=value` per line; `vars` wins over it.
    pub vars_template: Option<String>,
    /// Terms that must all match; every node matches when this and `matchAny` are empty.
    pub match_features: Option<Vec<MatchFeature>>,
    /// Alternatives of which at least one must match, in addition to `matchFeatures`.
    pub match_any: Option<Vec<MatchAny>>,
}

/// Who belongs to the group now.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeFeatureGroupStatus {
    /// Nodes that match at least one rule.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub nodes: Option<Vec<FeatureGroupNode>>,
}

/// A node of the group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FeatureGroupNode {
    /// Name of the node.
    pub name: String,
}

impl Kind for NodeFeatureGroupSpec {
    type Status = NodeFeatureGroupStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = super::VERSION;
    const KIND: &'static str = "NodeFeatureGroup";
    const PLURAL: &'static str = "nodefeaturegroups";
    const SHORT_NAMES: &'static [&'static str] = &["nfg"];
    const LAYOUT: Layout = Layout::SpecRequired;
}
