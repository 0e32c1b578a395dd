//! How Prometheus scrapes the AMD metrics exporter.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMapKeySelector, SecretKeySelector};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

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

/// Metadata on the targets.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttachMetadata {
    /// Whether labels of the node are offered to relabelings.
    pub node: Option<bool>,
}

/// Schema of a [`RelabelConfig`] as AMD's API has it: label names of the old alphabet, any modulus.
struct AsciiRelabelConfig;

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

/// Credentials that Prometheus sends.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Authorization {
    /// Scheme; `Bearer` when unset.
    #[serde(rename = "type")]
    pub type_: Option<String>,
    /// Key of a Secret with the credentials.
    pub credentials: Option<SecretKeySelector>,
}

/// TLS between Prometheus and the exporter.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TlsConfig {
    /// CA that the exporter's certificate must be signed by.
    pub ca: Option<SecretOrConfigMap>,
    /// The same as a file in the Prometheus container.
    pub ca_file: Option<String>,
    /// Client certificate.
    pub cert: Option<SecretOrConfigMap>,
    /// The same as a file in the Prometheus container.
    pub cert_file: Option<String>,
    /// Key of a Secret with the client certificate's private key.
    pub key_secret: Option<SecretKeySelector>,
    /// The same as a file in the Prometheus container.
    pub key_file: Option<String>,
    /// Whether any certificate is accepted.
    pub insecure_skip_verify: Option<bool>,
    /// Name that the exporter's certificate must bear; the address scraped when unset.
    pub server_name: Option<String>,
    /// Oldest TLS version to speak.
    pub min_version: Option<TlsVersion>,
    /// Newest TLS version to speak.
    pub max_version: Option<TlsVersion>,
}

/// A key of a Secret or of a ConfigMap.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretOrConfigMap {
    /// Key of a Secret.
    pub secret: Option<SecretKeySelector>,
    /// Key of a ConfigMap.
    pub config_map: Option<ConfigMapKeySelector>,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum TlsVersion {
    /// TLS 1.0.
    Tls10,
    /// TLS 1.1.
    Tls11,
    /// TLS 1.2.
    #[default]
    Tls12,
    /// TLS 1.3.
    Tls13,
}
