//! Claims on persistent storage.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// A PersistentVolumeClaim to create, or an existing one to use.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PersistentVolumeClaim {
    /// Creates the claim when it does not exist; otherwise it must be there already.
    pub create: Option<bool>,
    /// Name of the claim; `<name of this object>-pvc` when unset.
    pub name: Option<String>,
    /// Storage class of a created claim; the cluster's default class when unset.
    pub storage_class: Option<String>,
    /// Capacity of a created claim, as a quantity: `50Gi`.
    pub size: Option<String>,
    /// Access mode of a created claim: `ReadWriteOnce`, `ReadOnlyMany`, `ReadWriteMany` or `ReadWriteOncePod`.
    pub volume_access_mode: Option<String>,
    /// Directory inside the volume to mount; the whole volume when unset.
    pub sub_path: Option<String>,
    /// Annotations of a created claim.
    pub annotations: Option<BTreeMap<String, String>>,
}
