//! Service and ingress of a NeMo server.
//!
//! Service and router are those of the NIM kinds; gRPC and a metrics port of their own are refused here, because no NeMo
//! server has them.

use std::collections::BTreeMap;

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::common::{Router, ServiceExposure};

/// Service, ingress and gateway routes in front of a NeMo server.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!(has(self.service.grpcPort))",
        "message": "spec.expose.service.grpcPort: NeMo servers do not speak gRPC; remove grpcPort",
    },
    {
        "rule": "!(has(self.service.metricsPort))",
        "message": "spec.expose.service.metricsPort: NeMo servers serve metrics on their API port; remove metricsPort",
    },
]))]
pub struct NemoExpose {
    /// The Service in front of the pods.
    pub service: Option<ServiceExposure>,
    /// Ingress written out. Deprecated: use `router.ingress`.
    pub ingress: Option<NemoIngress>,
    /// Ingress or gateway routes with a host name made from that of this object.
    // Repeats the router's own rule, which the rules of a field would otherwise replace.
    #[schemars(extend("x-kubernetes-validations" = [
        {
            "rule": "!(has(self.gateway) && self.gateway.grpcRoutesEnabled)",
            "message": "spec.expose.router.gateway.grpcRoutesEnabled: NeMo servers do not speak gRPC; remove it or set \
                it to false",
        },
        {
            "rule": "!(has(self.gateway) && has(self.ingress))",
            "message": "router: gateway and ingress are both set; remove one of them",
        },
    ]))]
    pub router: Option<Router>,
}

/// An Ingress written out.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "(has(self.spec) && has(self.enabled) && self.enabled) || !has(self.enabled) || !self.enabled",
    "message": "spec.expose.ingress.spec: missing while the ingress is enabled; set ingressClassName and host",
}]))]
pub struct NemoIngress {
    /// Creates the Ingress; off when unset.
    pub enabled: Option<bool>,
    /// Annotations of the Ingress.
    pub annotations: Option<BTreeMap<String, String>>,
    /// Class, host and paths of the Ingress.
    pub spec: Option<NemoIngressSpec>,
}

/// Class, host and paths of an Ingress.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NemoIngressSpec {
    /// Ingress class, and so the controller, that serves the Ingress.
    #[schemars(regex(pattern = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"))]
    pub ingress_class_name: String,
    /// Host name under which clients reach the server.
    pub host: Option<String>,
    /// Paths that are sent to the server.
    pub paths: Option<Vec<NemoIngressPath>>,
}

/// A path that is sent to the server.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NemoIngressPath {
    /// Path to match.
    #[schemars(extend("default" = "/"))]
    pub path: Option<String>,
    /// How the path is matched: `Prefix`, `Exact` or `ImplementationSpecific`.
    #[schemars(extend("default" = "Prefix"))]
    pub path_type: Option<String>,
}
