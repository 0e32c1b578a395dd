//! Gateway API (gateway.networking.k8s.io/v1): routes from a Gateway to a Service or InferencePool.

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::common::BackendRef;
use crate::resource::{Kind, Namespaced, NoStatus, Resource};

const GROUP: &str = "gateway.networking.k8s.io";

/// HTTP requests that a Gateway hands on.
pub type HttpRoute = Resource<HttpRouteSpec>;
/// gRPC calls that a Gateway hands on.
pub type GrpcRoute = Resource<GrpcRouteSpec>;

/// HTTP requests that a Gateway hands on.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpRouteSpec {
    /// Gateways that it attaches to.
    pub parent_refs: Option<Vec<ParentRef>>,
    /// Hosts that it answers for.
    pub hostnames: Option<Vec<String>>,
    /// What goes where.
    pub rules: Option<Vec<HttpRule>>,
}

impl Kind for HttpRouteSpec {
    type Status = NoStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = GROUP;
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "HTTPRoute";
    const PLURAL: &'static str = "httproutes";
}

/// gRPC calls that a Gateway hands on.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrpcRouteSpec {
    /// Gateways that it attaches to.
    pub parent_refs: Option<Vec<ParentRef>>,
    /// Hosts that it answers for.
    pub hostnames: Option<Vec<String>>,
    /// Where calls go.
    pub rules: Option<Vec<GrpcRule>>,
}

impl Kind for GrpcRouteSpec {
    type Status = NoStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = GROUP;
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "GRPCRoute";
    const PLURAL: &'static str = "grpcroutes";
}

/// Gateway that a route attaches to.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ParentRef {
    /// Its name.
    pub name: String,
    /// Its namespace; the route's when unset.
    pub namespace: Option<String>,
}

/// Where some HTTP requests go.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpRule {
    /// Which requests; all when unset.
    pub matches: Option<Vec<HttpMatch>>,
    /// Where they go.
    pub backend_refs: Option<Vec<BackendRef>>,
}

/// Which HTTP requests.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpMatch {
    /// By path.
    pub path: Option<PathMatch>,
}

/// Which paths.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PathMatch {
    /// How `value` is compared: `PathPrefix` or `Exact`.
    #[serde(rename = "type")]
    pub type_: Option<String>,
    /// The path.
    pub value: Option<String>,
}

/// Where gRPC calls go.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrpcRule {
    /// Where they go.
    pub backend_refs: Option<Vec<BackendRef>>,
}

#[cfg(test)]
mod tests {
    use super::super::tests::assert_survives;
    use super::*;
    use serde_json::json;

    #[test]
    fn http_survives() {
        assert_survives::<HttpRouteSpec>(&json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "HTTPRoute",
            "metadata": {"name": "llm", "namespace": "nim"},
            "spec": {
                "parentRefs": [{"name": "gateway", "namespace": "infra"}],
                "hostnames": ["llm.nim.example.com"],
                "rules": [{
                    "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
                    "backendRefs": [{"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "llm"}],
                }],
            },
        }));
    }

    #[test]
    fn grpc_survives() {
        assert_survives::<GrpcRouteSpec>(&json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "GRPCRoute",
            "metadata": {"name": "llm", "namespace": "nim"},
            "spec": {
                "parentRefs": [{"name": "gateway", "namespace": "infra"}],
                "hostnames": ["llm.nim.example.com"],
                "rules": [{"backendRefs": [{"name": "llm", "port": 50051, "weight": 1}]}],
            },
        }));
    }
}
