//! GPU telemetry: the DCGM host engine, its Prometheus exporter, and how Prometheus scrapes an operand.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::component::{Component, ConfigMapRef};
use crate::foreign::monitoring::RelabelConfig;

/// DCGM host engine as a pod of its own, which the exporter then asks instead of starting one inside.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Dcgm {
    /// How its container runs.
    #[serde(flatten)]
    pub component: Component,
    /// Deprecated and without effect: the host engine listens inside its pod only.
    pub host_port: Option<i32>,
}

/// Exporter of GPU metrics for Prometheus.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DcgmExporter {
    /// How its container runs.
    #[serde(flatten)]
    pub component: Component,
    /// Annotations of its pods.
    pub annotations: Option<BTreeMap<String, String>>,
    /// ConfigMap with the list of metrics under the key `dcgm-metrics.csv`; a built-in list when unset.
    pub config: Option<ConfigMapRef>,
    /// How Prometheus finds the metrics.
    pub service_monitor: Option<ServiceMonitor>,
    /// The Service in front of the exporter.
    pub service: Option<ExporterService>,
    /// Whether the pod sees the processes of its node; off when unset.
    #[serde(rename = "hostPID")]
    pub host_pid: Option<bool>,
    /// Labels metrics with the HPC job that runs on a GPU.
    pub hpc_job_mapping: Option<HpcJobMapping>,
    /// Whether metrics carry the labels of the pod that uses the GPU; off when unset. Lets the exporter read all pods.
    pub enable_pod_labels: Option<bool>,
    /// Whether metrics carry the UID of the pod that uses the GPU; off when unset. Lets the exporter read all pods.
    #[serde(rename = "enablePodUID")]
    pub enable_pod_uid: Option<bool>,
    /// Regular expressions of pod labels that metrics carry; all labels when unset.
    pub pod_label_allowlist_regex: Option<Vec<String>>,
}

/// The Service in front of the exporter.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExporterService {
    /// Kind of Service, such as ClusterIP or NodePort; ClusterIP when unset.
    #[serde(rename = "type")]
    pub type_: Option<String>,
    /// Where requests from inside the cluster go: Cluster (any node) or Local (the caller's node).
    pub internal_traffic_policy: Option<String>,
}

/// Reading which HPC job uses a GPU from files on the node.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HpcJobMapping {
    /// Whether the files are read; off when unset.
    pub enabled: Option<bool>,
    /// Directory on the node that holds them; `/var/lib/dcgm-exporter/job-mapping` when unset.
    pub directory: Option<String>,
}

/// How Prometheus scrapes an operand; needs the Prometheus operator.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceMonitor {
    /// Whether a ServiceMonitor is created; off when unset.
    pub enabled: Option<bool>,
    /// Time between scrapes, as a Prometheus duration: `15s`; Prometheus' own setting when unset.
    #[schemars(regex(
        pattern = r"^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$"
    ))]
    pub interval: Option<String>,
    /// Time after which a scrape fails, as a Prometheus duration, not above the interval.
    #[schemars(regex(
        pattern = r"^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$"
    ))]
    pub scrape_timeout: Option<String>,
    /// Whether labels of the metrics win over those that Prometheus would set, such as `pod`.
    pub honor_labels: Option<bool>,
    /// Labels that your Prometheus selects ServiceMonitors by.
    pub additional_labels: Option<BTreeMap<String, String>>,
    /// Rules that rewrite the labels of targets before they are scraped.
    pub relabelings: Option<Vec<RelabelConfig>>,
}
