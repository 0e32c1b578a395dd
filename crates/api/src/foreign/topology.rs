//! Node resource topology (topology.node.k8s.io/v1alpha2): free resources of a node, per NUMA zone.

use crate::json_schema::JsonSchema;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::resource::{Cluster, Kind, Layout, NoStatus, Resource};

/// Free resources of the node of the same name.
pub type NodeResourceTopology = Resource<NodeResourceTopologySpec>;

/// Free resources of a node; all fields lie at the root.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeResourceTopologySpec {
    /// Deprecated: the kubelet's topology policy, as a list of one.
    pub topology_policies: Option<Vec<String>>,
    /// NUMA zones.
    pub zones: Option<Vec<Zone>>,
    /// Facts about the node, such as `topologyManagerPolicy`.
    pub attributes: Option<Vec<Attribute>>,
}

impl Kind for NodeResourceTopologySpec {
    type Status = NoStatus;
    type Scope = Cluster;
    const GROUP: &'static str = "topology.node.k8s.io";
    const VERSION: &'static str = "v1alpha2";
    const KIND: &'static str = "NodeResourceTopology";
    const PLURAL: &'static str = "noderesourcetopologies";
    const LAYOUT: Layout = Layout::Flat;
}

/// A NUMA zone.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Zone {
    /// Its name, `node-0` and so on.
    pub name: String,
    /// `Node`.
    #[serde(rename = "type")]
    pub type_: Option<String>,
    /// Distances to zones.
    pub costs: Option<Vec<Cost>>,
    /// Resources of the zone.
    pub resources: Option<Vec<ZoneResource>>,
    /// Facts about the zone.
    pub attributes: Option<Vec<Attribute>>,
}

/// Distance to a zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cost {
    /// Name of the zone.
    pub name: String,
    /// The distance.
    pub value: i64,
}

/// A resource of a zone.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ZoneResource {
    /// Its name, such as `cpu`.
    pub name: String,
    /// What there is.
    pub capacity: Option<Quantity>,
    /// What pods may use of it.
    pub allocatable: Option<Quantity>,
    /// What is left of that.
    pub available: Option<Quantity>,
}

/// A fact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Attribute {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn survives() {
        super::super::tests::assert_survives::<NodeResourceTopologySpec>(&json!({
            "apiVersion": "topology.node.k8s.io/v1alpha2",
            "kind": "NodeResourceTopology",
            "metadata": {"name": "node-1"},
            "topologyPolicies": ["SingleNUMANodeContainerLevel"],
            "zones": [{
                "name": "node-0",
                "type": "Node",
                "costs": [{"name": "node-0", "value": 10}, {"name": "node-1", "value": 20}],
                "resources": [{"name": "cpu", "capacity": "32", "allocatable": "30", "available": "28"}],
            }],
            "attributes": [{"name": "topologyManagerPolicy", "value": "single-numa-node"}],
        }));
    }
}
