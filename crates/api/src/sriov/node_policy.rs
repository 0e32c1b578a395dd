//! SriovNetworkNodePolicy: which NICs get how many virtual functions, and how these are used.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::bridge::BridgePolicy;
use crate::resource::{EmptyStatus, Kind, Namespaced, Resource};

/// Splits matching network cards into virtual functions and offers these to pods as a resource.
pub type SriovNetworkNodePolicy = Resource<SriovNetworkNodePolicySpec>;

/// Splits matching network cards of matching nodes into virtual functions and offers these to pods as a resource.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SriovNetworkNodePolicySpec {
    /// Name of the resource that pods ask for, without the operator's prefix; 1 to 63 letters, digits, `-` and `_`.
    pub resource_name: String,
    /// Labels that a node must have, all of them; empty selects every node.
    pub node_selector: BTreeMap<String, String>,
    /// Which policy wins where several select the same card: the lowest number; 99 when unset.
    #[schemars(range(min = 0, max = 99))]
    pub priority: Option<i64>,
    /// MTU of the physical and virtual functions, in bytes; left alone when unset.
    #[schemars(range(min = 1))]
    pub mtu: Option<i64>,
    /// Virtual functions per card.
    #[schemars(range(min = 0))]
    pub num_vfs: i64,
    /// Which cards; a card must fit every field that is set, and at least one must be.
    pub nic_selector: NicSelector,
    /// Driver that the virtual functions are bound to.
    #[schemars(extend("default" = "netdevice"))]
    pub device_type: Option<DeviceType>,
    /// Give the virtual functions RDMA; on by itself for InfiniBand, impossible with `vfio-pci`; off when unset.
    pub is_rdma: Option<bool>,
    /// Mount `/dev/vhost-net` (and `/dev/net/tun`) into pods that get a virtual function; off when unset.
    pub need_vhost_net: Option<bool>,
    /// Link type to set on the card; left alone when unset. A change of it may need a reboot.
    pub link_type: Option<LinkType>,
    /// Mode of the card's embedded switch; legacy when unset.
    #[serde(rename = "eSwitchMode")]
    pub e_switch_mode: Option<ESwitchMode>,
    /// Make a vDPA device of this type per virtual function; needs `switchdev` and `netdevice`; none when unset.
    pub vdpa_type: Option<VdpaType>,
    /// Do not tell the kubelet the NUMA node of the devices; told when unset.
    pub exclude_topology: Option<bool>,
    /// The virtual functions are made by someone else: only check that there are enough, and use them; off when unset.
    pub externally_managed: Option<bool>,
    /// Software bridge to attach each card to; needs `switchdev` and the feature gate `manageSoftwareBridges`.
    pub bridge: Option<BridgePolicy>,
}

/// Which network cards. A card must fit every field that is set.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NicSelector {
    /// PCI vendor, four hex digits without `0x`, e.g. `15b3`.
    pub vendor: Option<String>,
    /// PCI device, four hex digits without `0x`, e.g. `1017`.
    #[serde(rename = "deviceID")]
    pub device_id: Option<String>,
    /// PCI addresses of physical functions; one must be the card's.
    pub root_devices: Option<Vec<String>>,
    /// Interface names; one must be the card's. `name#2-5` takes only virtual functions 2 to 5.
    pub pf_names: Option<Vec<String>>,
    /// Cloud network of the card, as `openstack/NetworkID:<id>` or `aws/NetworkID:<id>`; only for virtual machines.
    pub net_filter: Option<String>,
}

/// Driver of a virtual function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeviceType {
    /// The vendor's kernel driver: a network interface in the pod.
    #[default]
    #[serde(rename = "netdevice")]
    Netdevice,
    /// Passed through to user space or a virtual machine; needs an IOMMU.
    #[serde(rename = "vfio-pci")]
    VfioPci,
}

/// Link type of a port; upper and lower case mean the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LinkType {
    /// Ethernet.
    #[default]
    #[serde(rename = "eth")]
    EthLower,
    /// Ethernet.
    #[serde(rename = "ETH")]
    Eth,
    /// InfiniBand.
    #[serde(rename = "ib")]
    IbLower,
    /// InfiniBand.
    #[serde(rename = "IB")]
    Ib,
}

impl LinkType {
    /// Whether this is InfiniBand.
    pub fn is_infiniband(self) -> bool {
        matches!(self, Self::Ib | Self::IbLower)
    }
}

/// Mode of a card's embedded switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ESwitchMode {
    /// The card forwards by MAC address and VLAN on its own.
    #[default]
    Legacy,
    /// Every virtual function has a representor on the host, so that software can offload flows to the card.
    Switchdev,
}

/// Kind of vDPA device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum VdpaType {
    /// A virtio network interface of the kernel.
    #[default]
    Virtio,
    /// A vhost device for user space.
    Vhost,
}

impl Kind for SriovNetworkNodePolicySpec {
    type Status = EmptyStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = super::VERSION;
    const KIND: &'static str = "SriovNetworkNodePolicy";
    const PLURAL: &'static str = "sriovnetworknodepolicies";
}
