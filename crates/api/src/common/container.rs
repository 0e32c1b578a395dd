//! Containers that users add beside the main one.

use crate::json_schema::JsonSchema;
use k8s_openapi::api::core::v1::EnvVar;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::image::Image;

/// A container that runs before, beside or in front of the main one: init container, sidecar or endpoint picker.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExtraContainer {
    /// Name of the container, unique in its pod.
    pub name: String,
    /// Image to run. Pull policy, when unset, and pull secrets are those of the main image.
    pub image: Image,
    /// Replaces the entrypoint of the image.
    pub command: Option<Vec<String>>,
    /// Replaces the arguments of the image.
    pub args: Option<Vec<String>>,
    /// Environment. Init containers and sidecars get the main container's as well.
    pub env: Option<Vec<EnvVar>>,
    /// Directory in which the command starts; the image's when unset.
    pub working_dir: Option<String>,
}
