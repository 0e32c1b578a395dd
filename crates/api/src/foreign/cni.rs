//! Multus (k8s.cni.cncf.io/v1): NetworkAttachmentDefinition, a further network that pods may ask for.

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::resource::{Kind, Namespaced, NoStatus, Resource};

/// A further network that pods may ask for.
pub type NetworkAttachmentDefinition = Resource<NetworkAttachmentDefinitionSpec>;

/// A further network that pods may ask for.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkAttachmentDefinitionSpec {
    /// CNI configuration, as JSON text.
    pub config: Option<String>,
}

impl Kind for NetworkAttachmentDefinitionSpec {
    type Status = NoStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = "k8s.cni.cncf.io";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "NetworkAttachmentDefinition";
    const PLURAL: &'static str = "network-attachment-definitions";
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn survives() {
        super::super::tests::assert_survives::<NetworkAttachmentDefinitionSpec>(&json!({
            "apiVersion": "k8s.cni.cncf.io/v1",
            "kind": "NetworkAttachmentDefinition",
            "metadata": {
                "name": "rdma",
                "namespace": "default",
                "annotations": {"k8s.v1.cni.cncf.io/resourceName": "nvidia.com/hostdev"},
            },
            "spec": {"config": "{\"cniVersion\":\"0.3.1\",\"name\":\"rdma\",\"type\":\"host-device\",\"ipam\":{}}"},
        }));
    }
}
