//! OpenShift: what pods may do (SecurityContextConstraints), and facts about the cluster, which are only read.

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::NameRef;
use crate::resource::{Cluster, Kind, Layout, Namespaced, NoStatus, Resource};

const CONFIG: &str = "config.openshift.io";

/// What the pods of some users may do.
pub type SecurityContextConstraints = Resource<SecurityContextConstraintsSpec>;
/// Version of the cluster; its name is `version`.
pub type ClusterVersion = Resource<ClusterVersionSpec>;
/// Proxy between the cluster and the world; its name is `cluster`.
pub type Proxy = Resource<ProxySpec>;
/// Where the cluster runs; its name is `cluster`.
pub type Infrastructure = Resource<InfrastructureSpec>;
/// Settings of the API server; its name is `cluster`.
pub type ApiServer = Resource<ApiServerSpec>;
/// Images by tag.
pub type ImageStream = Resource<ImageStreamSpec>;

/// What the pods of some users may do; all fields lie at the root.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecurityContextConstraintsSpec {
    /// Mount directories of the host.
    pub allow_host_dir_volume_plugin: Option<bool>,
    /// Share the host's IPC namespace.
    #[serde(rename = "allowHostIPC")]
    pub allow_host_ipc: Option<bool>,
    /// Share the host's network.
    pub allow_host_network: Option<bool>,
    /// See the host's processes.
    #[serde(rename = "allowHostPID")]
    pub allow_host_pid: Option<bool>,
    /// Listen on ports of the host.
    pub allow_host_ports: Option<bool>,
    /// Gain privileges after the start.
    pub allow_privilege_escalation: Option<bool>,
    /// Run privileged.
    pub allow_privileged_container: Option<bool>,
    /// Capabilities that pods may ask for; `*` for all.
    pub allowed_capabilities: Option<Vec<String>>,
    /// Unsafe sysctls that pods may set; `*` for all.
    pub allowed_unsafe_sysctls: Option<Vec<String>>,
    /// Capabilities that all containers get.
    pub default_add_capabilities: Option<Vec<String>>,
    /// Capabilities that all containers lose.
    pub required_drop_capabilities: Option<Vec<String>>,
    /// Whether the root file system must be read-only.
    pub read_only_root_filesystem: Option<bool>,
    /// Groups of volumes.
    pub fs_group: Option<Strategy>,
    /// Users of processes.
    pub run_as_user: Option<Strategy>,
    /// SELinux labels.
    pub se_linux_context: Option<Strategy>,
    /// Further groups of processes.
    pub supplemental_groups: Option<Strategy>,
    /// Seccomp profiles that pods may ask for; `*` for all.
    pub seccomp_profiles: Option<Vec<String>>,
    /// Kinds of volumes that pods may have; `*` for all.
    pub volumes: Option<Vec<String>>,
    /// Groups whose pods may do all this.
    pub groups: Option<Vec<String>>,
    /// Users whose pods may do all this, such as `system:serviceaccount:NAMESPACE:NAME`.
    pub users: Option<Vec<String>>,
}

impl Kind for SecurityContextConstraintsSpec {
    type Status = NoStatus;
    type Scope = Cluster;
    const GROUP: &'static str = "security.openshift.io";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "SecurityContextConstraints";
    const PLURAL: &'static str = "securitycontextconstraints";
    const LAYOUT: Layout = Layout::Flat;
}

/// Which values pods may choose.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Strategy {
    /// `RunAsAny` for all values.
    #[serde(rename = "type")]
    pub type_: Option<String>,
}

/// Nothing that we read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterVersionSpec {}

impl Kind for ClusterVersionSpec {
    type Status = ClusterVersionStatus;
    type Scope = Cluster;
    const GROUP: &'static str = CONFIG;
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "ClusterVersion";
    const PLURAL: &'static str = "clusterversions";
}

/// Versions of the cluster.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterVersionStatus {
    /// Updates, newest first; the cluster runs the first one that is `Completed`.
    pub history: Option<Vec<Update>>,
}

/// An update of the cluster.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Update {
    /// `Completed` or `Partial`.
    pub state: Option<String>,
    /// Version that it leads to.
    pub version: Option<String>,
}

/// Proxy between the cluster and the world.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxySpec {
    /// For HTTP requests.
    pub http_proxy: Option<String>,
    /// For HTTPS requests.
    pub https_proxy: Option<String>,
    /// Hosts that are reached without it, separated by commas.
    pub no_proxy: Option<String>,
    /// ConfigMap with certificates to trust.
    #[serde(rename = "trustedCA")]
    pub trusted_ca: Option<NameRef>,
}

impl Kind for ProxySpec {
    type Status = NoStatus;
    type Scope = Cluster;
    const GROUP: &'static str = CONFIG;
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "Proxy";
    const PLURAL: &'static str = "proxies";
}

/// Nothing that we read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InfrastructureSpec {}

impl Kind for InfrastructureSpec {
    type Status = InfrastructureStatus;
    type Scope = Cluster;
    const GROUP: &'static str = CONFIG;
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "Infrastructure";
    const PLURAL: &'static str = "infrastructures";
}

/// Where the cluster runs.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InfrastructureStatus {
    /// Where the control plane runs: `External` for a hosted one (HyperShift), which has no machine configuration.
    pub control_plane_topology: Option<String>,
}

/// Settings of the API server.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiServerSpec {
    /// Who must follow the profile: everybody if `StrictAllComponents`.
    pub tls_adherence: Option<String>,
    /// TLS that servers offer.
    pub tls_security_profile: Option<TlsProfile>,
}

