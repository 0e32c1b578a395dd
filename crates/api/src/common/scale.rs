//! Horizontal autoscaling.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscalerBehavior, MetricSpec};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Whether and how a HorizontalPodAutoscaler sets the number of replicas.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Autoscaling {
    /// Creates the autoscaler; `replicas` must then stay unset. Off when unset.
    pub enabled: Option<bool>,
    /// Annotations of the autoscaler.
    pub annotations: Option<BTreeMap<String, String>>,
    /// Limits and metrics of the autoscaler.
    pub hpa: Option<HorizontalPodAutoscaling>,
}

/// Limits, metrics and pace of the autoscaler.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HorizontalPodAutoscaling {
    /// Replicas that always run.
    #[schemars(range(min = 1), extend("default" = 1))]
    pub min_replicas: Option<i32>,
    /// Replicas that are never exceeded.
    pub max_replicas: i32,
    /// What to scale by; Kubernetes takes 80 % CPU when unset.
    pub metrics: Option<Vec<MetricSpec>>,
    /// How fast replicas come and go; Kubernetes' defaults when unset.
    pub behavior: Option<HorizontalPodAutoscalerBehavior>,
}
