//! SR-IOV: virtual functions on network cards, and the networks that hand them to pods.
//!
//! A [`SriovNetworkNodePolicy`] says which cards get how many virtual functions and under which resource name. The
//! operator works out the result per node, a [`SriovNetworkNodeState`], which the daemon on the node carries out and
//! reports on. [`SriovNetwork`], [`SriovIBNetwork`] and [`OVSNetwork`] let pods attach to such a resource.
//! [`SriovOperatorConfig`] and [`SriovNetworkPoolConfig`] steer the operator itself and how it drains nodes.

pub mod bridge;

mod ib_network;
mod network;
mod node_policy;
mod node_state;
mod operator_config;
mod ovs_network;
mod pool_config;
mod shared;

pub use ib_network::{SriovIBNetwork, SriovIBNetworkSpec};
pub use network::{CniLogLevel, OnOff, SriovNetwork, SriovNetworkSpec, VlanProto};
pub use node_policy::{
    DeviceType, ESwitchMode, LinkType, NicSelector, SriovNetworkNodePolicy, SriovNetworkNodePolicySpec, VdpaType,
};
pub use node_state::{
    Interface, InterfaceStatus, SriovNetworkNodeState, SriovNetworkNodeStateSpec, SriovNetworkNodeStateStatus, System,
    VfGroup, VirtualFunction,
};
pub use operator_config::{
    ConfigurationMode, Plugin, SriovOperatorConfig, SriovOperatorConfigSpec, SriovOperatorConfigStatus,
};
pub use ovs_network::{OVSNetwork, OVSNetworkSpec, Trunk};
pub use pool_config::{OvsHardwareOffload, SriovNetworkPoolConfig, SriovNetworkPoolConfigSpec};
pub use shared::{LinkState, NetworkStatus, RdmaMode};

use crate::crd::Entry;

/// API group of the SR-IOV kinds.
pub const GROUP: &str = "sriovnetwork.openshift.io";
/// Version of all of them.
pub const VERSION: &str = "v1";

/// Kinds of SR-IOV.
pub const KINDS: &[Entry] = &[
    Entry::of::<SriovNetworkNodePolicySpec>(),
    Entry::of::<SriovNetworkNodeStateSpec>(),
    Entry::of::<SriovNetworkSpec>(),
    Entry::of::<SriovIBNetworkSpec>(),
    Entry::of::<OVSNetworkSpec>(),
    Entry::of::<SriovOperatorConfigSpec>(),
    Entry::of::<SriovNetworkPoolConfigSpec>(),
];
