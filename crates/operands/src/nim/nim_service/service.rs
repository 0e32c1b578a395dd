//! The Service in front of the pods.

use capstan_api::common::ServiceExposure;
use capstan_plan::kit::merge_maps;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Cx, names};

/// Port of the model's HTTP API when the user names none.
const PORT: i32 = 8000;

/// What the user said about the Service; it may be absent.
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
    let exposure = exposure(cx);
    let mut metadata = names::meta(cx);
    let (labels, annotations) = (metadata.labels.take(), metadata.annotations.take());
    metadata.labels = labels.map(|own| merge_maps(own, exposure.and_then(|service| service.labels.as_ref())));
    metadata.annotations =
        annotations.map(|own| merge_maps(own, exposure.and_then(|service| service.annotations.as_ref())));
    let ports = ports(cx).into_iter().map(|(name, port)| ServicePort {
        name: Some(name.into()),
        port,
        target_port: Some(IntOrString::String(name.into())),
        protocol: Some("TCP".into()),
        ..ServicePort::default()
    });
    let type_ = exposure.and_then(|service| service.type_.clone()).filter(|name| !name.is_empty());
    Service {
        metadata,
        spec: Some(ServiceSpec {
            type_: Some(type_.unwrap_or_else(|| "ClusterIP".into())),
            selector: Some(names::selector(cx)),
            ports: Some(ports.collect()),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}
