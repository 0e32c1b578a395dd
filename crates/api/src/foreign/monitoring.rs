//! Prometheus operator (monitoring.coreos.com/v1): what Prometheus scrapes and which alerts it raises.
//!
//! Some of its types are also part of our own kinds, which pass them on: [`RelabelConfig`], and those that AMD has.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::common::scrape::{AttachMetadata, Authorization, TlsConfig};
use crate::resource::{Kind, Namespaced, NoStatus, Resource};

const GROUP: &str = "monitoring.coreos.com";

/// Services that Prometheus scrapes.
pub type ServiceMonitor = Resource<ServiceMonitorSpec>;
/// Alerts and precomputed series.
pub type PrometheusRule = Resource<PrometheusRuleSpec>;

/// Services that Prometheus scrapes.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceMonitorSpec {
    /// Label of the Service whose value becomes the label `job`.
    pub job_label: Option<String>,
    /// Which Services.
    pub selector: Option<LabelSelector>,
    /// In which namespaces; its own when unset.
    pub namespace_selector: Option<NamespaceSelector>,
    /// What is scraped of each.
    pub endpoints: Option<Vec<Endpoint>>,
    /// Metadata on the targets.
    pub attach_metadata: Option<AttachMetadata>,
}

impl Kind for ServiceMonitorSpec {
    type Status = NoStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = GROUP;
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "ServiceMonitor";
    const PLURAL: &'static str = "servicemonitors";
}

/// Which namespaces.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceSelector {
    /// Their names.
    pub match_names: Option<Vec<String>>,
}

/// What is scraped of a Service.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// Name of the port.
    pub port: Option<String>,
    /// Path of the metrics; `/metrics` when unset.
    pub path: Option<String>,
    /// `http` or `https`.
    pub scheme: Option<String>,
    /// Time between scrapes; Prometheus' own when unset.
    pub interval: Option<String>,
    /// Time after which a scrape fails; Prometheus' own when unset.
    pub scrape_timeout: Option<String>,
    /// Whether labels of the target win over those that Prometheus adds.
    pub honor_labels: Option<bool>,
    /// Whether timestamps of the target win over the time of the scrape.
    pub honor_timestamps: Option<bool>,
    /// Rules that rewrite the target's labels before the scrape.
    pub relabelings: Option<Vec<RelabelConfig>>,
    /// Rules that rewrite or drop samples after the scrape.
    pub metric_relabelings: Option<Vec<RelabelConfig>>,
    /// Credentials that Prometheus sends.
    pub authorization: Option<Authorization>,
    /// File in the Prometheus container with a bearer token.
    pub bearer_token_file: Option<String>,
    /// TLS between Prometheus and the target.
    pub tls_config: Option<TlsConfig>,
}

/// Rule that rewrites labels; also part of our own kinds, hence the schema.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RelabelConfig {
    /// Labels whose values are joined and matched.
    pub source_labels: Option<Vec<String>>,
    /// What the values are joined by; `;` when unset.
    pub separator: Option<String>,
    /// Label that receives the result.
    pub target_label: Option<String>,
    /// Expression that the joined values must match; anything when unset.
    pub regex: Option<String>,
    /// Number of buckets that the hash of the joined values is spread over.
    #[schemars(range(min = 0))]
    pub modulus: Option<i64>,
    /// Value that a match leaves, with groups as `$1`; `$1` when unset.
    pub replacement: Option<String>,
    /// What is done with a match.
    #[schemars(extend("default" = "replace", "enum" = [
        "replace", "Replace", "keep", "Keep", "drop", "Drop", "hashmod", "HashMod", "labelmap", "LabelMap", "labeldrop",
        "LabelDrop", "labelkeep", "LabelKeep", "lowercase", "Lowercase", "uppercase", "Uppercase", "keepequal",
        "KeepEqual", "dropequal", "DropEqual",
    ]))]
    pub action: Option<String>,
}

/// Alerts and precomputed series.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrometheusRuleSpec {
    /// Rules that are evaluated together.
    pub groups: Option<Vec<RuleGroup>>,
}

impl Kind for PrometheusRuleSpec {
    type Status = NoStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = GROUP;
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "PrometheusRule";
    const PLURAL: &'static str = "prometheusrules";
}

/// Rules that are evaluated together.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuleGroup {
    /// Name of the group.
    pub name: String,
    /// Time between evaluations; Prometheus' own when unset.
    pub interval: Option<String>,
    /// The rules.
    pub rules: Option<Vec<Rule>>,
}

/// An alert, or a precomputed series.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// Name of the alert.
    pub alert: Option<String>,
    /// Name of the series.
    pub record: Option<String>,
    /// When the alert is raised, or what the series is.
    pub expr: IntOrString,
    /// How long `expr` must hold before the alert is raised.
    #[serde(rename = "for")]
    pub for_: Option<String>,
    /// Labels of the alert or series, such as `severity`.
    pub labels: Option<BTreeMap<String, String>>,
    /// Texts of the alert, such as `summary`.
    pub annotations: Option<BTreeMap<String, String>>,
}

#[cfg(test)]
mod tests {
    use super::super::tests::assert_survives;
    use super::*;
    use serde_json::json;

    #[test]
    fn monitor_survives() {
        assert_survives::<ServiceMonitorSpec>(&json!({
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "ServiceMonitor",
            "metadata": {"name": "exporter", "namespace": "gpu-operator", "labels": {"release": "prometheus"}},
            "spec": {
                "jobLabel": "app",
                "selector": {"matchLabels": {"app": "nvidia-dcgm-exporter"}},
                "namespaceSelector": {"matchNames": ["gpu-operator"]},
                "endpoints": [{
                    "port": "gpu-metrics",
                    "path": "/metrics",
                    "scheme": "https",
                    "interval": "15s",
                    "scrapeTimeout": "10s",
                    "honorLabels": false,
                    "relabelings": [{"sourceLabels": ["__meta_a"], "targetLabel": "node", "action": "Replace"}],
                    "authorization": {"type": "Bearer", "credentials": {"name": "token", "key": "token"}},
                    "tlsConfig": {"ca": {"configMap": {"name": "ca", "key": "ca.crt"}}, "minVersion": "TLS12"},
                }],
                "attachMetadata": {"node": true},
            },
        }));
    }

    #[test]
    fn rule_survives() {
        assert_survives::<PrometheusRuleSpec>(&json!({
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": {"name": "nvidia-gpu-operator-metrics", "namespace": "gpu-operator"},
            "spec": {"groups": [{
                "name": "alerts",
                "interval": "30s",
                "rules": [
                    {
                        "alert": "GPUOperatorReconciliationFailed",
                        "expr": "gpu_operator_reconciliation_status != 1",
                        "for": "1h",
                        "labels": {"severity": "warning"},
                        "annotations": {"summary": "reconciliation fails"},
                    },
                    {"record": "accelerator_gpu_utilization", "expr": 1, "labels": {"vendor": "nvidia"}},
                ],
            }]},
        }));
    }
}
