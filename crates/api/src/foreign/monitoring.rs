//! Prometheus operator (monitoring.coreos.com/v1): what Prometheus scrapes and which alerts it raises.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Rule that rewrites labels; also part of our own kinds, hence the schema.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RelabelConfig {
    /// Labels whose values are joined and matched.
    pub source_labels: Option<Vec<String>>,
    /// What the values are joined by; `;` when unset.
    pub separator: Option<String>,
    /// Label that receives the result.
    pub target_label: Option<String>,
    /// Expression that the joined values must match; anything when unset.
    pub regex: Option<String>,
    /// Number of buckets that the hash of the joined values is spread over.
    #[schemars(range(min = 0))]
    pub modulus: Option<i64>,
    /// Value that a match leaves, with groups as `$1`; `$1` when unset.
    pub replacement: Option<String>,
    /// What is done with a match.
    #[schemars(extend("default" = "replace", "enum" = [
        "replace", "Replace", "keep", "Keep", "drop", "Drop", "hashmod", "HashMod", "labelmap", "LabelMap", "labeldrop",
        "LabelDrop", "labelkeep", "LabelKeep", "lowercase", "Lowercase", "uppercase", "Uppercase", "keepequal",
        "KeepEqual", "dropequal", "DropEqual",
    ]))]
    pub action: Option<String>,
}
