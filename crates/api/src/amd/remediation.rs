//! Automatic repair of nodes with GPU faults: its settings, and RemediationWorkflowStatus with its history.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use k8s_openapi::api::core::v1::{LocalObjectReference, Taint};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::NodeDrainPolicy;
use super::operand::IMAGE;
use crate::resource::{Kind, Layout, Namespaced, Resource};

/// Automatic repair: a node condition that reports a GPU fault starts a workflow that drains, reboots and tests the
/// node.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemediationWorkflow {
    /// Whether nodes are repaired; off when unset.
    pub enable: Option<bool>,
    /// ConfigMap that maps node conditions to workflows (key `workflow`); taken from `configMapImage` when unset.
    pub config: Option<LocalObjectReference>,
    /// How long workflows that failed are kept, such as `24h`.
    #[schemars(regex(pattern = r"^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"), extend("default" = "24h"))]
    pub ttl_for_failed_workflows: Option<String>,
    /// Image of the job that tests the GPUs after the repair.
    #[schemars(regex(pattern = IMAGE))]
    pub tester_image: Option<String>,
    /// Image that carries the default mapping of conditions to workflows.
    #[schemars(regex(pattern = IMAGE))]
    pub config_map_image: Option<String>,
    /// Number of nodes under repair at a time; 0 is no limit.
    #[schemars(range(min = 0), extend("default" = 0))]
    pub max_parallel_workflows: Option<i32>,
    /// Taints of a node under repair; `amd-gpu-unhealthy:NoSchedule` when unset.
    pub node_remediation_taints: Option<Vec<Taint>>,
    /// Labels of a node under repair.
    pub node_remediation_labels: Option<BTreeMap<String, String>>,
    /// How the node is drained; by force, sparing DaemonSets and system namespaces, when unset.
    pub node_drain_policy: Option<NodeDrainPolicy>,
    /// Whether workflows start by themselves; otherwise each waits until the node is labelled
    /// `operator.amd.com/gpu-force-resume-workflow=true`.
    #[schemars(extend("default" = true))]
    pub auto_start_workflow: Option<bool>,
    /// How long a node may take to come back from its reboot, such as `15m`.
    #[schemars(regex(pattern = r"^([0-9]+(\.[0-9]+)?(s|m|h))+$"), extend("default" = "15m"))]
    pub reboot_timeout: Option<String>,
}

/// History of automatic repairs in a namespace; the operator keeps one object, `default`.
pub type RemediationWorkflowStatus = Resource<RemediationWorkflowStatusSpec>;

/// History of automatic repairs in a namespace; written by the operator, which limits repeated repairs by it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RemediationWorkflowStatusSpec {}

impl Kind for RemediationWorkflowStatusSpec {
    type Status = RemediationHistory;
    type Scope = Namespaced;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = super::VERSION;
    const KIND: &'static str = "RemediationWorkflowStatus";
    const PLURAL: &'static str = "remediationworkflowstatuses";
    const SHORT_NAMES: &'static [&'static str] = &["rwfstatus"];
    const LAYOUT: Layout = Layout::Flat;
}

/// Repairs of the last 72 hours, by node name and node condition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct RemediationHistory(pub BTreeMap<String, BTreeMap<String, Vec<RemediationRun>>>);

/// One repair.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemediationRun {
    /// Name of the workflow.
    pub name: Option<String>,
    /// When it began, as `2006-01-02 15:04:05 UTC`.
    pub start_time: Option<String>,
}
