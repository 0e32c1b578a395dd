//! SriovNetworkPoolConfig: groups of nodes, and how many of a group may be drained at a time.

use crate::json_schema::JsonSchema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::shared::RdmaMode;
use crate::resource::{EmptyStatus, Kind, Namespaced, Resource};

/// A group of nodes that are drained by rules of their own. A node may be in one pool only.
pub type SriovNetworkPoolConfig = Resource<SriovNetworkPoolConfigSpec>;

/// A group of nodes that are drained by rules of their own. A node may be in one pool only; nodes in none are drained
/// one at a time.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SriovNetworkPoolConfigSpec {
    /// Nodes of the pool; all when unset.
    pub node_selector: Option<LabelSelector>,
    /// Nodes that may be drained at a time: a number, or a share such as `30%`, rounded down; no limit when unset.
    pub max_unavailable: Option<IntOrString>,
    /// How RDMA devices relate to network namespaces on these nodes; left to the node when unset.
    pub rdma_mode: Option<RdmaMode>,
    /// Switch on hardware offload of Open vSwitch, on OpenShift. Excludes `nodeSelector` and `maxUnavailable`.
    pub ovs_hardware_offload_config: Option<OvsHardwareOffload>,
}

/// Where Open vSwitch offloads to hardware.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OvsHardwareOffload {
    /// MachineConfigPool whose nodes get it; `master` is ignored.
    pub name: Option<String>,
}

impl Kind for SriovNetworkPoolConfigSpec {
    type Status = EmptyStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = super::VERSION;
    const KIND: &'static str = "SriovNetworkPoolConfig";
    const PLURAL: &'static str = "sriovnetworkpoolconfigs";
}
