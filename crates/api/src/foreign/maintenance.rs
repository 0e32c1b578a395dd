//! NVIDIA maintenance operator (maintenance.nvidia.com/v1alpha1): NodeMaintenance, a request to take a node out of use.

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::Condition;
use crate::common::upgrade::WaitForCompletion;
use crate::resource::{Kind, Namespaced, Resource};

/// A request to take a node out of use.
pub type NodeMaintenance = Resource<NodeMaintenanceSpec>;

/// A request to take a node out of use; several requestors may share one.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeMaintenanceSpec {
    /// Who asks; cannot be changed.
    #[serde(rename = "requestorID")]
    pub requestor_id: Option<String>,
    /// Who else asks. Joining and leaving need a patch with the resource version, as all requestors share the list.
    pub additional_requestors: Option<Vec<String>>,
    /// Which node; cannot be changed.
    pub node_name: Option<String>,
    /// Whether the node is cordoned; yes when unset.
    pub cordon: Option<bool>,
    /// Pods to wait for.
    pub wait_for_pod_completion: Option<WaitForCompletion>,
    /// How the node is drained; not at all when unset.
    pub drain_spec: Option<DrainSpec>,
}

impl Kind for NodeMaintenanceSpec {
    type Status = NodeMaintenanceStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = "maintenance.nvidia.com";
    const VERSION: &'static str = "v1alpha1";
    const KIND: &'static str = "NodeMaintenance";
    const PLURAL: &'static str = "nodemaintenances";
}

/// How a node is drained.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrainSpec {
    /// Also evict pods that no controller will bring back elsewhere.
    pub force: Option<bool>,
    /// Label selector of the pods to evict; all when unset.
    pub pod_selector: Option<String>,
    /// Seconds until the drain counts as failed; 0 never gives up, 300 when unset.
    pub timeout_seconds: Option<i32>,
    /// Also evict pods with emptyDir volumes.
    pub delete_empty_dir: Option<bool>,
    /// Evict only pods that match one of these.
    pub pod_eviction_filters: Option<Vec<PodEvictionFilter>>,
}

/// Which pods are evicted.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodEvictionFilter {
    /// Those that use a resource whose name matches.
    pub by_resource_name_regex: Option<String>,
}

/// How far the maintenance is.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeMaintenanceStatus {
    /// `Ready` with reason `Ready` says that the node is out of use; `Failed` that it cannot be taken out.
    pub conditions: Option<Vec<Condition>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn survives() {
        super::super::tests::assert_survives::<NodeMaintenanceSpec>(&json!({
            "apiVersion": "maintenance.nvidia.com/v1alpha1",
            "kind": "NodeMaintenance",
            "metadata": {"name": "nvidia-operator-node-1", "namespace": "default"},
            "spec": {
                "requestorID": "nvidia.gpu-driver-upgrade",
                "additionalRequestors": ["nvidia.doca-driver-upgrade"],
                "nodeName": "node-1",
                "cordon": true,
                "waitForPodCompletion": {"podSelector": "app=job", "timeoutSeconds": 0},
                "drainSpec": {
                    "force": true,
                    "podSelector": "",
                    "timeoutSeconds": 300,
                    "deleteEmptyDir": true,
                    "podEvictionFilters": [{"byResourceNameRegex": "nvidia.com/gpu-*"}],
                },
            },
            "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": ""}]},
        }));
    }
}
