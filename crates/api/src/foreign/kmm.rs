//! Kernel module management (kmm.sigs.x-k8s.io/v1beta1): builds, signs and loads kernel modules; AMD's driver uses it.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use k8s_openapi::api::core::v1::Toleration;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::NameRef;
use crate::resource::{Cluster, Kind, Namespaced, NoStatus, Resource};

const GROUP: &str = "kmm.sigs.x-k8s.io";

/// A kernel module for some nodes.
pub type Module = Resource<ModuleSpec>;
/// Modules of the node of the same name; only read.
pub type NodeModulesConfig = Resource<NodeModulesConfigSpec>;

/// A kernel module for some nodes.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModuleSpec {
    /// How it is loaded.
    pub module_loader: Option<ModuleLoader>,
    /// Registry credentials.
    pub image_repo_secret: Option<NameRef>,
    /// Labels of the nodes.
    pub selector: Option<BTreeMap<String, String>>,
    /// Taints that the loading pods tolerate.
    pub tolerations: Option<Vec<Toleration>>,
}

impl Kind for ModuleSpec {
    type Status = NoStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = GROUP;
    const VERSION: &'static str = "v1beta1";
    const KIND: &'static str = "Module";
    const PLURAL: &'static str = "modules";
}

/// How a module is loaded.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModuleLoader {
    /// By which container.
    pub container: Option<ModuleContainer>,
    /// Service account of the loading pods.
    pub service_account_name: Option<String>,
}

/// The container that loads a module.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModuleContainer {
    /// How modprobe is called.
    pub modprobe: Option<Modprobe>,
    /// Image per kernel.
    pub kernel_mappings: Option<Vec<KernelMapping>>,
    /// Version, which a node's label must equal for the module to be loaded there.
    pub version: Option<String>,
}

/// How modprobe is called.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Modprobe {
    /// Module to load.
    pub module_name: Option<String>,
    /// Directory of firmware in the image.
    pub firmware_path: Option<String>,
    /// Arguments of modprobe.
    pub args: Option<ModprobeArgs>,
    /// Parameters of the module.
    pub parameters: Option<Vec<String>>,
    /// The module, then those to load before it.
    pub modules_loading_order: Option<Vec<String>>,
}

/// Arguments of modprobe.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModprobeArgs {
    /// When it loads.
    pub load: Option<Vec<String>>,
    /// When it unloads.
    pub unload: Option<Vec<String>>,
}

/// Image for one kernel.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KernelMapping {
    /// The kernel.
    pub literal: Option<String>,
    /// The image; built if it does not exist.
    pub container_image: Option<String>,
    /// How it is built.
    pub build: Option<Build>,
    /// How its modules are signed.
    pub sign: Option<Sign>,
    /// How its registry is reached.
    #[serde(rename = "registryTLS")]
    pub registry_tls: Option<RegistryTls>,
}

/// How an image is built.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Build {
    /// ConfigMap with the Dockerfile under the key `dockerfile`.
    pub dockerfile_config_map: Option<NameRef>,
    /// Arguments of the build.
    pub build_args: Option<Vec<BuildArg>>,
    /// How registries of base images are reached.
    #[serde(rename = "baseImageRegistryTLS")]
    pub base_image_registry_tls: Option<RegistryTls>,
}

/// Argument of a build.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BuildArg {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// How modules are signed.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sign {
    /// Secret with the private key.
    pub key_secret: Option<NameRef>,
    /// Secret with the certificate.
    pub cert_secret: Option<NameRef>,
    /// Modules to sign, by their path in the image.
    pub files_to_sign: Option<Vec<String>>,
}

/// How a registry is reached.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegistryTls {
    /// Without TLS.
    pub insecure: Option<bool>,
    /// With any certificate.
    #[serde(rename = "insecureSkipTLSVerify")]
    pub insecure_skip_tls_verify: Option<bool>,
}

