//! Volcano: pod groups (gang scheduling) and queues.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::Condition;
use crate::resource::{Cluster, Kind, Namespaced, Resource};

const GROUP: &str = "scheduling.volcano.sh";
const VERSION: &str = "v1beta1";

/// Pods that are scheduled together or not at all.
pub type PodGroup = Resource<PodGroupSpec>;

/// How many pods must fit before any starts.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodGroupSpec {
    /// Pods that must fit.
    pub min_member: Option<i32>,
    /// Pods that must fit, by the task they belong to.
    pub min_task_member: Option<BTreeMap<String, i32>>,
    /// Resources that must be free.
    pub min_resources: Option<BTreeMap<String, Quantity>>,
    /// Queue to wait in; `default` when unset.
    pub queue: Option<String>,
    /// Priority class of the group.
    pub priority_class_name: Option<String>,
}

/// Where the group stands.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodGroupStatus {
    /// `Pending`, `Inqueue`, `Running`, `Completed` or `Unknown`.
    pub phase: Option<String>,
    /// Why, when it does not move.
    pub conditions: Option<Vec<Condition>>,
    /// Pods that run.
    pub running: Option<i32>,
}

impl Kind for PodGroupSpec {
    type Status = PodGroupStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = GROUP;
    const VERSION: &'static str = VERSION;
    const KIND: &'static str = "PodGroup";
    const PLURAL: &'static str = "podgroups";
}

/// A queue that groups wait in.
pub type Queue = Resource<QueueSpec>;

/// Share and limits of a queue.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueSpec {
    /// Share of the cluster, relative to other queues.
    pub weight: Option<i32>,
    /// Most that its groups may use together.
    pub capability: Option<BTreeMap<String, Quantity>>,
    /// Whether other queues may take back what it uses beyond its share.
    pub reclaimable: Option<bool>,
    /// Queue above it.
    pub parent: Option<String>,
}

/// Whether the queue takes groups.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueStatus {
    /// `Open`, `Closed`, `Closing` or `Unknown`.
    pub state: Option<String>,
}

impl Kind for QueueSpec {
    type Status = QueueStatus;
    type Scope = Cluster;
    const GROUP: &'static str = GROUP;
    const VERSION: &'static str = VERSION;
    const KIND: &'static str = "Queue";
    const PLURAL: &'static str = "queues";
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_group_with_numbers_for_quantities_is_read() {
        let object = json!({
            "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "llama"},
            "spec": {"minMember": 2, "minResources": {"nvidia.com/gpu": 16}, "queue": "models", "addedLater": true},
            "status": {"phase": "Inqueue", "conditions": [{"type": "Unschedulable", "status": "True"}]},
        });
        let read: PodGroup = serde_json::from_value(object).unwrap();
        assert_eq!(read.spec.min_resources.unwrap()["nvidia.com/gpu"].0, "16");
        assert_eq!(read.status.unwrap().phase.as_deref(), Some("Inqueue"));
    }

    #[test]
    fn a_queue_survives() {
        let object = json!({
            "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "models"},
            "spec": {"weight": 2, "capability": {"cpu": "64"}, "reclaimable": false}, "status": {"state": "Open"},
        });
        let read: Queue = serde_json::from_value(object.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), object);
    }
}
