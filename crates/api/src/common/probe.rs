//! Probes of servers.

use crate::json_schema::JsonSchema;
use k8s_openapi::api::core::v1::Probe;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// A probe of the serving container.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerProbe {
    /// Whether the container is probed at all; it is when unset.
    pub enabled: Option<bool>,
    /// Replaces the whole probe; HTTP on the health path of the server when unset.
    pub probe: Option<Probe>,
}
