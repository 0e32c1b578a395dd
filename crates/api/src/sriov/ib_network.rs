//! SriovIBNetwork: an InfiniBand network on virtual functions, for pods to attach to.

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::shared::{LinkState, NetworkStatus, READY_COLUMNS};
use crate::resource::{Column, Kind, Namespaced, Resource};

/// Lets pods attach to InfiniBand virtual functions.
pub type SriovIBNetwork = Resource<SriovIBNetworkSpec>;

/// Lets pods attach to InfiniBand virtual functions; becomes a NetworkAttachmentDefinition of the same name.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SriovIBNetworkSpec {
    /// Namespace of the NetworkAttachmentDefinition; this object's own when unset. Only allowed in the operator's
    /// namespace.
    pub network_namespace: Option<String>,
    /// Resource of a SriovNetworkNodePolicy that the virtual functions are taken from.
    pub resource_name: String,
    /// Capabilities that pods may use at run time, as JSON, e.g. `{"infinibandGUID": true}`.
    pub capabilities: Option<String>,
    /// Configuration of the IPAM plugin, as JSON; no addresses are assigned when unset.
    pub ipam: Option<String>,
    /// Further CNI plugins to chain after this one, as JSON objects separated by commas.
    pub meta_plugins: Option<String>,
    /// Link state that the pod sees; left alone when unset.
    pub link_state: Option<LinkState>,
}

impl Kind for SriovIBNetworkSpec {
    type Status = NetworkStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = super::VERSION;
    const KIND: &'static str = "SriovIBNetwork";
    const PLURAL: &'static str = "sriovibnetworks";
    const COLUMNS: &'static [Column] = READY_COLUMNS;
}
