//! SriovOperatorConfig: settings of the SR-IOV part as a whole.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::shared::READY_COLUMNS;
use crate::resource::{Column, Kind, Namespaced, Resource};

/// Settings of the SR-IOV part. Only the object `default` in the operator's namespace is used.
pub type SriovOperatorConfig = Resource<SriovOperatorConfigSpec>;

/// Settings of the SR-IOV part; only the object `default` in the operator's namespace is used.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SriovOperatorConfigSpec {
    /// Labels of the nodes to manage; Linux nodes with the worker role when unset.
    pub config_daemon_node_selector: Option<BTreeMap<String, String>>,
    /// Run the webhook that adds resource requests to pods by their networks; off when unset.
    pub enable_injector: Option<bool>,
    /// Run the webhook that checks and completes policies, pools and networks; off when unset.
    pub enable_operator_webhook: Option<bool>,
    /// How much operator and daemon log, from 0 (as when unset) to 2; takes effect without a restart.
    #[schemars(range(min = 0, max = 2))]
    pub log_level: Option<i64>,
    /// Change nodes without draining them first: only for clusters of one node or without SR-IOV pods; off when unset.
    pub disable_drain: Option<bool>,
    /// Kept for compatibility; does nothing. Use `ovsHardwareOffloadConfig` of a SriovNetworkPoolConfig.
    pub enable_ovs_offload: Option<bool>,
    /// Who configures the cards of a node; the daemon when unset.
    pub configuration_mode: Option<ConfigurationMode>,
    /// Hand devices to pods by the Container Device Interface; off when unset.
    #[serde(rename = "useCDI")]
    pub use_cdi: Option<bool>,
    /// Vendor plugins of the daemon to switch off; none when unset.
    pub disable_plugins: Option<Vec<Plugin>>,
    /// Features to switch on or off by name; unknown names are ignored.
    pub feature_gates: Option<BTreeMap<String, bool>>,
    /// Environment variables to add to the daemon.
    pub config_daemon_env_vars: Option<BTreeMap<String, String>>,
}

/// Who configures the cards of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ConfigurationMode {
    /// The daemon's pod, once it runs.
    #[default]
    Daemon,
    /// Systemd units at boot, before the kubelet starts.
    Systemd,
}

/// A vendor plugin of the daemon that can be switched off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Plugin {
    /// Firmware settings of Mellanox cards.
    #[default]
    Mellanox,
}

/// Whether the settings are in effect.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SriovOperatorConfigStatus {
    /// `Ready` is True once the settings are in effect; its reason and message say why not.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// Kept for compatibility; never filled.
    pub injector: Option<String>,
    /// Kept for compatibility; never filled.
    pub operator_webhook: Option<String>,
}

impl Kind for SriovOperatorConfigSpec {
    type Status = SriovOperatorConfigStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = super::GROUP;
    const VERSION: &'static str = super::VERSION;
    const KIND: &'static str = "SriovOperatorConfig";
    const PLURAL: &'static str = "sriovoperatorconfigs";
    const COLUMNS: &'static [Column] = READY_COLUMNS;
}
