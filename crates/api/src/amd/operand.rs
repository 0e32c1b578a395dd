//! Settings shared by the DaemonSets of a DeviceConfig.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use k8s_openapi::api::core::v1::LocalObjectReference;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::common::PullPolicy;

/// An image reference: lower-case path, optional tag, optional digest.
pub(super) const IMAGE: &str = concat!(
    r"^([a-z0-9]+(?:[._-][a-z0-9]+)*(:[0-9]+)?)(/[a-z0-9]+(?:[._-][a-z0-9]+)*)*",
    r"(?::[a-z0-9._-]+)?(?:@[a-zA-Z0-9]+:[a-f0-9]+)?$"
);

/// An absolute path on the host.
pub(super) const HOST_PATH: &str = r"^(/[^/\0]+)*(/)?$";

/// Image, nodes and rollout of one DaemonSet; part of the component that runs it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Operand {
    /// Image to run; the component's own default when unset.
    #[schemars(regex(pattern = IMAGE))]
    pub image: Option<String>,
    /// When the kubelet pulls the image; by Kubernetes' rules for the tag when unset.
    pub image_pull_policy: Option<PullPolicy>,
    /// Secret in the same namespace with the registry's credentials, used beside `commonConfig.imageRegistrySecrets`.
    pub image_registry_secret: Option<LocalObjectReference>,
    /// Labels of the nodes to run on; replaces the DeviceConfig's selector when set.
    pub selector: Option<BTreeMap<String, String>>,
    /// How pods are replaced when the component changes.
    pub upgrade_policy: Option<UpgradePolicy>,
}

/// How a DaemonSet replaces its pods.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradePolicy {
    /// Whether pods are replaced by themselves or only once deleted.
    pub upgrade_strategy: Option<UpgradeStrategy>,
    /// Number of nodes that may lack the pod during a rolling update.
    #[schemars(extend("default" = 1))]
    pub max_unavailable: Option<i32>,
}

/// When a DaemonSet replaces its pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpgradeStrategy {
    /// At once, a few nodes at a time.
    #[default]
    RollingUpdate,
    /// When somebody deletes the old pod.
    OnDelete,
}
