//! The Service in front of the pods.

use capstan_api::common::ServiceExposure;
use capstan_plan::kit::expose;
use k8s_openapi::api::core::v1::Service;

use super::{Cx, names};

/// The default HTTP port.
const PORT: i32 = 8000;

/// The user's Service settings, if any.
pub(super) fn exposure<'a>(cx: &Cx<'a>) -> Option<&'a ServiceExposure> {
    cx.spec().expose.as_ref()?.service.as_ref()
}

/// Port of the HTTP API.
pub(super) fn port(cx: &Cx<'_>) -> i32 {
    exposure(cx).and_then(|service| service.port).unwrap_or(PORT)
}

/// Named ports, in order: of the Service and of the container.
pub(super) fn ports(cx: &Cx<'_>) -> Vec<(&'static str, i32)> {
    let extra = exposure(cx);
    let grpc = extra.and_then(|service| service.grpc_port).map(|port| ("grpc", port));
    let metrics = extra.and_then(|service| service.metrics_port).map(|port| ("metrics", port));
    [Some(("api", port(cx))), grpc, metrics].into_iter().flatten().collect()
}

pub(super) fn object(cx: &Cx<'_>) -> Service {
    expose::service(names::meta(cx), exposure(cx), names::selector(cx), &ports(cx))
}
