//! NemoGuardrail: enforces guardrails on conversations with a model.

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::NemoServer;
use super::otel::OpenTelemetry;
use super::shared::{ConfigMapRef, DatabaseConfig};
use crate::common::PersistentVolumeClaim;
use crate::resource::{Column, Handling, Kind, Namespaced, Resource};

/// Runs NeMo Guardrails.
pub type NemoGuardrail = Resource<NemoGuardrailSpec>;

/// NeMo Guardrails, which checks what goes into a model and what comes out of it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NemoGuardrailSpec {
    /// The server itself.
    #[serde(flatten, deserialize_with = "crate::wire::flat")]
    pub server: NemoServer,
    /// Model that is guarded.
    pub nim_endpoint: Option<NimEndpoint>,
    /// Where the rules are kept, mounted at `/config-store`.
    pub config_store: Option<ConfigStore>,
    /// Database of the service; it runs without one when unset.
    pub database_config: Option<DatabaseConfig>,
    /// Telemetry of the server.
    pub otel: Option<OpenTelemetry>,
}

impl Kind for NemoGuardrailSpec {
    type Status = super::NemoStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = super::VERSION;
    const KIND: &'static str = "NemoGuardrail";
    const PLURAL: &'static str = "nemoguardrails";
    const HANDLING: Handling = Handling::Reconciled;
    const COLUMNS: &'static [Column] = super::COLUMNS;
}

/// A NIM, or a proxy of several.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NimEndpoint {
    /// URL of the model's API, ending in `/v1`.
    #[serde(rename = "baseURL")]
    #[schemars(length(min = 1), regex(pattern = r"^https?:\/\/[^\s]+\/v1\/?$"), extend("format" = "uri"))]
    pub base_url: String,
    /// Secret in the same namespace with the API key; none is sent when unset.
    pub api_key_secret: Option<String>,
    /// Key of that Secret with the API key.
    #[schemars(extend("default" = "NIM_ENDPOINT_API_KEY"))]
    pub api_key_key: Option<String>,
}

/// Where the rules are kept: in a ConfigMap or on a volume, not in both.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(has(self.configMap) && has(self.pvc))",
    "message": "spec.configStore: configMap and pvc are both set; remove one of them",
}]))]
pub struct ConfigStore {
    /// ConfigMap with the rules, which the server cannot change.
    pub config_map: Option<ConfigMapRef>,
    /// Volume with the rules; directory `guardrails-config-store` of it unless `subPath` says otherwise.
    pub pvc: Option<PersistentVolumeClaim>,
}
