//! NicClusterPolicy: which networking components run in the cluster.

use crate::json_schema::JsonSchema;
use k8s_openapi::api::core::v1::{NodeAffinity, Toleration};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::components::{DocaTelemetryService, IbKubernetes, NvIpam, SecondaryNetwork, SpectrumXOperator};
use super::driver::OfedDriver;
use super::image::{DevicePlugin, GlobalImage, ImageSpec};
use super::nic_configuration::NicConfigurationOperator;
use super::status::NicPolicyStatus;
use crate::resource::{Cluster, Column, Kind, Resource};

/// Networking components of the cluster. Only the object `nic-cluster-policy` is used.
pub type NicClusterPolicy = Resource<NicClusterPolicySpec>;

/// Networking components of the cluster. A component runs when its section is there and is removed with it. Only the
/// object `nic-cluster-policy` is used.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NicClusterPolicySpec {
    /// Where images come from unless a component says otherwise.
    pub global: Option<GlobalImage>,
    /// DOCA-OFED driver.
    pub ofed_driver: Option<OfedDriver>,
    /// Device plugin through which several pods share an RDMA device.
    pub rdma_shared_device_plugin: Option<DevicePlugin>,
    /// Device plugin that gives each pod virtual functions of its own.
    pub sriov_device_plugin: Option<DevicePlugin>,
    /// InfiniBand partitions for pods.
    pub ib_kubernetes: Option<IbKubernetes>,
    /// What pods need to have more than one network.
    pub secondary_network: Option<SecondaryNetwork>,
    /// Address management for secondary networks.
    pub nv_ipam: Option<NvIpam>,
    /// Labels nodes by what their cards can do.
    pub nic_feature_discovery: Option<ImageSpec>,
    /// Telemetry of cards.
    pub doca_telemetry_service: Option<DocaTelemetryService>,
    /// Firmware and settings of cards.
    pub nic_configuration_operator: Option<NicConfigurationOperator>,
    /// Spectrum-X fabrics.
    pub spectrum_x_operator: Option<SpectrumXOperator>,
    /// Node affinity of all pods that run per node; anywhere when unset.
    pub node_affinity: Option<NodeAffinity>,
    /// Tolerations of all pods that run per node, besides those that they need anyway.
    pub tolerations: Option<Vec<Toleration>>,
    /// Node affinity of the pods that run once per cluster, added to their preference for control plane nodes.
    pub deployment_node_affinity: Option<NodeAffinity>,
    /// Tolerations of the pods that run once per cluster, besides those that they need anyway.
    pub deployment_tolerations: Option<Vec<Toleration>>,
}

impl Kind for NicClusterPolicySpec {
    type Status = NicPolicyStatus;
    type Scope = Cluster;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = super::VERSION;
    const KIND: &'static str = "NicClusterPolicy";
    const PLURAL: &'static str = "nicclusterpolicies";
    const SHORT_NAMES: &'static [&'static str] = &["ncp"];
    const COLUMNS: &'static [Column] = super::COLUMNS;
}
