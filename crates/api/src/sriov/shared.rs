//! Types shared by several SR-IOV kinds.

use crate::json_schema::JsonSchema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::resource::Column;

/// The condition Ready, then the age.
pub(super) const READY_COLUMNS: &[Column] =
    &[Column::new("Ready", "string", r#".status.conditions[?(@.type=="Ready")].status"#), Column::AGE];

/// How RDMA devices relate to network namespaces on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RdmaMode {
    /// Every network namespace sees every RDMA device.
    #[default]
    Shared,
    /// An RDMA device belongs to one network namespace.
    Exclusive,
}

/// Link state that a virtual function shows to its pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    /// Follow the physical port.
    #[default]
    Auto,
    /// Always up.
    Enable,
    /// Always down.
    Disable,
}

/// Whether the network is usable.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkStatus {
    /// `Ready` is True once the NetworkAttachmentDefinition exists as asked for; its reason and message say why not.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
}
