//! NemoDatastore: the file store of the NeMo platform, a Gitea with large files on a volume or in an object store.

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::NemoServer;
use super::shared::DatabaseConfig;
use crate::common::PersistentVolumeClaim;
use crate::resource::{Column, Handling, Kind, Namespaced, Resource};

/// Runs a NeMo Data Store.
pub type NemoDatastore = Resource<NemoDatastoreSpec>;

/// A NeMo Data Store, which keeps the files of models and datasets.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NemoDatastoreSpec {
    /// The server itself.
    #[serde(flatten, deserialize_with = "crate::wire::flat")]
    pub server: NemoServer,
    /// Database of Gitea.
    pub database_config: DatabaseConfig,
    /// Secrets with passwords, keys and start scripts of Gitea.
    pub secrets: DatastoreSecrets,
    /// Object store for large files; they are kept on the volume when unset.
    pub object_store_config: Option<ObjectStoreConfig>,
    /// Volume of the repositories, mounted at `/data`; they are lost with the pod when unset.
    pub pvc: Option<PersistentVolumeClaim>,
}

impl Kind for NemoDatastoreSpec {
    type Status = super::NemoStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = super::VERSION;
    const KIND: &'static str = "NemoDatastore";
    const PLURAL: &'static str = "nemodatastores";
    const HANDLING: Handling = Handling::Reconciled;
    const COLUMNS: &'static [Column] = super::COLUMNS;
}

/// Secrets in the same namespace that Gitea starts from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DatastoreSecrets {
    /// Administrator: keys `GITEA_ADMIN_USERNAME` and `GITEA_ADMIN_PASSWORD`.
    pub gitea_admin_secret: String,
    /// Signing key of large-file requests: key `jwtSecret`.
    pub lfs_jwt_secret: String,
    /// Scripts `init_directory_structure.sh` and `configure_gitea.sh`, run before the server.
    pub datastore_init_secret: String,
    /// Script `config_environment.sh`, which writes Gitea's configuration.
    pub datastore_config_secret: String,
    /// Gitea's settings: one key per section of its configuration.
    pub datastore_inline_config_secret: String,
}

/// An object store that speaks S3.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectStoreConfig {
    /// Who to log in as.
    pub credentials: ObjectStoreCredentials,
    /// Whether clients are redirected to the object store; otherwise files pass through the server.
    #[schemars(extend("default" = true))]
    pub serve_direct: Option<bool>,
    /// Host and port of the object store.
    pub endpoint: String,
    /// Bucket that holds the files.
    pub bucket_name: String,
    /// Region of the bucket.
    pub region: String,
    /// Whether the object store is spoken to over TLS.
    pub ssl: bool,
}

/// Access key of an object store, with its secret part in a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectStoreCredentials {
    /// Access key id.
    pub user: String,
    /// Secret in the same namespace with the secret access key.
    pub secret_name: String,
    /// Key of that Secret with the secret access key.
    pub password_key: String,
}
