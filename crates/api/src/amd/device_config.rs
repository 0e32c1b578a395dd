//! DeviceConfig: driver, device plugin, exporters and repair of the AMD GPUs on a set of nodes.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use k8s_openapi::api::core::v1::LocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::operand::IMAGE;
use super::{ConfigManager, DevicePlugin, DraDriver, Driver, MetricsExporter, RemediationWorkflow, TestRunner};
use crate::common::PullPolicy;
use crate::resource::{Kind, Namespaced, Resource};

/// Driver, device plugin, monitoring and repair of the AMD GPUs on a set of nodes.
pub type DeviceConfig = Resource<DeviceConfigSpec>;

/// Driver, device plugin, monitoring and repair of the AMD GPUs on a set of nodes.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeviceConfigSpec {
    /// Labels of the nodes to manage; a node belongs to one DeviceConfig only.
    pub selector: Option<BTreeMap<String, String>>,
    /// Kernel driver: built or pulled, signed, loaded, upgraded.
    pub driver: Option<Driver>,
    /// Device plugin, which offers `amd.com/gpu`, and node labeller; excludes `draDriver`.
    pub device_plugin: Option<DevicePlugin>,
    /// DRA driver, which offers GPUs through resource claims; excludes the device plugin.
    pub dra_driver: Option<DraDriver>,
    /// Prometheus exporter of GPU metrics.
    pub metrics_exporter: Option<MetricsExporter>,
    /// Test runner, which checks GPUs that turn unhealthy; needs the metrics exporter.
    pub test_runner: Option<TestRunner>,
    /// Device config manager, which partitions GPUs.
    pub config_manager: Option<ConfigManager>,
    /// Settings that all components share.
    pub common_config: Option<CommonConfig>,
    /// Automatic repair of nodes with GPU faults; needs Argo Workflows.
    pub remediation_workflow: Option<RemediationWorkflow>,
}

impl Kind for DeviceConfigSpec {
    type Status = DeviceConfigStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = super::VERSION;
    const KIND: &'static str = "DeviceConfig";
    const PLURAL: &'static str = "deviceconfigs";
    const SHORT_NAMES: &'static [&'static str] = &["gpue"];
}

/// Settings that all components share.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommonConfig {
    /// Image of the init containers that wait for the driver; `busybox:1.36` when unset.
    pub init_container_image: Option<String>,
    /// Pull secrets that every component gets beside its own.
    pub image_registry_secrets: Option<Vec<LocalObjectReference>>,
    /// Container that reboots nodes and binds devices to VFIO.
    pub utils_container: Option<UtilsContainer>,
}

/// Container that reboots nodes and binds devices to VFIO.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UtilsContainer {
    /// Image; `docker.io/rocm/gpu-operator-utils:latest` when unset, `rhubi-latest` on OpenShift.
    #[schemars(regex(pattern = IMAGE))]
    pub image: Option<String>,
    /// When the kubelet pulls the image.
    pub image_pull_policy: Option<PullPolicy>,
    /// Secret in the same namespace with the registry's credentials.
    pub image_registry_secret: Option<LocalObjectReference>,
}

/// How far the components have come.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeviceConfigStatus {
    /// Nodes with the device plugin.
    pub device_plugin: Option<DeploymentStatus>,
    /// Nodes with the driver.
    pub driver: Option<DeploymentStatus>,
    /// Nodes with the metrics exporter.
    pub metrics_exporter: Option<DeploymentStatus>,
    /// Nodes with the device config manager.
    pub config_manager: Option<DeploymentStatus>,
    /// Nodes under automatic repair.
    pub remediation_workflow: Option<DeploymentStatus>,
    /// Driver on each node, by node name.
    pub node_module_status: Option<BTreeMap<String, ModuleStatus>>,
    /// `Ready`, and `Error` while something is wrong.
    pub conditions: Option<Vec<Condition>>,
    /// Generation of the spec that this status speaks of.
    pub observed_generation: Option<i64>,
}

/// How many nodes have a component.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentStatus {
    /// Nodes that the selector picks.
    pub nodes_matching_selector_number: Option<i32>,
    /// Nodes that shall have the component.
    pub desired_number: Option<i32>,
    /// Nodes that have it up and running.
    pub available_number: Option<i32>,
}

/// Driver on one node.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModuleStatus {
    /// Driver image that is loaded.
    pub container_image: Option<String>,
    /// Kernel that the driver was built for.
    pub kernel_version: Option<String>,
    /// When the driver was last loaded or unloaded.
    pub last_transition_time: Option<String>,
    /// Step of installation or upgrade, such as `Install-Complete`, `Upgrade-In-Progress` or `Drain-Failed`.
    pub status: Option<String>,
    /// When the running upgrade began; it times out after two hours.
    pub upgrade_start_time: Option<String>,
    /// Boot that the upgrade began in; a new one shows that the node has rebooted.
    pub boot_id: Option<String>,
}
