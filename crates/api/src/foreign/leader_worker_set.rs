//! LeaderWorkerSet (leaderworkerset.x-k8s.io/v1): groups of pods with one leader each, for models that span nodes.

use crate::json_schema::JsonSchema;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::Condition;
use crate::resource::{Kind, Namespaced, Resource};

/// Groups of pods with one leader each.
pub type LeaderWorkerSet = Resource<LeaderWorkerSetSpec>;

/// Groups of pods with one leader each.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeaderWorkerSetSpec {
    /// Number of groups.
    pub replicas: Option<i32>,
    /// What a group is made of.
    pub leader_worker_template: Option<LeaderWorkerTemplate>,
    /// DNS names of the pods.
    pub network_config: Option<NetworkConfig>,
    /// How groups are replaced.
    pub rollout_strategy: Option<RolloutStrategy>,
    /// When workers start: `LeaderCreated` or `LeaderReady`.
    pub startup_policy: Option<String>,
}

impl Kind for LeaderWorkerSetSpec {
    type Status = LeaderWorkerSetStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = "leaderworkerset.x-k8s.io";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "LeaderWorkerSet";
    const PLURAL: &'static str = "leaderworkersets";
}

/// What a group is made of.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeaderWorkerTemplate {
    /// Pods of a group, leader included.
    pub size: Option<i32>,
    /// Pod of the leader; the worker's when unset.
    pub leader_template: Option<PodTemplateSpec>,
    /// Pod of each worker.
    pub worker_template: Option<PodTemplateSpec>,
    /// What the restart of one pod does to its group: `RecreateGroupOnPodRestart` or `None`.
    pub restart_policy: Option<String>,
}

/// DNS names of the pods.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkConfig {
    /// Whether groups share one headless Service: `Shared` or `UniquePerReplica`.
    pub subdomain_policy: Option<String>,
}

/// How groups are replaced.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStrategy {
    /// `RollingUpdate`.
    #[serde(rename = "type")]
    pub type_: Option<String>,
    /// Bounds of a rolling update.
    pub rolling_update_configuration: Option<RollingUpdateConfiguration>,
}

/// Bounds of a rolling update.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollingUpdateConfiguration {
    /// Groups that may exist on top.
    pub max_surge: Option<IntOrString>,
    /// Groups that may be missing.
    pub max_unavailable: Option<IntOrString>,
}

/// State of the groups.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeaderWorkerSetStatus {
    /// Conditions; `Available` says whether all groups are ready.
    pub conditions: Option<Vec<Condition>>,
    /// Groups that exist.
    pub replicas: Option<i32>,
    /// Groups that are ready.
    pub ready_replicas: Option<i32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn survives() {
        let pod = |name| json!({"metadata": {"labels": {"app": "llm-lws"}}, "spec": {"containers": [{"name": name}]}});
        super::super::tests::assert_survives::<LeaderWorkerSetSpec>(&json!({
            "apiVersion": "leaderworkerset.x-k8s.io/v1",
            "kind": "LeaderWorkerSet",
            "metadata": {"name": "llm-lws", "namespace": "nim"},
            "spec": {
                "replicas": 1,
                "leaderWorkerTemplate": {
                    "size": 2,
                    "leaderTemplate": pod("nim-leader"),
                    "workerTemplate": pod("nim-worker"),
                    "restartPolicy": "RecreateGroupOnPodRestart",
                },
                "networkConfig": {"subdomainPolicy": "Shared"},
                "rolloutStrategy": {
                    "type": "RollingUpdate",
                    "rollingUpdateConfiguration": {"maxSurge": 0, "maxUnavailable": 1},
                },
                "startupPolicy": "LeaderCreated",
            },
            "status": {
                "conditions": [{"type": "Available", "status": "True", "reason": "AllGroupsReady", "message": "ready"}],
                "replicas": 1,
                "readyReplicas": 1,
            },
        }));
    }
}
