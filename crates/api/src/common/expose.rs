//! Service, ingress and gateway routes in front of a server.
//!
//! The deprecated raw ingress block differs between NIM and NeMo kinds and is therefore not here.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::epp::EppConfig;

/// The Service in front of the pods. It always has the name of this object.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceExposure {
    /// Type of the Service: `ClusterIP` when unset, or `NodePort`, `LoadBalancer`.
    #[serde(rename = "type")]
    pub type_: Option<String>,
    /// Accepted and without effect: the Service is named after this object.
    pub name: Option<String>,
    /// Port of the HTTP API, on the Service and in the container.
    #[schemars(range(min = 1, max = 65535), extend("default" = 8000))]
    pub port: Option<i32>,
    /// Port of the gRPC API, for servers that have one.
    #[schemars(range(min = 1, max = 65535))]
    pub grpc_port: Option<i32>,
    /// Port of the metrics, for servers that serve them apart from the API.
    #[schemars(range(min = 1, max = 65535))]
    pub metrics_port: Option<i32>,
    /// Annotations of the Service; those that Capstan sets win.
    pub annotations: Option<BTreeMap<String, String>>,
    /// Labels of the Service; those that Capstan sets win.
    pub labels: Option<BTreeMap<String, String>>,
}

/// How clients outside the cluster reach the server: by an ingress or by a gateway, not by both.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(has(self.gateway) && has(self.ingress))",
    "message": "router: gateway and ingress are both set; remove one of them",
}]))]
pub struct Router {
    /// Domain of the host name, which becomes `<name>.<namespace>.<domain>`.
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^(([a-z0-9][a-z0-9\-]*[a-z0-9])|[a-z0-9]+\.)*([a-z]+|xn\-\-[a-z0-9]+)\.?$")
    )]
    pub host_domain_name: Option<String>,
    /// Annotations of the Ingress or of the routes.
    pub annotations: Option<BTreeMap<String, String>>,
    /// Creates an Ingress.
    pub ingress: Option<RouterIngress>,
    /// Creates Gateway API routes.
    pub gateway: Option<Gateway>,
    /// Runs an endpoint picker, which chooses the replica for each request of an inference gateway.
    pub epp_config: Option<EppConfig>,
}

/// Ingress of the router.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouterIngress {
    /// Ingress class, and so the controller, that serves the Ingress.
    #[schemars(length(min = 1))]
    pub ingress_class: String,
    /// Secret with certificate and key of the host; plain HTTP when unset.
    pub tls_secret_name: Option<String>,
}

/// Gateway to which the routes attach.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Gateway {
    /// Namespace of the Gateway.
    #[schemars(length(min = 1))]
    pub namespace: String,
    /// Name of the Gateway.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Creates an HTTPRoute to the HTTP port.
    #[schemars(extend("default" = true))]
    pub http_routes_enabled: Option<bool>,
    /// Creates a GRPCRoute to the gRPC port.
    #[schemars(extend("default" = false))]
    pub grpc_routes_enabled: Option<bool>,
    /// Where the HTTPRoute sends requests, instead of the Service of this object.
    pub backend_ref: Option<BackendRef>,
}

/// Target of a route, as in the Gateway API.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "(size(self.group) == 0 && self.kind == 'Service') ? has(self.port) : true",
    "message": "backendRef: a Service needs a port; set port",
}]))]
pub struct BackendRef {
    /// API group of the target; empty for the core group.
    #[schemars(
        length(max = 253),
        regex(pattern = r"^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"),
        extend("default" = "")
    )]
    pub group: Option<String>,
    /// Kind of the target, for example `Service` or `InferencePool`.
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$"),
        extend("default" = "Service")
    )]
    pub kind: Option<String>,
    /// Name of the target.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace of the target; this object's when unset. Another one needs a ReferenceGrant there.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: Option<String>,
    /// Port of the target; must be set for a Service.
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
    /// Share of the traffic in proportion to the other targets of the rule; 0 sends none.
    #[schemars(range(min = 0, max = 1_000_000), extend("default" = 1))]
    pub weight: Option<i32>,
}
