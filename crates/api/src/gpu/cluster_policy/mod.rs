//! ClusterPolicy: everything that makes the GPUs of a cluster usable through device plugins. One is active per cluster.
//!
//! One file per group of components: [`operator`] for what concerns the cluster, [`driver`] for the driver, [`stack`]
//! for what runs beside it on container nodes, [`sandbox`] for virtual machines and confidential containers.

pub mod driver;
pub mod operator;
pub mod sandbox;
pub mod stack;

use crate::json_schema::JsonSchema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use self::driver::Driver;
use self::operator::{Cdi, HostPaths, Operator};
use self::sandbox::{CcManager, KataManager, SandboxWorkloads, VfioManager, VgpuDeviceManager, VgpuManager};
use self::stack::{DevicePlugin, Mig, MigManager, Toolkit, Validator};
use super::component::{Component, Switch};
use super::daemonsets::Daemonsets;
use super::dcgm::{Dcgm, DcgmExporter};
use super::driver_parts::DriverSidecar;
use crate::resource::{Cluster, Column, Handling, Kind, Resource};

/// The device-plugin stack of a cluster.
pub type ClusterPolicy = Resource<ClusterPolicySpec>;

/// Installs and runs what the GPUs of a cluster need: driver, container toolkit, device plugin, monitoring, MIG.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPolicySpec {
    /// Settings of the operator itself.
    pub operator: Operator,
    /// Settings of all DaemonSets.
    pub daemonsets: Daemonsets,
    /// GPU driver; deployed unless switched off.
    pub driver: Driver,
    /// Container toolkit, which gives containers access to GPUs; deployed unless switched off.
    pub toolkit: Toolkit,
    /// Device plugin, which offers GPUs to the scheduler, and the MPS daemon; deployed unless switched off.
    pub device_plugin: DevicePlugin,
    /// Exporter of GPU metrics; deployed unless switched off.
    pub dcgm_exporter: DcgmExporter,
    /// DCGM host engine as a pod of its own; deployed unless switched off.
    pub dcgm: Dcgm,
    /// Exporter of what the validator finds on each node; not deployed unless switched on.
    pub node_status_exporter: Component,
    /// GPU feature discovery, which labels nodes with the properties of their GPUs; deployed unless switched off.
    pub gfd: Component,
    /// How MIG devices are offered.
    pub mig: Option<Mig>,
    /// MIG manager, which partitions GPUs as node labels say; deployed unless switched off.
    pub mig_manager: Option<MigManager>,
    /// Deprecated and without effect: Kubernetes has no pod security policies any more.
    pub psp: Option<Switch>,
    /// Pod Security Admission: when on, the operator's namespace is labelled privileged.
    pub psa: Option<Switch>,
    /// Validator, which checks each component on each node before the next one starts.
    pub validator: Option<Validator>,
    /// GPUDirect Storage: loads nvidia-fs beside the driver.
    pub gds: Option<DriverSidecar>,
    /// GDRCopy: loads gdrdrv beside the driver.
    pub gdrcopy: Option<DriverSidecar>,
    /// Nodes that run virtual machines or confidential containers.
    pub sandbox_workloads: Option<SandboxWorkloads>,
    /// VFIO manager, which hands GPUs over to vfio-pci; sandboxes only, not deployed unless switched on.
    pub vfio_manager: Option<VfioManager>,
    /// Device plugin for KubeVirt; sandboxes only, not deployed unless switched on.
    pub sandbox_device_plugin: Option<Component>,
    /// Device plugin for Kata containers; sandboxes only, not deployed unless switched on.
    pub kata_sandbox_device_plugin: Option<Component>,
    /// vGPU manager, the driver of vGPU hosts; sandboxes only, not deployed unless switched on.
    pub vgpu_manager: Option<VgpuManager>,
    /// vGPU device manager, which creates vGPU devices; sandboxes only, not deployed unless switched on.
    pub vgpu_device_manager: Option<VgpuDeviceManager>,
    /// Manager of confidential computing modes; Kata sandboxes only, not deployed unless switched on.
    pub cc_manager: Option<CcManager>,
    /// Deprecated and without effect: nothing installs Kata runtime classes any more.
    pub kata_manager: Option<KataManager>,
    /// Container Device Interface.
    pub cdi: Option<Cdi>,
    /// Directories on the nodes.
    pub host_paths: Option<HostPaths>,
}

