//! SriovNetwork: an Ethernet network on virtual functions, for pods to attach to.

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::shared::{LinkState, NetworkStatus, READY_COLUMNS};
use crate::resource::{Column, Kind, Namespaced, Resource};

/// Lets pods attach to Ethernet virtual functions.
pub type SriovNetwork = Resource<SriovNetworkSpec>;

/// Lets pods attach to Ethernet virtual functions; becomes a NetworkAttachmentDefinition of the same name.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SriovNetworkSpec {
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
    /// VLAN that the virtual function is put in; 0 (as when unset) for none.
    #[schemars(range(min = 0, max = 4094))]
    pub vlan: Option<i64>,
    /// VLAN priority; 0 when unset. Others need a `vlan`.
    #[serde(rename = "vlanQoS")]
    #[schemars(range(min = 0, max = 7))]
    pub vlan_qos: Option<i64>,
    /// VLAN tagging; 802.1q when unset. 802.1ad needs a `vlan`.
    pub vlan_proto: Option<VlanProto>,
    /// Drop packets with a foreign source MAC address; left alone when unset.
    pub spoof_chk: Option<OnOff>,
    /// Let the pod change settings of the virtual function, such as promiscuous mode; left alone when unset.
    pub trust: Option<OnOff>,
    /// Link state that the pod sees; left alone when unset.
    pub link_state: Option<LinkState>,
    /// Guaranteed transmit rate in Mbit/s; 0 for none, left alone when unset.
    #[schemars(range(min = 0))]
    pub min_tx_rate: Option<i64>,
    /// Highest transmit rate in Mbit/s; 0 for no limit, left alone when unset.
    #[schemars(range(min = 0))]
    pub max_tx_rate: Option<i64>,
    /// How much the CNI plugin logs.
    #[schemars(extend("default" = "info"))]
    pub log_level: Option<CniLogLevel>,
    /// File on the node that the CNI plugin logs to; standard error when unset.
    pub log_file: Option<String>,
}

/// VLAN tagging; upper and lower case mean the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VlanProto {
    /// Plain VLAN.
    #[default]
    #[serde(rename = "802.1q")]
    Dot1qLower,
    /// Plain VLAN.
    #[serde(rename = "802.1Q")]
    Dot1q,
    /// Outer tag of stacked VLANs.
    #[serde(rename = "802.1ad")]
    Dot1adLower,
    /// Outer tag of stacked VLANs.
    #[serde(rename = "802.1AD")]
    Dot1ad,
}

/// A switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnOff {
    /// On.
    On,
    /// Off.
    #[default]
    Off,
}

/// How much a CNI plugin logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CniLogLevel {
    /// Only what makes it crash.
    Panic,
    /// Errors.
    Error,
    /// Errors and warnings.
    Warning,
    /// Also normal operation.
    #[default]
    Info,
    /// Everything.
    Debug,
    /// Left to the plugin.
    #[serde(rename = "")]
    Unset,
}

impl Kind for SriovNetworkSpec {
    type Status = NetworkStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = super::VERSION;
    const KIND: &'static str = "SriovNetwork";
    const PLURAL: &'static str = "sriovnetworks";
    const COLUMNS: &'static [Column] = READY_COLUMNS;
}
