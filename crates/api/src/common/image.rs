//! Container images: that of a NIM or NeMo kind, and when images are pulled.

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Container image, pulled as `repository:tag`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Registry and path, without a tag: `nvcr.io/nim/meta/llama-3.1-8b-instruct`.
    pub repository: String,
    /// Tag to pull.
    pub tag: String,
    /// When the kubelet pulls: `Always`, `IfNotPresent` or `Never`. Kubernetes decides by the tag when unset.
    pub pull_policy: Option<String>,
    /// Registry secrets of the pod, by name, in the namespace of this object.
    pub pull_secrets: Option<Vec<String>>,
}

/// When the kubelet pulls an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PullPolicy {
    /// On every start of the container.
    Always,
    /// When the node does not have it yet.
    #[default]
    IfNotPresent,
    /// Not at all: the node must have it.
    Never,
}
