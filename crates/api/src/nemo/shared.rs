//! Settings that some NeMo kinds share: database, dependent services, ConfigMaps.

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// A PostgreSQL database, which must exist already.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseConfig {
    /// Host name or address of the database server.
    #[schemars(length(min = 1))]
    pub host: String,
    /// Port of the database server.
    #[schemars(range(min = 1, max = 65535), extend("default" = 5432))]
    pub port: Option<i32>,
    /// Name of the database.
    #[schemars(length(min = 1))]
    pub database_name: String,
    /// Who to log in as.
    pub credentials: DatabaseCredentials,
}

/// User of a database, with the password in a Secret.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseCredentials {
    /// User name.
    #[schemars(length(min = 1))]
    pub user: String,
    /// Secret in the same namespace with the password.
    #[schemars(length(min = 1))]
    pub secret_name: String,
    /// Key of that Secret with the password.
    #[schemars(extend("default" = "password"))]
    pub password_key: Option<String>,
}

/// Where another service is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceEndpoint {
    /// Base URL of the service, starting with `http://` or `https://`.
    #[schemars(length(min = 1), regex(pattern = ENDPOINT))]
    pub endpoint: String,
}

/// What every endpoint URL must match.
pub(super) const ENDPOINT: &str = "^http";

/// A ConfigMap in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapRef {
    /// Name of the ConfigMap.
    #[schemars(length(min = 1))]
    pub name: String,
}
