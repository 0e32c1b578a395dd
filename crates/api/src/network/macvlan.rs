//! MacvlanNetwork: a secondary network on top of an interface of the host.

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::status::NetworkState;
use crate::resource::{Cluster, Column, Kind, Resource};

/// Attaches pods to an interface of the host through macvlan.
pub type MacvlanNetwork = Resource<MacvlanNetworkSpec>;

/// Attaches pods to an interface of the host through macvlan; becomes a NetworkAttachmentDefinition of the same name.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MacvlanNetworkSpec {
    /// Namespace of the NetworkAttachmentDefinition; `default` when unset.
    pub network_namespace: Option<String>,
    /// Interface of the host; the one of the default route when unset.
    pub master: Option<String>,
    /// How pods on one interface reach each other; bridge when unset.
    pub mode: Option<MacvlanMode>,
    /// MTU of the pod's interface, in bytes; the host interface's when 0 or unset.
    #[schemars(range(min = 0))]
    pub mtu: Option<i64>,
    /// Configuration of the IPAM plugin, as JSON; no addresses are assigned when unset.
    pub ipam: Option<String>,
    /// Further CNI plugins to chain after this one, as JSON objects separated by commas.
    pub meta_plugins: Option<String>,
}

/// How pods on one interface reach each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MacvlanMode {
    /// Directly, on the host.
    #[default]
    Bridge,
    /// Not at all.
    Private,
    /// Through the switch outside, which must send packets back where they came from.
    Vepa,
    /// There is one pod only, which takes the interface over.
    Passthru,
}

/// Whether pods can use the network.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MacvlanNetworkStatus {
    /// How far the network is.
    pub state: NetworkState,
    /// The NetworkAttachmentDefinition, as a path.
    pub macvlan_network_attachment_def: Option<String>,
    /// Why the network is not ready.
    pub reason: Option<String>,
}

impl Kind for MacvlanNetworkSpec {
    type Status = MacvlanNetworkStatus;
    type Scope = Cluster;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = super::VERSION;
    const KIND: &'static str = "MacvlanNetwork";
    const PLURAL: &'static str = "macvlannetworks";
    const COLUMNS: &'static [Column] = super::COLUMNS;
}
