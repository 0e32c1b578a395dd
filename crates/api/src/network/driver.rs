//! The DOCA-OFED driver: its container, and how it is upgraded node by node.

use crate::json_schema::JsonSchema;
use k8s_openapi::api::core::v1::EnvVar;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::image::ImageSpec;
use crate::common::upgrade::{Drain, DrainByDefault, WaitForCompletion};

/// The DOCA-OFED driver, loaded from a container on every node with a card. One DaemonSet per kernel.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OfedDriver {
    /// The image.
    #[serde(flatten)]
    pub image: ImageSpec,
    /// When the driver counts as started; unset or below 1: after 30 s, every 10 s, 120 times, 10 s each.
    pub startup_probe: Option<PodProbe>,
    /// When the driver counts as dead; unset or below 1: after 10 s, every 30 s, once, 10 s each.
    pub liveness_probe: Option<PodProbe>,
    /// When the driver counts as ready; unset or below 1: after 10 s, every 30 s, once, 10 s each.
    pub readiness_probe: Option<PodProbe>,
    /// Environment variables of the driver container and of its helpers; they win over those that the operator sets.
    pub env: Option<Vec<EnvVar>>,
    /// How a new driver version gets onto the nodes; by hand when unset.
    pub upgrade_policy: Option<DriverUpgradePolicy>,
    /// ConfigMap in the operator's namespace with certificates to trust while packages are fetched.
    pub cert_config: Option<ConfigMapName>,
    /// ConfigMap in the operator's namespace with package repositories to use.
    pub repo_config: Option<ConfigMapName>,
    /// Seconds that the driver gets to unload before it is killed.
    #[schemars(range(min = 0), extend("default" = 300))]
    pub termination_grace_period_seconds: Option<i64>,
    /// Only use images with a driver compiled for the node's kernel, and report an error where there is none, rather
    /// than compile on the node.
    #[schemars(extend("default" = false))]
    pub force_precompiled: Option<bool>,
}

/// Timing of a probe. Values below 1 stand for the default.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodProbe {
    /// Seconds from the start of the container to the first probe.
    pub initial_delay_seconds: i64,
    /// Seconds between probes.
    pub period_seconds: i64,
    /// Failures in a row that count as one.
    pub failure_threshold: Option<i64>,
    /// Seconds until a probe without an answer has failed.
    pub timeout_seconds: Option<i64>,
}

/// How a new driver version gets onto the nodes.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriverUpgradePolicy {
    /// Upgrade by itself; when false, driver pods are replaced only once someone deletes them.
    #[schemars(extend("default" = false))]
    pub auto_upgrade: Option<bool>,
    /// Nodes to upgrade at a time; 0 for no limit.
    #[schemars(range(min = 0), extend("default" = 1))]
    pub max_parallel_upgrades: Option<i64>,
    /// Pods to wait for before a node is upgraded; none when unset.
    pub wait_for_completion: Option<WaitForCompletion>,
    /// How pods are moved off a node before it is upgraded; no drain when unset.
    #[schemars(with = "Option<DrainByDefault>")]
    pub drain: Option<Drain>,
    /// Also drain a node before a driver is first loaded on it, e.g. after a reboot; needs `autoUpgrade`.
    #[schemars(extend("default" = false))]
    pub safe_load: Option<bool>,
}

/// Names a ConfigMap.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapName {
    /// Name of the ConfigMap.
    pub name: Option<String>,
}
