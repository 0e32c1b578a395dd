//! Image and resources of a component.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

use crate::wire;

/// Where images come from unless a component says otherwise.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GlobalImage {
    /// Registry and path for components that have none of their own.
    pub repository: Option<String>,
    /// Tag or digest for components that have none of their own.
    pub version: Option<String>,
    /// Pull secrets for components that have none of their own.
    pub image_pull_secrets: Option<Vec<String>>,
}

/// Image of a component and resources of its containers. The image is pulled as `repository/image:version`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageSpec {
    /// Name of the image, without registry and tag.
    #[schemars(regex(pattern = r"[a-zA-Z0-9\-]+"))]
    pub image: String,
    /// Registry and path, e.g. `nvcr.io/nvidia/mellanox`; that of `global` when unset. A NicNodePolicy has no `global`.
    #[schemars(regex(pattern = r"[a-zA-Z0-9\.\-\/]+"))]
    pub repository: Option<String>,
    /// Tag, or a digest that starts with `sha256:`; that of `global` when unset. A NicNodePolicy has no `global`.
    pub version: Option<String>,
    /// Names of pull secrets in the operator's namespace; those of `global` when empty.
    #[schemars(extend("default" = []))]
    pub image_pull_secrets: Option<Vec<String>>,
    /// Resources by container; once this list has entries, containers that it does not name get no resources at all.
    #[serde(default, deserialize_with = "container_resources")]
    pub container_resources: Option<Vec<ContainerResources>>,
}

/// What one container of a component may use.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerResources {
    /// Name of the container in the component's pod.
    pub name: String,
    /// The most it may use, by `cpu` and `memory`.
    pub limits: Option<BTreeMap<String, Quantity>>,
    /// What is set aside for it, by `cpu` and `memory`.
    pub requests: Option<BTreeMap<String, Quantity>>,
}

/// An image whose program reads a configuration file.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfiguredImage {
    /// The image.
    #[serde(flatten)]
    pub image: ImageSpec,
    /// Text of the configuration file; a default one when unset.
    pub config: Option<String>,
}

/// Image and configuration of a device plugin.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DevicePlugin {
    /// The image.
    #[serde(flatten)]
    pub image: ImageSpec,
    /// Text of the plugin's configuration: JSON that lists the resources and the devices behind each.
    pub config: Option<String>,
    /// Hand devices to pods by the Container Device Interface; off when unset.
    pub use_cdi: Option<bool>,
}

/// Numbers as quantities: in a flattened struct serde no longer says which type is asked for, so
/// [`wire::lenient`] around the whole object cannot help.
fn container_resources<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<ContainerResources>>, D::Error> {
    let value = Option::<Value>::deserialize(deserializer)?;
    value.map(wire::lenient).transpose().map_err(|error| D::Error::custom(format!("containerResources: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_component_survives_a_round_trip() {
        let written = json!({
            "image": "plugin",
            "version": "v1",
            "imagePullSecrets": [],
            "containerResources": [{"name": "plugin", "limits": {"cpu": "1", "memory": "1Gi"}}],
            "config": "{}",
            "useCdi": false,
        });
        let read: DevicePlugin = wire::lenient(written.clone()).unwrap();
        assert_eq!(read.image.image, "plugin");
        assert_eq!(serde_json::to_value(read).unwrap(), written);
    }

    #[test]
    fn a_number_is_a_quantity_in_a_flattened_image() {
        let resources = json!([{"name": "plugin", "limits": {"cpu": 2}}]);
        let read: DevicePlugin = wire::lenient(json!({"image": "plugin", "containerResources": resources})).unwrap();
        let resources = read.image.container_resources.unwrap();
        assert_eq!(resources[0].limits.as_ref().unwrap()["cpu"], Quantity("2".into()));
    }

    #[test]
    fn an_image_needs_a_name() {
        assert!(wire::lenient::<DevicePlugin>(json!({"version": "v1"})).is_err());
    }
}
