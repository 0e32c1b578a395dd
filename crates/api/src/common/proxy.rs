//! Proxy settings of pods that download models.

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Proxy through which pods reach the outside, and the certificates to trust there.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Proxy {
    /// Proxy for HTTP, as a URL; becomes `HTTP_PROXY` and `http_proxy`.
    pub http_proxy: Option<String>,
    /// Proxy for HTTPS, as a URL; becomes `HTTPS_PROXY` and `https_proxy`.
    pub https_proxy: Option<String>,
    /// Hosts reached directly, separated by commas; becomes `NO_PROXY` and `no_proxy`.
    pub no_proxy: Option<String>,
    /// ConfigMap whose `.crt` and `.pem` keys are added to the trusted certificates of the container.
    pub cert_config_map: Option<String>,
}
