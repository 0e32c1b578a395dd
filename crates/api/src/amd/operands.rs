//! Device plugin, DRA driver, test runner and device config manager.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use k8s_openapi::api::core::v1::{LocalObjectReference, Toleration};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::operand::{HOST_PATH, IMAGE, Operand, UpgradePolicy};
use crate::common::PullPolicy;

/// Device plugin, which offers GPUs to pods, and node labeller, which describes them in node labels.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DevicePlugin {
    /// Whether the device plugin runs.
    #[schemars(extend("default" = true))]
    pub enable_device_plugin: Option<bool>,
    /// Image of the device plugin; `rocm/k8s-device-plugin:latest` when unset.
    #[schemars(regex(pattern = IMAGE))]
    pub device_plugin_image: Option<String>,
    /// When the kubelet pulls the device plugin's image.
    pub device_plugin_image_pull_policy: Option<PullPolicy>,
    /// Taints that the device plugin puts up with.
    pub device_plugin_tolerations: Option<Vec<Toleration>>,
    /// Flags of the device plugin: `resource_naming_strategy` (`single`, or `mixed` for one resource per partition
    /// type) and `driver_type` (`container`, `vf-passthrough`, `pf-passthrough`).
    pub device_plugin_arguments: Option<BTreeMap<String, String>>,
    /// Whether the node labeller runs; its labels are removed when it does not.
    #[schemars(extend("default" = true))]
    pub enable_node_labeller: Option<bool>,
    /// Image of the node labeller; `rocm/k8s-device-plugin:labeller-latest` when unset.
    #[schemars(regex(pattern = IMAGE))]
    pub node_labeller_image: Option<String>,
    /// When the kubelet pulls the node labeller's image.
    pub node_labeller_image_pull_policy: Option<PullPolicy>,
    /// Taints that the node labeller puts up with.
    pub node_labeller_tolerations: Option<Vec<Toleration>>,
    /// Further labels to write, by flag name without dash, such as `compute-memory-partition`.
    pub node_labeller_arguments: Option<Vec<String>>,
    /// Secret in the same namespace with the registry's credentials, for both images.
    pub image_registry_secret: Option<LocalObjectReference>,
    /// How pods are replaced when one of the two changes.
    pub upgrade_policy: Option<UpgradePolicy>,
    /// Directory on the host where the kubelet looks for device plugins.
    #[schemars(regex(pattern = HOST_PATH), extend("default" = "/var/lib/kubelet/device-plugins"))]
    pub kubelet_socket_path: Option<String>,
    /// Whether the pods share the host's network.
    pub host_network: Option<bool>,
}

/// DRA driver, which offers GPUs through resource claims.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DraDriver {
    /// Whether the DRA driver runs; the device plugin must be off then.
    #[schemars(extend("default" = false))]
    pub enable: Option<bool>,
    /// Image (`rocm/k8s-gpu-dra-driver:latest` when unset), nodes, rollout.
    #[serde(flatten)]
    pub operand: Operand,
    /// Taints that the pods put up with.
    pub tolerations: Option<Vec<Toleration>>,
    /// Flags of the driver, by name without dash.
    pub cmd_line_arguments: Option<BTreeMap<String, String>>,
}

/// Test runner, which checks GPUs that turn unhealthy.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TestRunner {
    /// Whether the test runner runs; off when unset, and without the metrics exporter.
    pub enable: Option<bool>,
    /// Image (`docker.io/rocm/test-runner:v0.0.1` when unset), nodes, rollout.
    #[serde(flatten)]
    pub operand: Operand,
    /// Taints that the pods put up with.
    pub tolerations: Option<Vec<Toleration>>,
    /// ConfigMap that says which tests run; the runner's own choice when unset.
    pub config: Option<LocalObjectReference>,
    /// Where test logs go.
    pub logs_location: Option<LogsLocation>,
}

/// Where test logs go.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogsLocation {
    /// Directory in the container that logs are written to.
    #[schemars(extend("default" = "/var/log/amd-test-runner"))]
    pub mount_path: Option<String>,
    /// Directory on the host that keeps them.
    #[schemars(extend("default" = "/var/log/amd-test-runner"))]
    pub host_path: Option<String>,
    /// Secrets with the settings of cloud storage that logs are copied to.
    pub logs_export_secrets: Option<Vec<LocalObjectReference>>,
}

/// Device config manager, which partitions GPUs by a profile that node labels choose.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigManager {
    /// Whether the device config manager runs; off when unset.
    pub enable: Option<bool>,
    /// Image (`docker.io/rocm/device-config-manager:v0.0.1` when unset), nodes, rollout.
    #[serde(flatten)]
    pub operand: Operand,
    /// Taints that the pods put up with beside `amd-dcm=up:NoExecute`.
    pub config_manager_tolerations: Option<Vec<Toleration>>,
    /// ConfigMap with the partition profiles; `default-dcm-config` when unset, made when missing.
    pub config: Option<LocalObjectReference>,
}
