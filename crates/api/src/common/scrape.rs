//! How Prometheus scrapes: what ServiceMonitors and the kinds that describe them share.

use crate::json_schema::JsonSchema;
use k8s_openapi::api::core::v1::{ConfigMapKeySelector, SecretKeySelector};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Metadata on the targets.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttachMetadata {
    /// Whether labels of the node are offered to relabelings.
    pub node: Option<bool>,
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
