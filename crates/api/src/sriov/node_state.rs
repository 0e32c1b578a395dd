//! SriovNetworkNodeState: desired and observed state of the NICs of one node.
//!
//! The operator writes `spec` from the policies; the daemon on the node carries it out and writes `status`.

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::bridge::Bridges;
use super::shared::RdmaMode;
use crate::resource::{Column, Kind, Namespaced, Resource};

/// Network cards of the node with the same name. Written by the operator and its daemon, not by users.
pub type SriovNetworkNodeState = Resource<SriovNetworkNodeStateSpec>;

/// What the network cards of one node shall look like. Written by the operator, not by users.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SriovNetworkNodeStateSpec {
    /// Cards that policies select; others are returned to how they were found.
    pub interfaces: Option<Vec<Interface>>,
    /// Software bridges that shall exist.
    pub bridges: Option<Bridges>,
    /// Settings of the whole node.
    pub system: Option<System>,
}

/// A card as it shall be.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Interface {
    /// PCI address of the physical function.
    pub pci_address: String,
    /// Number of virtual functions.
    pub num_vfs: Option<i64>,
    /// MTU in bytes.
    pub mtu: Option<i64>,
    /// Interface name of the physical function.
    pub name: Option<String>,
    /// Link type, `ETH` or `IB`; left alone when unset.
    pub link_type: Option<String>,
    /// Mode of the embedded switch, `legacy` or `switchdev`; legacy when unset.
    #[serde(rename = "eSwitchMode")]
    pub e_switch_mode: Option<String>,
    /// What becomes of the virtual functions, by ranges that do not overlap.
    pub vf_groups: Option<Vec<VfGroup>>,
    /// Someone else makes the virtual functions.
    pub externally_managed: Option<bool>,
}

/// A range of virtual functions that one policy is responsible for.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VfGroup {
    /// Resource under which pods ask for them.
    pub resource_name: Option<String>,
    /// Driver to bind: `netdevice` for the vendor's own, or `vfio-pci`.
    pub device_type: Option<String>,
    /// First and last index, as `0-7`.
    pub vf_range: Option<String>,
    /// Policy that asked for the group.
    pub policy_name: Option<String>,
    /// MTU in bytes.
    pub mtu: Option<i64>,
    /// Whether they have RDMA.
    pub is_rdma: Option<bool>,
    /// Type of vDPA device to make for each, `virtio` or `vhost`; none when unset.
    pub vdpa_type: Option<String>,
}

/// Settings of a whole node.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct System {
    /// How RDMA devices relate to network namespaces; left to the node when unset.
    pub rdma_mode: Option<RdmaMode>,
}

/// What the daemon found on the node, and how far it got.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SriovNetworkNodeStateStatus {
    /// Cards that can have virtual functions.
    pub interfaces: Option<Vec<InterfaceStatus>>,
    /// Managed software bridges.
    pub bridges: Option<Bridges>,
    /// Settings of the whole node.
    pub system: Option<System>,
    /// Whether `spec` is in effect: `InProgress`, `Succeeded` or `Failed`.
    pub sync_status: Option<String>,
    /// What went wrong last; empty after success.
    pub last_sync_error: Option<String>,
}

/// A card as it is.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InterfaceStatus {
    /// Interface name of the physical function.
    pub name: Option<String>,
    /// Other names of the interface.
    pub alt_names: Option<Vec<String>>,
    /// MAC address.
    pub mac: Option<String>,
    /// Kernel driver.
    pub driver: Option<String>,
    /// PCI address of the physical function.
    pub pci_address: String,
    /// PCI vendor, four hex digits.
    pub vendor: Option<String>,
    /// PCI device, four hex digits.
    #[serde(rename = "deviceID")]
    pub device_id: Option<String>,
    /// Cloud network that the interface is on, where the platform tells.
    pub net_filter: Option<String>,
    /// MTU in bytes.
    pub mtu: Option<i64>,
    /// Virtual functions that exist.
    pub num_vfs: Option<i64>,
    /// Virtual functions that the card could have.
    #[serde(rename = "totalvfs")]
    pub total_vfs: Option<i64>,
    /// Speed, as `25000 Mb/s`.
    pub link_speed: Option<String>,
    /// Link type, `ETH` or `IB`; empty when unknown.
    pub link_type: Option<String>,
    /// Administrative state, `up` or `down`.
    pub link_admin_state: Option<String>,
    /// Mode of the embedded switch.
    #[serde(rename = "eSwitchMode")]
    pub e_switch_mode: Option<String>,
    /// Whether someone else makes the virtual functions.
    pub externally_managed: Option<bool>,
    /// The virtual functions.
    #[serde(rename = "Vfs")]
    pub vfs: Option<Vec<VirtualFunction>>,
}

/// A virtual function as it is.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualFunction {
    /// Interface name; unset while a pod or a user-space driver has it.
    pub name: Option<String>,
    /// MAC address.
    pub mac: Option<String>,
    /// Kept for compatibility; never filled.
    pub assigned: Option<String>,
    /// Kernel driver.
    pub driver: Option<String>,
    /// PCI address.
    pub pci_address: String,
    /// PCI vendor, four hex digits.
    pub vendor: Option<String>,
    /// PCI device, four hex digits.
    #[serde(rename = "deviceID")]
    pub device_id: Option<String>,
    /// Kept for compatibility; never filled.
    #[serde(rename = "Vlan")]
    pub vlan: Option<i64>,
    /// MTU in bytes.
    pub mtu: Option<i64>,
    /// Index on its card, from 0.
    #[serde(rename = "vfID")]
    pub vf_id: i64,
    /// Type of the vDPA device on it.
    pub vdpa_type: Option<String>,
    /// Interface on the host that stands for it in switchdev mode.
    pub representor_name: Option<String>,
    /// InfiniBand GUID.
    pub guid: Option<String>,
}

impl Kind for SriovNetworkNodeStateSpec {
    type Status = SriovNetworkNodeStateStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = super::VERSION;
    const KIND: &'static str = "SriovNetworkNodeState";
    const PLURAL: &'static str = "sriovnetworknodestates";
    const COLUMNS: &'static [Column] = &[
        Column::new("Sync Status", "string", ".status.syncStatus"),
        Column::new("Desired Sync State", "string", r".metadata.annotations.sriovnetwork\.openshift\.io/desired-state"),
        Column::new("Current Sync State", "string", r".metadata.annotations.sriovnetwork\.openshift\.io/current-state"),
        Column::AGE,
    ];
}
