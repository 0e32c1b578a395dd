//! Node Feature Discovery: what a node is made of, and rules that turn it into labels, taints and resources.
//!
//! Raw features travel from node to cluster as a [`NodeFeature`]. A [`NodeFeatureRule`] turns them into labels,
//! annotations, extended resources and taints of the node; a [`NodeFeatureGroup`] turns them into a list of nodes. The
//! matching language of both is in [`matching`].

pub mod matching;

mod node_feature;
mod node_feature_group;
mod node_feature_rule;

pub use node_feature::{
    AttributeFeatures, Features, FlagFeatures, InstanceFeature, InstanceFeatures, NodeFeature, NodeFeatureSpec, Present,
};
pub use node_feature_group::{
    FeatureGroupNode, GroupRule, NodeFeatureGroup, NodeFeatureGroupSpec, NodeFeatureGroupStatus,
};
pub use node_feature_rule::{NodeFeatureRule, NodeFeatureRuleSpec, Rule};

use crate::crd::Entry;

/// API group of Node Feature Discovery.
pub const GROUP: &str = "nfd.k8s-sigs.io";
/// Version of all its kinds.
pub const VERSION: &str = "v1alpha1";

/// Kinds of Node Feature Discovery.
pub const KINDS: &[Entry] =
    &[Entry::of::<NodeFeatureSpec>(), Entry::of::<NodeFeatureRuleSpec>(), Entry::of::<NodeFeatureGroupSpec>()];
