//! Parts from which every GPU component is made: image, resources, environment.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Deserializer, Serialize};
use serde_with::skip_serializing_none;

use crate::wire;

/// Container image of a component; the operator's built-in image when everything is unset.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Registry and path in front of the image name, such as `nvcr.io/nvidia`; needs `image` and `version` too.
    pub repository: Option<String>,
    /// Image name; a complete reference when `repository` and `version` are both unset.
    #[schemars(regex(pattern = r"[a-zA-Z0-9\-]+"))]
    pub image: Option<String>,
    /// Tag, or digest that starts with `sha256:`.
    pub version: Option<String>,
    /// When nodes pull the image: Always, Never or IfNotPresent; any other value counts as IfNotPresent.
    pub image_pull_policy: Option<String>,
    /// Names of registry credentials in the operator's namespace.
    pub image_pull_secrets: Option<Vec<String>>,
}

/// What most components can be configured with: whether and how their container runs.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Component {
    /// Image of the main container.
    #[serde(flatten)]
    pub image: Image,
    /// Whether the component is deployed; which way unset counts depends on the component.
    pub enabled: Option<bool>,
    /// CPU, memory and other resources of each container of the pod.
    pub resources: Option<Resources>,
    /// Arguments of the main container, instead of the built-in ones.
    pub args: Option<Vec<String>>,
    /// Environment of the main container; replaces built-in variables of the same name.
    pub env: Option<Vec<EnvVar>>,
    /// Whether the pod shares its node's network.
    pub host_network: Option<bool>,
}

/// The init container that unloads the old driver from a node.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriverManager {
    /// Its image.
    #[serde(flatten)]
    pub image: Image,
    /// Its environment, such as `ENABLE_AUTO_DRAIN`.
    pub env: Option<Vec<EnvVar>>,
}

/// An environment variable with a fixed value.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvVar {
    /// Name of the variable.
    pub name: String,
    /// Its value; empty when unset.
    pub value: Option<String>,
}

/// Compute resources of a container.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// The most that the container may use, by resource name.
    pub limits: Option<BTreeMap<String, Quantity>>,
    /// What is set aside for the container, by resource name.
    pub requests: Option<BTreeMap<String, Quantity>>,
}

impl<'de> Deserialize<'de> for Resources {
    /// Resources sit in flattened structs, where serde hides numbers from [`wire::lenient`]; so it is applied here.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Plain {
            limits: Option<BTreeMap<String, Quantity>>,
            requests: Option<BTreeMap<String, Quantity>>,
        }
        let value = serde_json::Value::deserialize(deserializer)?;
        let Plain { limits, requests } = wire::lenient(value).map_err(serde::de::Error::custom)?;
        Ok(Self { limits, requests })
    }
}

/// A ConfigMap in the operator's namespace.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapRef {
    /// Name of the ConfigMap; nothing is mounted when unset.
    pub name: Option<String>,
}

/// Switch of a feature that has nothing else to configure.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Switch {
    /// Whether the feature is on; off when unset.
    pub enabled: Option<bool>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn parts_lie_side_by_side() {
        let written = json!({
            "enabled": true, "repository": "r", "image": "i", "version": "1", "hostNetwork": false,
            "env": [{"name": "A"}, {"name": "B", "value": ""}],
        });
        let read: Component = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(read.image.version.as_deref(), Some("1"));
        assert_eq!(serde_json::to_value(read).unwrap(), written);
    }

    #[test]
    fn numbers_are_quantities_inside_flattened_parts() {
        #[derive(Deserialize)]
        struct Outer {
            #[serde(flatten)]
            component: Component,
        }
        let read: Outer = wire::lenient(json!({"resources": {"limits": {"cpu": 1, "memory": "1Gi"}}})).unwrap();
        let limits = read.component.resources.unwrap().limits.unwrap();
        assert_eq!((limits["cpu"].0.as_str(), limits["memory"].0.as_str()), ("1", "1Gi"));
    }
}