/// Modules that a node shall have.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeModulesConfigSpec {
    /// The modules.
    pub modules: Option<Vec<NodeModule>>,
}

impl Kind for NodeModulesConfigSpec {
    type Status = NodeModulesConfigStatus;
    type Scope = Cluster;
    const GROUP: &'static str = GROUP;
    const VERSION: &'static str = "v1beta1";
    const KIND: &'static str = "NodeModulesConfig";
    const PLURAL: &'static str = "nodemodulesconfigs";
}

/// Modules that a node has.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeModulesConfigStatus {
    /// The modules.
    pub modules: Option<Vec<NodeModule>>,
}

/// A module of a node.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeModule {
    /// Name of its Module.
    pub name: Option<String>,
    /// Namespace of its Module.
    pub namespace: Option<String>,
    /// What is loaded.
    pub config: Option<NodeModuleConfig>,
    /// When that last changed.
    pub last_transition_time: Option<String>,
    /// Boot of the node in which it was loaded.
    pub boot_id: Option<String>,
}

/// What is loaded on a node.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeModuleConfig {
    /// Image that it came from.
    pub container_image: Option<String>,
    /// Kernel that it was loaded into.
    pub kernel_version: Option<String>,
    /// How modprobe was called.
    pub modprobe: Option<Modprobe>,
}

#[cfg(test)]
mod tests {
    use super::super::tests::assert_survives;
    use super::*;
    use serde_json::json;

    #[test]
    fn module_survives() {
        assert_survives::<ModuleSpec>(&json!({
            "apiVersion": "kmm.sigs.x-k8s.io/v1beta1",
            "kind": "Module",
            "metadata": {"name": "gpus", "namespace": "kube-amd-gpu"},
            "spec": {
                "moduleLoader": {
                    "container": {
                        "modprobe": {
                            "moduleName": "amdgpu",
                            "firmwarePath": "firmwareDir/updates",
                            "args": {"load": ["-v"], "unload": ["-r"]},
                            "parameters": ["ip_block_mask=0x7f"],
                            "modulesLoadingOrder": ["amdgpu", "amdttm", "amdkcl"],
                        },
                        "kernelMappings": [{
                            "literal": "5.15.0-70-generic",
                            "containerImage": "registry/amdgpu_kmod:ubuntu-22.04-${KERNEL_FULL_VERSION}-6.1.3",
                            "build": {
                                "dockerfileConfigMap": {"name": "ubuntu-22.04-gpus-kube-amd-gpu"},
                                "buildArgs": [{"name": "DRIVERS_VERSION", "value": "6.1.3"}],
                                "baseImageRegistryTLS": {"insecure": false},
                            },
                            "sign": {"keySecret": {"name": "k"}, "certSecret": {"name": "c"}, "filesToSign": ["/a.ko"]},
                            "registryTLS": {"insecureSkipTLSVerify": true},
                        }],
                        "version": "6.1.3",
                    },
                    "serviceAccountName": "amd-gpu-operator-kmm-module-loader",
                },
                "imageRepoSecret": {"name": "pull"},
                "selector": {"feature.node.kubernetes.io/amd-gpu": "true"},
                "tolerations": [{"key": "amd-dcm", "operator": "Equal", "value": "up", "effect": "NoExecute"}],
            },
        }));
    }

    #[test]
    fn node_survives() {
        let module = json!({
            "name": "gpus",
            "namespace": "kube-amd-gpu",
            "config": {"containerImage": "i", "kernelVersion": "5.15.0", "modprobe": {"moduleName": "amdgpu"}},
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "bootId": "b",
        });
        assert_survives::<NodeModulesConfigSpec>(&json!({
            "apiVersion": "kmm.sigs.x-k8s.io/v1beta1",
            "kind": "NodeModulesConfig",
            "metadata": {"name": "node-1"},
            "spec": {"modules": [{"name": "gpus", "namespace": "kube-amd-gpu", "config": {"containerImage": "i"}}]},
            "status": {"modules": [module]},
        }));
    }
}
