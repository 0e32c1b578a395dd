//! Scraping by Prometheus.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// How Prometheus finds the metrics of the server.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Metrics {
    /// Creates a ServiceMonitor for the Service of this object; off when unset.
    pub enabled: Option<bool>,
    /// Settings of that ServiceMonitor.
    pub service_monitor: Option<ServiceMonitor>,
}

/// Settings of the ServiceMonitor.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceMonitor {
    /// Labels that your Prometheus selects ServiceMonitors by.
    pub additional_labels: Option<BTreeMap<String, String>>,
    /// Annotations of the ServiceMonitor.
    pub annotations: Option<BTreeMap<String, String>>,
    /// Time between scrapes, as a Prometheus duration: `30s`; Prometheus' own setting when unset.
    #[schemars(regex(
        pattern = r"^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$"
    ))]
    pub interval: Option<String>,
    /// Time after which a scrape fails, as a Prometheus duration, not above the interval; Prometheus' own when unset.
    #[schemars(regex(
        pattern = r"^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$"
    ))]
    pub scrape_timeout: Option<String>,
}
