//! NicNodePolicy: driver and device plugins for some nodes, in place of those of the cluster policy.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use k8s_openapi::api::core::v1::Toleration;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::driver::OfedDriver;
use super::image::DevicePlugin;
use super::status::NicPolicyStatus;
use crate::resource::{Cluster, Column, Kind, Resource};

/// Driver and device plugins for some nodes. A node may be selected by one policy only.
pub type NicNodePolicy = Resource<NicNodePolicySpec>;

/// Driver and device plugins for some nodes. A node may be selected by one policy only, and a component may not be in
/// the NicClusterPolicy as well. Names of up to 30 characters.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NicNodePolicySpec {
    /// Labels that a node must have, all of them; every node with a card when empty.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// DOCA-OFED driver.
    pub ofed_driver: Option<OfedDriver>,
    /// Device plugin through which several pods share an RDMA device.
    pub rdma_shared_device_plugin: Option<DevicePlugin>,
    /// Device plugin that gives each pod virtual functions of its own.
    pub sriov_device_plugin: Option<DevicePlugin>,
    /// Tolerations of the pods, besides those that they need anyway.
    pub tolerations: Option<Vec<Toleration>>,
    /// Labels to add to the objects and pods that the policy makes.
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations to add to the objects and pods that the policy makes.
    pub annotations: Option<BTreeMap<String, String>>,
}

impl Kind for NicNodePolicySpec {
    type Status = NicPolicyStatus;
    type Scope = Cluster;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = super::VERSION;
    const KIND: &'static str = "NicNodePolicy";
    const PLURAL: &'static str = "nicnodepolicies";
    const SHORT_NAMES: &'static [&'static str] = &["nicnode", "nnp"];
    const COLUMNS: &'static [Column] = super::COLUMNS;
}
