//! NVIDIA networking: drivers, device plugins and secondary networks for ConnectX and BlueField cards.
//!
//! The one [`NicClusterPolicy`] says what runs in the cluster; a [`NicNodePolicy`] does the same for the driver and the
//! device plugins of some nodes. [`MacvlanNetwork`], [`HostDeviceNetwork`] and [`IPoIBNetwork`] each become a
//! NetworkAttachmentDefinition that pods can ask for.

pub mod components;
pub mod driver;
pub mod image;
pub mod nic_configuration;

mod cluster_policy;
mod host_device;
mod ipoib;
mod macvlan;
mod node_policy;
mod status;

pub use cluster_policy::{NicClusterPolicy, NicClusterPolicySpec};
pub use host_device::{HostDeviceNetwork, HostDeviceNetworkSpec, HostDeviceNetworkStatus};
pub use ipoib::{IPoIBNetwork, IPoIBNetworkSpec, IPoIBNetworkStatus};
pub use macvlan::{MacvlanMode, MacvlanNetwork, MacvlanNetworkSpec, MacvlanNetworkStatus};
pub use node_policy::{NicNodePolicy, NicNodePolicySpec};
pub use status::{AppliedState, NetworkState, NicPolicyStatus, State};

use crate::crd::Entry;
use crate::resource::Column;

/// API group of the network kinds.
pub const GROUP: &str = "mellanox.com";
/// Version of all of them.
pub const VERSION: &str = "v1alpha1";

/// What `kubectl get` prints for all of them.
const COLUMNS: &[Column] = &[Column::STATE, Column::AGE_AS_STRING];

/// Network kinds.
pub const KINDS: &[Entry] = &[
    Entry::of::<NicClusterPolicySpec>(),
    Entry::of::<NicNodePolicySpec>(),
    Entry::of::<MacvlanNetworkSpec>(),
    Entry::of::<HostDeviceNetworkSpec>(),
    Entry::of::<IPoIBNetworkSpec>(),
];
