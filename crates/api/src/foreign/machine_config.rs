//! OpenShift machine configuration (machineconfiguration.openshift.io/v1): host configuration by pool.

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

use super::NameRef;
use crate::resource::{Cluster, Kind, NoStatus, Resource};

const GROUP: &str = "machineconfiguration.openshift.io";

/// Files and units for the hosts of a pool; a label says which pool.
pub type MachineConfig = Resource<MachineConfigSpec>;
/// Hosts that are set up alike.
pub type MachineConfigPool = Resource<MachineConfigPoolSpec>;

/// Files and units for the hosts of a pool.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineConfigSpec {
    /// Ignition configuration.
    pub config: Option<Value>,
}

impl Kind for MachineConfigSpec {
    type Status = NoStatus;
    type Scope = Cluster;
    const GROUP: &'static str = GROUP;
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "MachineConfig";
    const PLURAL: &'static str = "machineconfigs";
}

/// Hosts that are set up alike.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineConfigPoolSpec {
    /// Whether hosts keep their configuration, and so are not rebooted, until this is false again.
    pub paused: Option<bool>,
    /// Configuration that hosts shall have. Read only: OpenShift writes it.
    pub configuration: Option<NameRef>,
}

impl Kind for MachineConfigPoolSpec {
    type Status = MachineConfigPoolStatus;
    type Scope = Cluster;
    const GROUP: &'static str = GROUP;
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "MachineConfigPool";
    const PLURAL: &'static str = "machineconfigpools";
}

/// How far the hosts are.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineConfigPoolStatus {
    /// Configuration that all hosts have.
    pub configuration: Option<NameRef>,
}

#[cfg(test)]
mod tests {
    use super::super::tests::assert_survives;
    use super::*;
    use serde_json::json;

    #[test]
    fn config_survives() {
        assert_survives::<MachineConfigSpec>(&json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfig",
            "metadata": {
                "name": "sriov-config-service",
                "labels": {"machineconfiguration.openshift.io/role": "worker"},
            },
            "spec": {"config": {
                "ignition": {"version": "3.2.0"},
                "systemd": {"units": [{"name": "sriov-config.service", "enabled": true}]},
            }},
        }));
    }

    #[test]
    fn pool_survives() {
        assert_survives::<MachineConfigPoolSpec>(&json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfigPool",
            "metadata": {"name": "worker", "annotations": {"sriovnetwork.openshift.io/state": "Paused"}},
            "spec": {"paused": true, "configuration": {"name": "rendered-worker-2"}},
            "status": {"configuration": {"name": "rendered-worker-1"}},
        }));
    }
}