impl Kind for ClusterPolicySpec {
    type Status = ClusterPolicyStatus;
    type Scope = Cluster;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "ClusterPolicy";
    const PLURAL: &'static str = "clusterpolicies";
    const HANDLING: Handling = Handling::Reported;
    const COLUMNS: &'static [Column] = &[Column::STATE, Column::AGE_AS_STRING];
}

/// How far the cluster is.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPolicyStatus {
    /// Whether all components are ready.
    pub state: ClusterPolicyState,
    /// Namespace of the operator and its components.
    pub namespace: Option<String>,
    /// The same in more words: Ready and Error.
    pub conditions: Option<Vec<Condition>>,
}

/// Summary of a ClusterPolicy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ClusterPolicyState {
    /// An older ClusterPolicy is active.
    Ignored,
    /// All components are ready.
    Ready,
    /// Some component is not ready, or something is wrong; see the conditions.
    #[default]
    NotReady,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_condition_of_somebody_else_does_not_make_a_policy_unreadable() {
        let foreign = json!([{"type": "Audited", "status": "True"}]);
        let policy = json!({"metadata": {"name": "p"}, "status": {"state": "ready", "conditions": foreign}});
        let policy: ClusterPolicy = serde_json::from_value(policy).unwrap();
        assert_eq!(policy.status.unwrap().conditions.unwrap()[0].type_, "Audited");
    }

    /// What the user wrote survives, and numbers are quantities at any depth.
    #[test]
    fn a_policy_survives_decoding() {
        let component =
            json!({"enabled": true, "resources": {"limits": {"cpu": "2"}}, "env": [{"name": "A", "value": "b"}]});
        let policy = json!({
            "apiVersion": "nvidia.com/v1",
            "kind": "ClusterPolicy",
            "metadata": {"name": "cluster-policy"},
            "spec": {
                "operator": {"use_ocp_driver_toolkit": true, "runtimeClass": "nvidia"},
                "daemonsets": {"updateStrategy": "OnDelete", "rollingUpdate": {"maxUnavailable": "10%"}},
                "driver": {
                    "enabled": false, "repository": "nvcr.io/nvidia", "image": "driver", "version": "580.65.06",
                    "useNvidiaDriverCRD": true, "kernelModuleType": "open",
                    "upgradePolicy": {"autoUpgrade": true, "maxUnavailable": 3, "drain": {"enable": true}},
                    "manager": {"image": "m", "env": []},
                },
                "toolkit": {"installDir": "/opt", "enabled": true},
                "devicePlugin": {"config": {"name": "c", "default": ""}, "mps": {"root": "/mps"}},
                "dcgmExporter": {"enablePodUID": true, "hostPID": false, "service": {"type": "NodePort"}},
                "dcgm": component,
                "nodeStatusExporter": {},
                "gfd": component,
                "migManager": {"config": {"default": ""}},
                "mig": {"strategy": "mixed"},
                "validator": {"vfioPCI": {"env": [{"name": "A"}]}, "version": "1"},
                "sandboxWorkloads": {"defaultWorkload": "vm-passthrough", "mode": "kata"},
                "ccManager": {"defaultMode": "devtools"},
                "hostPaths": {"rootFS": "/"},
            },
            "status": {"state": "notReady"},
        });
        let read: ClusterPolicy = serde_json::from_value(policy.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), policy);

        let mut with_number = policy.clone();
        with_number["spec"]["dcgm"]["resources"]["limits"]["cpu"] = json!(2);
        let read: ClusterPolicy = serde_json::from_value(with_number).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), policy);
    }
}
