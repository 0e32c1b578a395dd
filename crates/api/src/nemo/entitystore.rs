//! NemoEntitystore: the registry of models, datasets and projects of the NeMo platform.

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};

use super::NemoServer;
use super::shared::{DatabaseConfig, ServiceEndpoint};
use crate::resource::{Column, Handling, Kind, Namespaced, Resource};

/// Runs a NeMo Entity Store.
pub type NemoEntitystore = Resource<NemoEntitystoreSpec>;

/// A NeMo Entity Store, which keeps the metadata of models, datasets and projects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NemoEntitystoreSpec {
    /// The server itself.
    #[serde(flatten, deserialize_with = "crate::wire::flat")]
    pub server: NemoServer,
    /// Database of the metadata.
    pub database_config: DatabaseConfig,
    /// Data Store that holds the files which the metadata speaks of.
    pub datastore: ServiceEndpoint,
}

impl Kind for NemoEntitystoreSpec {
    type Status = super::NemoStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = super::VERSION;
    const KIND: &'static str = "NemoEntitystore";
    const PLURAL: &'static str = "nemoentitystores";
    const HANDLING: Handling = Handling::Reconciled;
    const COLUMNS: &'static [Column] = super::COLUMNS;
}
