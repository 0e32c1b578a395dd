//! Settings of all DaemonSets that the operator deploys.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use k8s_openapi::api::core::v1::{PodSecurityContext, Toleration};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// What all DaemonSets and their pods have in common.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Daemonsets {
    /// Labels for DaemonSets and pods; pods keep their own `app` and `app.kubernetes.io/part-of`.
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations for DaemonSets and pods.
    pub annotations: Option<BTreeMap<String, String>>,
    /// Taints that the pods tolerate, instead of the built-in ones if not empty.
    pub tolerations: Option<Vec<Toleration>>,
    /// Priority of the pods; `system-node-critical` when unset.
    pub priority_class_name: Option<String>,
    /// How pods are replaced when a DaemonSet changes; drivers always wait for their upgrade.
    #[schemars(extend("default" = "RollingUpdate"))]
    pub update_strategy: Option<UpdateStrategy>,
    /// Details of rolling updates.
    pub rolling_update: Option<RollingUpdate>,
    /// Security settings of the pods as a whole.
    pub pod_security_context: Option<PodSecurityContext>,
}

/// How a DaemonSet replaces its pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpdateStrategy {
    /// Some nodes after the other.
    #[default]
    RollingUpdate,
    /// When somebody deletes the old pod.
    OnDelete,
}

/// Details of rolling updates.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollingUpdate {
    /// Nodes that may be without the pod at the same time, as a number or percentage such as `10%`; 1 when unset.
    pub max_unavailable: Option<String>,
}
