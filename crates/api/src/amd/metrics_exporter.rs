//! Prometheus exporter of AMD GPU metrics.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use k8s_openapi::api::core::v1::{LocalObjectReference, ResourceRequirements, Toleration};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::Prometheus;
use super::operand::{HOST_PATH, IMAGE, Operand};

/// Exporter of GPU metrics and health.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetricsExporter {
    /// Whether the exporter runs; off when unset.
    pub enable: Option<bool>,
    /// Image (`docker.io/rocm/device-metrics-exporter:v0.0.1` when unset), nodes, rollout.
    #[serde(flatten)]
    pub operand: Operand,
    /// Taints that the pods put up with beside those of remediation.
    pub tolerations: Option<Vec<Toleration>>,
    /// Port of the Service and of the endpoint.
    #[schemars(extend("default" = 5000))]
    pub port: Option<i32>,
    /// How the Service is reached.
    #[schemars(extend("default" = "ClusterIP"))]
    pub service_type: Option<ExporterServiceType>,
    /// Port on each node with service type `NodePort`; Kubernetes picks one when unset.
    #[schemars(range(min = 30000, max = 32767))]
    pub node_port: Option<i32>,
    /// Which metrics and labels are exported.
    pub config: Option<ExporterConfig>,
    /// Directory on the host with the kubelet's pod resources socket, which ties GPUs to pods.
    #[schemars(regex(pattern = HOST_PATH), extend("default" = "/var/lib/kubelet/pod-resources"))]
    #[serde(rename = "podResourceAPISocketPath")]
    pub pod_resource_api_socket_path: Option<String>,
    /// Compute resources of the exporter.
    #[schemars(extend("default" = {
        "limits": {"cpu": "2", "memory": "4G"}, "requests": {"cpu": "500m", "memory": "512M"}
    }))]
    pub resource: Option<ResourceRequirements>,
    /// Access control in front of the endpoint.
    pub rbac_config: Option<RbacProxy>,
    /// How Prometheus finds the exporter.
    pub prometheus: Option<Prometheus>,
    /// Annotations of the pods.
    pub pod_annotations: Option<BTreeMap<String, String>>,
    /// Annotations of the Service.
    pub service_annotations: Option<BTreeMap<String, String>>,
    /// Whether the pods share the host's network.
    pub host_network: Option<bool>,
}

/// How the exporter's Service is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ExporterServiceType {
    /// From inside the cluster.
    #[default]
    #[serde(rename = "ClusterIP")]
    ClusterIp,
    /// On a port of each node.
    NodePort,
}

/// Which metrics and labels are exported.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExporterConfig {
    /// ConfigMap with the exporter's `config.json`; everything is exported when unset.
    pub name: Option<String>,
}

/// kube-rbac-proxy in front of the exporter: who may read metrics is up to the cluster's RBAC.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RbacProxy {
    /// Whether the proxy runs; off when unset.
    pub enable: Option<bool>,
    /// Image; `quay.io/brancz/kube-rbac-proxy:v0.18.1` when unset.
    #[schemars(regex(pattern = IMAGE))]
    pub image: Option<String>,
    /// Whether the proxy speaks plain HTTP.
    pub disable_https: Option<bool>,
    /// TLS Secret of the proxy; it signs its own certificate when unset.
    pub secret: Option<LocalObjectReference>,
    /// ConfigMap with the CA that client certificates must be signed by.
    #[serde(rename = "clientCAConfigMap")]
    pub client_ca_config_map: Option<LocalObjectReference>,
    /// One client that may read metrics without asking the API server.
    pub static_authorization: Option<StaticAuthorization>,
}

/// One client that may read metrics without asking the API server.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StaticAuthorization {
    /// Whether the rule is in force; off when unset.
    pub enable: Option<bool>,
    /// Common name of the client's certificate.
    pub client_name: Option<String>,
}
