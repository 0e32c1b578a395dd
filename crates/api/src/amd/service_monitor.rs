//! How Prometheus scrapes the AMD metrics exporter.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
#[cfg(feature = "schemas")]
use schemars::{Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

use crate::common::scrape::{AttachMetadata, Authorization, TlsConfig};
use crate::foreign::monitoring::RelabelConfig;

/// How Prometheus finds the exporter.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Prometheus {
    /// ServiceMonitor of the exporter; needs the Prometheus operator.
    pub service_monitor: Option<ServiceMonitor>,
}

/// ServiceMonitor of the exporter.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceMonitor {
    /// Whether the ServiceMonitor is made; off when unset.
    pub enable: Option<bool>,
    /// Time between scrapes, such as `30s`; Prometheus' own when unset.
    #[schemars(regex(pattern = r"^([0-9]+)(ms|s|m|h)$"))]
    pub interval: Option<String>,
    /// Node metadata on the targets.
    pub attach_metadata: Option<AttachMetadata>,
    /// Whether labels of the exporter win over those that Prometheus adds.
    #[schemars(extend("default" = true))]
    pub honor_labels: Option<bool>,
    /// Whether timestamps of the exporter win over the time of the scrape.
    pub honor_timestamps: Option<bool>,
    /// Labels of the ServiceMonitor, by which a Prometheus may select it.
    pub labels: Option<BTreeMap<String, String>>,
    /// Rules that rewrite the target's labels before the scrape.
    #[schemars(with = "Option<Vec<AsciiRelabelConfig>>")]
    pub relabelings: Option<Vec<RelabelConfig>>,
    /// Rules that rewrite or drop samples after the scrape.
    #[schemars(with = "Option<Vec<AsciiRelabelConfig>>")]
    pub metric_relabelings: Option<Vec<RelabelConfig>>,
    /// Credentials that Prometheus sends.
    pub authorization: Option<Authorization>,
    /// File in the Prometheus container with a bearer token. Deprecated: use `authorization`.
    pub bearer_token_file: Option<String>,
    /// TLS between Prometheus and the exporter.
    pub tls_config: Option<TlsConfig>,
}

/// Schema of a [`RelabelConfig`] as AMD's API has it: label names of the old alphabet, any modulus.
struct AsciiRelabelConfig;

#[cfg(feature = "schemas")]
impl JsonSchema for AsciiRelabelConfig {
    fn schema_name() -> Cow<'static, str> {
        "AsciiRelabelConfig".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = RelabelConfig::json_schema(generator);
        if let Some(Value::Object(name)) = schema.pointer_mut("/properties/sourceLabels/items") {
            name.insert("pattern".into(), "^[a-zA-Z_][a-zA-Z0-9_]*$".into());
        }
        if let Some(Value::Object(modulus)) = schema.pointer_mut("/properties/modulus") {
            modulus.remove("minimum");
        }
        schema
    }
}
