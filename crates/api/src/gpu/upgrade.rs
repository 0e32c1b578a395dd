//! Upgrade policy of GPU drivers: a rollout node by node.

use std::borrow::Cow;

use crate::json_schema::JsonSchema;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
#[cfg(feature = "schemas")]
use schemars::{Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

#[cfg(feature = "schemas")]
use crate::common::upgrade::on_by_default;
use crate::common::upgrade::{Drain, WaitForCompletion};

/// How driver pods are replaced when their template changes.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradePolicy {
    /// Whether the operator upgrades drivers on its own; if not, delete driver pods by hand.
    #[schemars(extend("default" = false))]
    pub auto_upgrade: Option<bool>,
    /// Nodes that are upgraded at the same time; 0 sets no limit.
    #[schemars(range(min = 0), extend("default" = 1))]
    pub max_parallel_upgrades: Option<i64>,
    /// Nodes that may be cordoned or not ready at the same time, as a number or as a share of all (rounded up).
    #[schemars(extend("default" = "25%"))]
    pub max_unavailable: Option<IntOrString>,
    /// First, wait for jobs to finish.
    pub wait_for_completion: Option<WaitForCompletion>,
    /// Then delete the pods that use GPUs.
    pub pod_deletion: Option<PodDeletion>,
    /// Drain the node if deleting those pods failed.
    pub drain: Option<Drain>,
}

/// Deleting the pods of a node that use its GPUs.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodDeletion {
    /// Also delete pods that no controller will bring back elsewhere.
    #[schemars(extend("default" = false))]
    pub force: Option<bool>,
    /// Seconds until the deletion counts as failed; 0 never gives up.
    #[schemars(range(min = 0), extend("default" = 300))]
    pub timeout_seconds: Option<i64>,
    /// Also delete pods with emptyDir volumes, whose contents are lost.
    #[schemars(extend("default" = false))]
    pub delete_empty_dir: Option<bool>,
}

/// Schema of an [`UpgradePolicy`] whose automatic upgrades are on unless switched off.
#[derive(Clone, Copy, Debug)]
pub struct AutoUpgradeByDefault;

#[cfg(feature = "schemas")]
impl JsonSchema for AutoUpgradeByDefault {
    fn schema_name() -> Cow<'static, str> {
        "AutoUpgradeByDefault".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        on_by_default(UpgradePolicy::json_schema(generator), "autoUpgrade")
    }
}
