//! OpenTelemetry: where a NeMo server sends traces, metrics and logs.

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Telemetry of a server; nothing is sent when unset.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenTelemetry {
    /// Whether telemetry is sent; off when unset.
    pub enabled: Option<bool>,
    /// URL of the OTLP collector, such as `http://collector:4317`.
    pub exporter_otlp_endpoint: Option<String>,
    /// Whether logs are kept out of the telemetry; they are part of it when unset.
    pub disable_logging: Option<bool>,
    /// How each kind of data is sent.
    pub exporter_config: Option<ExporterConfig>,
    /// Paths whose requests are not traced; an empty list traces all.
    #[schemars(extend("default" = ["health"]))]
    pub excluded_urls: Option<Vec<String>>,
    /// Least severe log entries that the telemetry itself writes.
    #[schemars(extend("default" = "INFO"))]
    pub log_level: Option<LogLevel>,
}

/// How each kind of data is sent.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExporterConfig {
    /// How traces are sent.
    #[schemars(extend("default" = "otlp"))]
    pub traces_exporter: Option<Exporter>,
    /// How metrics are sent.
    #[schemars(extend("default" = "otlp"))]
    pub metrics_exporter: Option<Exporter>,
    /// How logs are sent.
    #[schemars(extend("default" = "otlp"))]
    pub logs_exporter: Option<Exporter>,
}

/// How data is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Exporter {
    /// To the OTLP collector.
    #[default]
    Otlp,
    /// To the standard output of the container.
    Console,
    /// Not at all.
    None,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum LogLevel {
    /// The usual course of events.
    #[default]
    Info,
    /// Every detail.
    Debug,
}