impl Kind for ApiServerSpec {
    type Status = NoStatus;
    type Scope = Cluster;
    const GROUP: &'static str = CONFIG;
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "APIServer";
    const PLURAL: &'static str = "apiservers";
}

/// TLS that servers offer.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TlsProfile {
    /// `Old`, `Intermediate`, `Modern` or `Custom`.
    #[serde(rename = "type")]
    pub type_: Option<String>,
    /// The profile, if it is `Custom`.
    pub custom: Option<CustomTlsProfile>,
}

/// A TLS profile in full.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomTlsProfile {
    /// Ciphers, by the names of OpenSSL.
    pub ciphers: Option<Vec<String>>,
    /// Key exchange groups.
    pub groups: Option<Vec<String>>,
    /// Oldest version, such as `VersionTLS12`.
    #[serde(rename = "minTLSVersion")]
    pub min_tls_version: Option<String>,
}

/// Images by tag.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageStreamSpec {
    /// The tags.
    pub tags: Option<Vec<ImageTag>>,
}

impl Kind for ImageStreamSpec {
    type Status = NoStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = "image.openshift.io";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "ImageStream";
    const PLURAL: &'static str = "imagestreams";
}

/// A tag and its image.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageTag {
    /// The tag; of the driver toolkit, the version of the host's operating system.
    pub name: Option<String>,
    /// The image.
    pub from: Option<NameRef>,
}

#[cfg(test)]
mod tests {
    use super::super::tests::assert_survives;
    use super::*;
    use serde_json::json;

    #[test]
    fn constraints_lie_at_the_root() {
        assert_survives::<SecurityContextConstraintsSpec>(&json!({
            "apiVersion": "security.openshift.io/v1",
            "kind": "SecurityContextConstraints",
            "metadata": {"name": "nvidia-driver"},
            "allowHostDirVolumePlugin": true,
            "allowHostIPC": false,
            "allowHostNetwork": false,
            "allowHostPID": true,
            "allowHostPorts": false,
            "allowPrivilegeEscalation": true,
            "allowPrivilegedContainer": true,
            "allowedCapabilities": ["*"],
            "allowedUnsafeSysctls": ["*"],
            "defaultAddCapabilities": [],
            "requiredDropCapabilities": [],
            "readOnlyRootFilesystem": false,
            "fsGroup": {"type": "RunAsAny"},
            "runAsUser": {"type": "RunAsAny"},
            "seLinuxContext": {"type": "RunAsAny"},
            "supplementalGroups": {"type": "RunAsAny"},
            "seccompProfiles": ["*"],
            "volumes": ["*"],
            "groups": ["system:cluster-admins", "system:nodes", "system:masters"],
            "users": ["system:serviceaccount:gpu-operator:nvidia-driver"],
        }));
    }

    #[test]
    fn constraints_may_hold_nulls() {
        let read: SecurityContextConstraints = serde_json::from_value(json!({
            "apiVersion": "security.openshift.io/v1",
            "kind": "SecurityContextConstraints",
            "metadata": {"name": "privileged"},
            "priority": null,
            "defaultAddCapabilities": null,
            "allowedCapabilities": ["*"],
        }))
        .unwrap();
        assert_eq!(
            (read.spec.default_add_capabilities, read.spec.allowed_capabilities),
            (None, Some(vec!["*".into()]))
        );
    }

    #[test]
    fn version_survives() {
        assert_survives::<ClusterVersionSpec>(&json!({
            "apiVersion": "config.openshift.io/v1",
            "kind": "ClusterVersion",
            "metadata": {"name": "version"},
            "spec": {},
            "status": {"history": [
                {"state": "Partial", "version": "4.20.1"},
                {"state": "Completed", "version": "4.19.12"},
            ]},
        }));
    }

    #[test]
    fn proxy_survives() {
        assert_survives::<ProxySpec>(&json!({
            "apiVersion": "config.openshift.io/v1",
            "kind": "Proxy",
            "metadata": {"name": "cluster"},
            "spec": {
                "httpProxy": "http://proxy:3128",
                "httpsProxy": "http://proxy:3128",
                "noProxy": ".svc,10.0.0.0/8",
                "trustedCA": {"name": "user-ca-bundle"},
            },
        }));
    }

    #[test]
    fn infrastructure_survives() {
        assert_survives::<InfrastructureSpec>(&json!({
            "apiVersion": "config.openshift.io/v1",
            "kind": "Infrastructure",
            "metadata": {"name": "cluster"},
            "spec": {},
            "status": {"controlPlaneTopology": "External"},
        }));
    }

    #[test]
    fn api_server_survives() {
        assert_survives::<ApiServerSpec>(&json!({
            "apiVersion": "config.openshift.io/v1",
            "kind": "APIServer",
            "metadata": {"name": "cluster"},
            "spec": {
                "tlsAdherence": "StrictAllComponents",
                "tlsSecurityProfile": {
                    "type": "Custom",
                    "custom": {
                        "ciphers": ["ECDHE-RSA-AES128-GCM-SHA256"],
                        "groups": ["X25519"],
                        "minTLSVersion": "VersionTLS12",
                    },
                },
            },
        }));
    }

    #[test]
    fn image_stream_survives() {
        assert_survives::<ImageStreamSpec>(&json!({
            "apiVersion": "image.openshift.io/v1",
            "kind": "ImageStream",
            "metadata": {"name": "driver-toolkit", "namespace": "openshift"},
            "spec": {"tags": [
                {"name": "418.94.202501221327-0", "from": {"name": "quay.io/openshift-release-dev/ocp@sha256:0"}},
                {"name": "latest"},
            ]},
        }));
    }
}
