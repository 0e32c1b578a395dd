//! ClusterPolicy settings that concern the operator and the cluster rather than one component.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::gpu::component::Image;
use crate::gpu::dcgm::ServiceMonitor;

/// Settings of the operator itself.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Operator {
    /// Deprecated and without effect: the container runtime is detected.
    pub default_runtime: Option<String>,
    /// Name and handler of the RuntimeClass that GPU operands use.
    #[schemars(extend("default" = "nvidia"))]
    pub runtime_class: Option<String>,
    /// Deprecated and without effect.
    pub init_container: Option<Image>,
    /// Accepted for compatibility, without effect: the chart labels the operator.
    pub labels: Option<BTreeMap<String, String>>,
    /// Accepted for compatibility, without effect: the chart annotates the operator.
    pub annotations: Option<BTreeMap<String, String>>,
    /// How Prometheus scrapes the operator.
    pub metrics: Option<OperatorMetrics>,
    /// Whether drivers are built with OpenShift's driver toolkit; on when unset. OpenShift only.
    #[serde(rename = "use_ocp_driver_toolkit")]
    pub use_ocp_driver_toolkit: Option<bool>,
}

/// How Prometheus scrapes the operator.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorMetrics {
    /// Changes to the operator's ServiceMonitor, which exists wherever the Prometheus operator does.
    pub service_monitor: Option<ServiceMonitor>,
}

/// Container Device Interface: how GPUs get into containers.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cdi {
    /// Whether CDI is used; on when unset.
    #[schemars(extend("default" = true))]
    pub enabled: Option<bool>,
    /// Deprecated and without effect: CDI is the default wherever it is enabled.
    #[schemars(extend("default" = false))]
    pub default: Option<bool>,
    /// Whether an NRI plugin injects GPUs, so that no RuntimeClass is needed; needs CDI and the toolkit.
    #[schemars(extend("default" = false))]
    pub nri_plugin_enabled: Option<bool>,
}

/// Directories on the nodes.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostPaths {
    /// Root of the host's file system, into which components chroot; `/` when unset.
    #[serde(rename = "rootFS")]
    pub root_fs: Option<String>,
    /// Where driver containers show their root to other pods; `/run/nvidia/driver` when unset.
    pub driver_install_dir: Option<String>,
    /// The kubelet's root directory, where the metrics exporter finds out which pod uses which GPU.
    #[schemars(extend("default" = "/var/lib/kubelet"))]
    pub kubelet_root_dir: Option<String>,
}
