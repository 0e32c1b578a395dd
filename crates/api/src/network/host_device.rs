//! HostDeviceNetwork: a secondary network whose pods each get a device of the host.

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::status::{AppliedState, NetworkState};
use crate::resource::{Cluster, Column, Kind, Resource};

/// Moves devices of the host into pods.
pub type HostDeviceNetwork = Resource<HostDeviceNetworkSpec>;

/// Moves devices of the host, handed out by a device plugin, into pods; becomes a NetworkAttachmentDefinition of the
/// same name.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostDeviceNetworkSpec {
    /// Namespace of the NetworkAttachmentDefinition; `default` when unset.
    pub network_namespace: Option<String>,
    /// Resource that the devices are taken from; `nvidia.com/` is put in front.
    pub resource_name: Option<String>,
    /// Configuration of the IPAM plugin, as JSON; no addresses are assigned when unset.
    pub ipam: Option<String>,
    /// Further CNI plugins to chain after this one, as JSON objects separated by commas.
    pub meta_plugins: Option<String>,
}

/// Whether pods can use the network.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostDeviceNetworkStatus {
    /// How far the network is.
    pub state: NetworkState,
    /// The NetworkAttachmentDefinition, as a path.
    pub host_device_network_attachment_def: Option<String>,
    /// Why the network is not ready.
    pub reason: Option<String>,
    /// State of the one component, `state-host-device-network`.
    pub applied_states: Option<Vec<AppliedState>>,
}

impl Kind for HostDeviceNetworkSpec {
    type Status = HostDeviceNetworkStatus;
    type Scope = Cluster;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = super::VERSION;
    const KIND: &'static str = "HostDeviceNetwork";
    const PLURAL: &'static str = "hostdevicenetworks";
    const COLUMNS: &'static [Column] = super::COLUMNS;
}
