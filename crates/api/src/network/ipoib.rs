//! IPoIBNetwork: a secondary IP network on top of an InfiniBand interface of the host.

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::status::NetworkState;
use crate::resource::{Cluster, Column, Kind, Resource};

/// Attaches pods to an InfiniBand interface of the host by IP over InfiniBand.
pub type IPoIBNetwork = Resource<IPoIBNetworkSpec>;

/// Attaches pods to an InfiniBand interface of the host by IP over InfiniBand; becomes a NetworkAttachmentDefinition of
/// the same name.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IPoIBNetworkSpec {
    /// Namespace of the NetworkAttachmentDefinition; `default` when unset.
    pub network_namespace: Option<String>,
    /// InfiniBand interface of the host, e.g. `ib0`.
    pub master: Option<String>,
    /// Configuration of the IPAM plugin, as JSON; no addresses are assigned when unset.
    pub ipam: Option<String>,
}

/// Whether pods can use the network.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IPoIBNetworkStatus {
    /// How far the network is.
    pub state: NetworkState,
    /// The NetworkAttachmentDefinition, as a path.
    pub ipoib_network_attachment_def: Option<String>,
    /// Why the network is not ready.
    pub reason: Option<String>,
}

impl Kind for IPoIBNetworkSpec {
    type Status = IPoIBNetworkStatus;
    type Scope = Cluster;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = super::VERSION;
    const KIND: &'static str = "IPoIBNetwork";
    const PLURAL: &'static str = "ipoibnetworks";
    const COLUMNS: &'static [Column] = super::COLUMNS;
}
