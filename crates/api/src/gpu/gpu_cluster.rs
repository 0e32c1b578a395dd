//! GPUCluster: everything that makes the GPUs of a cluster usable through dynamic resource allocation (DRA).

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
#[cfg(feature = "schemas")]
use schemars::{Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::component::{EnvVar, Image, Resources};
use super::daemonsets::Daemonsets;
use super::dcgm::{Dcgm, DcgmExporter};
use crate::resource::{Cluster, Column, Handling, Kind, Resource};

/// The DRA stack of a cluster.
pub type GpuCluster = Resource<GpuClusterSpec>;

/// Runs the DRA driver and monitoring for the GPUs of a cluster; instead of a ClusterPolicy. Its name is `gpu-cluster`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GpuClusterSpec {
    /// DRA driver, which offers GPUs and compute domains to the scheduler.
    pub dra_driver: DraDriver,
    /// DCGM host engine as a pod of its own; not deployed unless switched on.
    pub dcgm: Option<Dcgm>,
    /// Exporter of GPU metrics; deployed if this section is present and not switched off.
    pub dcgm_exporter: Option<DcgmExporter>,
    /// Directories on the nodes.
    pub host_paths: Option<HostPaths>,
    /// Settings of all DaemonSets; labels, annotations, tolerations and priority apply.
    pub daemonsets: Option<Daemonsets>,
}

impl Kind for GpuClusterSpec {
    type Status = GpuClusterStatus;
    type Scope = Cluster;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = "v1alpha1";
    const KIND: &'static str = "GPUCluster";
    const PLURAL: &'static str = "gpuclusters";
    const HANDLING: Handling = Handling::Reconciled;
    const SHORT_NAMES: &'static [&'static str] = &["gc"];
    const COLUMNS: &'static [Column] = &[Column::STATE, Column::AGE];
    const RULES: &'static [(&'static str, &'static str)] =
        &[("self.metadata.name == 'gpu-cluster'", "metadata.name: a cluster has one GPUCluster; name it gpu-cluster")];
}

/// DRA driver.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DraDriver {
    /// Image of all of its containers.
    #[serde(flatten)]
    #[schemars(with = "PlainImage")]
    pub image: Image,
    /// Features of the driver to switch on or off, by name.
    pub feature_gates: Option<BTreeMap<String, bool>>,
    /// GPUs, which are always offered.
    pub gpus: Option<Gpus>,
    /// Compute domains: GPUs of several nodes that share memory over NVLink. Not offered if this section is absent.
    pub compute_domains: Option<ComputeDomains>,
}

/// Schema of an [`Image`] whose name may not be a complete reference.
struct PlainImage;

#[cfg(feature = "schemas")]
impl JsonSchema for PlainImage {
    fn schema_name() -> Cow<'static, str> {
        "PlainImage".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = Image::json_schema(generator);
        if let Some(pattern) = schema.pointer_mut("/properties/image/pattern") {
            *pattern = r"^[a-zA-Z0-9\-]+$".into();
        }
        schema
    }
}

/// Offering GPUs.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Gpus {
    /// The container on each node; its health port is 51516 when unset.
    pub kubelet_plugin: Option<KubeletPlugin>,
}

/// Offering compute domains.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComputeDomains {
    /// Whether they are offered.
    #[schemars(extend("default" = true))]
    pub enabled: Option<bool>,
    /// The controller that runs a daemon on each node of a domain.
    pub controller: Option<Controller>,
    /// The container on each node; its health port is 51515 when unset.
    pub kubelet_plugin: Option<KubeletPlugin>,
}

/// The container on each node that serves the kubelet.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeletPlugin {
    /// Further environment of the container.
    pub env: Option<Vec<EnvVar>>,
    /// CPU, memory and other resources of the container.
    pub resources: Option<Resources>,
    /// gRPC health service that its probes ask.
    pub healthcheck: Option<Healthcheck>,
}

/// The controller of compute domains.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Controller {
    /// Further environment of the container.
    pub env: Option<Vec<EnvVar>>,
    /// CPU, memory and other resources of the container.
    pub resources: Option<Resources>,
}

/// gRPC health service.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Healthcheck {
    /// Whether the container is probed at all.
    #[schemars(extend("default" = true))]
    pub enabled: Option<bool>,
    /// Port of the service on the node.
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
}

/// Directories on the nodes.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostPaths {
    /// Where driver containers show their root to other pods; `/run/nvidia/driver` when unset.
    pub driver_install_dir: Option<String>,
    /// The kubelet's root directory.
    #[schemars(extend("default" = "/var/lib/kubelet"))]
    pub kubelet_root_dir: Option<String>,
}

/// How far the cluster is.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GpuClusterStatus {
    /// Whether all components are ready.
    pub state: GpuClusterState,
    /// Namespace of the operator and its components.
    pub namespace: Option<String>,
    /// The same in more words: Ready and Error.
    pub conditions: Option<Vec<Condition>>,
}

/// Summary of a GPUCluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum GpuClusterState {
    /// All components are ready.
    Ready,
    /// Some component is not ready, or something is wrong; see the conditions.
    #[default]
    NotReady,
    /// Reserved.
    Disabled,
}
