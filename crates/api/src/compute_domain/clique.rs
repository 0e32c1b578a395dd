//! ComputeDomainClique: peer discovery for the daemons of one domain and NVLink partition.

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::Readiness;
use crate::resource::{Kind, Layout, Namespaced, NoStatus, Resource};

/// Daemons of one domain and NVLink partition.
pub type ComputeDomainClique = Resource<ComputeDomainCliqueSpec>;

/// Lists the daemons of a ComputeDomain in one NVLink partition; named after the domain's UID and the partition.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComputeDomainCliqueSpec {
    /// The daemons, by node.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["nodeName"]))]
    pub daemons: Option<Vec<Daemon>>,
}

impl Kind for ComputeDomainCliqueSpec {
    type Status = NoStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = "v1beta1";
    const KIND: &'static str = "ComputeDomainClique";
    const PLURAL: &'static str = "computedomaincliques";
    const LAYOUT: Layout = Layout::Flat;
    const STATUS_SUBRESOURCE: bool = false;
}

/// The daemon of one node.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Daemon {
    /// Name of its node.
    pub node_name: String,
    /// Its address.
    pub ip_address: String,
    /// NVLink partition that the node is in.
    #[serde(rename = "cliqueID")]
    pub clique_id: String,
    /// Its place in the partition, which gives it a stable DNS name.
    pub index: Option<i64>,
    /// Whether it takes part.
    #[schemars(extend("default" = "NotReady"))]
    pub status: Option<Readiness>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn daemons_sit_at_the_root() {
        let clique = json!({
            "apiVersion": "resource.nvidia.com/v1beta1",
            "kind": "ComputeDomainClique",
            "metadata": {"name": "uid.0", "namespace": "gpu"},
            "daemons": [{"nodeName": "a", "ipAddress": "10.0.0.1", "cliqueID": "0", "index": 1, "status": "Ready"}],
        });
        let read: ComputeDomainClique = serde_json::from_value(clique.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), clique);
    }
}
