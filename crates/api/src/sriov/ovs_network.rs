//! OVSNetwork: an Open vSwitch network on virtual functions in switchdev mode, for pods to attach to.

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::shared::{NetworkStatus, READY_COLUMNS};
use crate::resource::{Column, Kind, Namespaced, Resource};

/// Lets pods attach to an Open vSwitch bridge through virtual functions.
pub type OVSNetwork = Resource<OVSNetworkSpec>;

/// Lets pods attach to an Open vSwitch bridge through virtual functions; becomes a NetworkAttachmentDefinition of the
/// same name.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OVSNetworkSpec {
    /// Namespace of the NetworkAttachmentDefinition; this object's own when unset. Only allowed in the operator's
    /// namespace.
    pub network_namespace: Option<String>,
    /// Resource of a SriovNetworkNodePolicy that the virtual functions are taken from.
    pub resource_name: String,
    /// Capabilities that pods may use at run time, as JSON, e.g. `{"mac": true}`.
    pub capabilities: Option<String>,
    /// Configuration of the IPAM plugin, as JSON; no addresses are assigned when unset.
    pub ipam: Option<String>,
    /// Further CNI plugins to chain after this one, as JSON objects separated by commas.
    pub meta_plugins: Option<String>,
    /// Bridge to attach to; when unset, the one that the virtual function's card is an uplink of.
    pub bridge: Option<String>,
    /// VLAN that the port's untagged traffic is put in; 0 (as when unset) for none.
    #[schemars(range(min = 0, max = 4095))]
    pub vlan: Option<i64>,
    /// MTU of the pod's interface, in bytes; left alone when unset.
    pub mtu: Option<i64>,
    /// VLANs that may pass tagged; none in particular when unset.
    pub trunk: Option<Vec<Trunk>>,
    /// Type of the port in the Open vSwitch database, e.g. `dpdk`; a system interface when unset.
    pub interface_type: Option<String>,
}

/// One VLAN, by `id`, or a range, by `minID` and `maxID`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Trunk {
    /// First VLAN of a range.
    #[serde(rename = "minID")]
    #[schemars(range(min = 0, max = 4095))]
    pub min_id: Option<i64>,
    /// Last VLAN of a range.
    #[serde(rename = "maxID")]
    #[schemars(range(min = 0, max = 4095))]
    pub max_id: Option<i64>,
    /// A single VLAN.
    #[schemars(range(min = 0, max = 4095))]
    pub id: Option<i64>,
}

impl Kind for OVSNetworkSpec {
    type Status = NetworkStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = super::VERSION;
    const KIND: &'static str = "OVSNetwork";
    const PLURAL: &'static str = "ovsnetworks";
    const COLUMNS: &'static [Column] = READY_COLUMNS;
}
