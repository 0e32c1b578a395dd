//! The NIC configuration operator: firmware and settings of cards.

use crate::json_schema::JsonSchema;
use k8s_openapi::api::core::v1::EnvVar;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::image::ImageSpec;

/// Updates firmware and settings of cards as NicConfigurationTemplates ask for.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NicConfigurationOperator {
    /// The operator, one per cluster.
    pub operator: ImageSpec,
    /// The daemon, one per node.
    pub configuration_daemon: ImageSpec,
    /// Environment variables of both.
    pub env: Option<Vec<EnvVar>>,
    /// How much both log.
    #[schemars(extend("default" = "info"))]
    pub log_level: Option<LogLevel>,
    /// Volume that firmware is kept on; none, and hence no firmware updates, when unset.
    pub nic_firmware_storage: Option<NicFirmwareStorage>,
}

/// How much a component logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Normal operation.
    #[default]
    Info,
    /// Everything.
    Debug,
}

/// Volume that firmware is kept on; every node must be able to mount it (ReadWriteMany).
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NicFirmwareStorage {
    /// Make the claim; when false, it must exist already.
    #[schemars(extend("default" = true))]
    pub create: Option<bool>,
    /// Name of the claim in the operator's namespace.
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"),
        extend("default" = "nic-fw-storage-pvc")
    )]
    pub pvc_name: Option<String>,
    /// Storage class of the claim; the cluster's default when unset. Fixed once set.
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"),
        extend("x-kubernetes-validations" = [{
            "rule": "self == oldSelf",
            "message": "storageClassName cannot change: remove nicFirmwareStorage, then add it with the new class",
        }])
    )]
    pub storage_class_name: Option<String>,
    /// Size of the claim. Fixed once set.
    #[schemars(
        regex(pattern = r"^(\d+)(Ei|Pi|Ti|Gi|Mi|Ki)$"),
        extend("default" = "1Gi", "x-kubernetes-validations" = [{
            "rule": "self == oldSelf",
            "message": "availableStorageSize cannot change: remove nicFirmwareStorage, then add it with the new size",
        }])
    )]
    pub available_storage_size: Option<String>,
}
