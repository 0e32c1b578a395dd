//! Open vSwitch bridges that the node daemon creates and attaches physical functions to.
//!
//! A policy describes one bridge per matching card ([`BridgePolicy`]); a node state lists the resulting bridges
//! ([`Bridges`]). The leaves mirror columns of the tables Bridge and Interface in the Open vSwitch database.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// The bridge that each matching card is attached to.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BridgePolicy {
    /// Make an Open vSwitch bridge per card, named `br-` and the card's PCI address.
    pub ovs: Option<OvsPolicy>,
}

/// Settings of an Open vSwitch bridge and of its uplink.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OvsPolicy {
    /// The bridge itself.
    pub bridge: Option<OvsBridge>,
    /// The physical function as a port of the bridge.
    pub uplink: Option<OvsUplinkPolicy>,
}

/// Settings of an uplink.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OvsUplinkPolicy {
    /// The uplink's row in the Interface table.
    pub interface: Option<OvsInterface>,
}

/// All bridges that the operator manages on a node.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bridges {
    /// Open vSwitch bridges, ordered by name.
    pub ovs: Option<Vec<NodeOvsBridge>>,
}

/// An Open vSwitch bridge on a node.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeOvsBridge {
    /// Name of the bridge.
    pub name: String,
    /// Settings of the bridge.
    pub bridge: Option<OvsBridge>,
    /// Physical functions attached to the bridge; exactly one.
    pub uplinks: Option<Vec<NodeOvsUplink>>,
}

/// A physical function attached to a bridge.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeOvsUplink {
    /// PCI address of the physical function.
    pub pci_address: String,
    /// Interface name of the physical function.
    pub name: Option<String>,
    /// Its row in the Interface table.
    pub interface: Option<OvsInterface>,
}

/// Columns of a row in the Bridge table.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OvsBridge {
    /// Column `datapath_type`, e.g. `netdev`; the kernel datapath when unset.
    pub datapath_type: Option<String>,
    /// Column `external_ids`: keys and values for software outside of Open vSwitch.
    #[serde(rename = "externalIDs")]
    pub external_ids: Option<BTreeMap<String, String>>,
    /// Column `other_config`: further options of the bridge.
    pub other_config: Option<BTreeMap<String, String>>,
    /// Column `fail_mode`: what the bridge does without a controller.
    pub fail_mode: Option<FailMode>,
}

/// What a bridge does while its controller cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FailMode {
    /// Set up no flows of its own.
    Secure,
    /// Act as a learning switch.
    #[default]
    Standalone,
}

/// Columns of a row in the Interface table.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OvsInterface {
    /// Column `type`, e.g. `dpdk`; a system interface when unset.
    #[serde(rename = "type")]
    pub type_: Option<String>,
    /// Column `options`: settings of that type of interface.
    pub options: Option<BTreeMap<String, String>>,
    /// Column `external_ids`: keys and values for software outside of Open vSwitch.
    #[serde(rename = "externalIDs")]
    pub external_ids: Option<BTreeMap<String, String>>,
    /// Column `other_config`: further options of the interface.
    pub other_config: Option<BTreeMap<String, String>>,
    /// Column `mtu_request`, in bytes; the policy's `mtu` takes its place when that is set.
    pub mtu_request: Option<i64>,
}
