//! Parts of a driver upgrade policy that the GPU and the network drivers share: waiting for jobs, draining nodes.
//!
//! The policies themselves differ and live in their domains: GPU drivers bound unavailable nodes and delete pods,
//! network drivers load safely. AMD's policy is a different one altogether. The steps below mean the same in both,
//! except that network drivers drain unless told otherwise; [`DrainByDefault`] says so in the schema.

use std::borrow::Cow;

use crate::json_schema::JsonSchema;
#[cfg(feature = "schemas")]
use schemars::{Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Waiting for workloads to finish before the driver on their node is replaced.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitForCompletion {
    /// Label selector of the pods to wait for, in any namespace; nothing is waited for when unset.
    pub pod_selector: Option<String>,
    /// Seconds to wait before the upgrade goes on regardless; 0 waits for ever.
    #[schemars(range(min = 0), extend("default" = 0))]
    pub timeout_seconds: Option<i64>,
}

/// Evicting all pods of a node before its driver is replaced.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Drain {
    /// Whether nodes are drained at all.
    #[schemars(extend("default" = false))]
    pub enable: Option<bool>,
    /// Also evict pods that no controller will bring back elsewhere.
    #[schemars(extend("default" = false))]
    pub force: Option<bool>,
    /// Label selector of the pods to evict; every pod of the node when unset.
    pub pod_selector: Option<String>,
    /// Seconds until the drain, and with it the node's upgrade, counts as failed; 0 never gives up.
    #[schemars(range(min = 0), extend("default" = 300))]
    pub timeout_seconds: Option<i64>,
    /// Also evict pods with emptyDir volumes, whose contents are lost.
    #[schemars(extend("default" = false))]
    pub delete_empty_dir: Option<bool>,
}

/// Schema of a [`Drain`] that is on unless switched off: `#[schemars(with = "Option<DrainByDefault>")]` on the field.
#[derive(Clone, Copy, Debug)]
pub struct DrainByDefault;

#[cfg(feature = "schemas")]
impl JsonSchema for DrainByDefault {
    fn schema_name() -> Cow<'static, str> {
        "DrainByDefault".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        on_by_default(Drain::json_schema(generator), "enable")
    }
}

/// `schema`, with `true` as the default of its boolean property `field`.
#[cfg(feature = "schemas")]
pub(crate) fn on_by_default(mut schema: Schema, field: &str) -> Schema {
    if let Some(default) = schema.pointer_mut(&format!("/properties/{field}/default")) {
        *default = true.into();
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_switch_differs() {
        let generator = &mut SchemaGenerator::default();
        let (mut off, on) = (Drain::json_schema(generator), DrainByDefault::json_schema(generator));
        assert_ne!(off, on);
        *off.pointer_mut("/properties/enable/default").unwrap() = true.into();
        assert_eq!(off, on);
    }
}
