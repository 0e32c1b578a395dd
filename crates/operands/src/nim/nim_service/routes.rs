//! External exposure: an Ingress, or Gateway routes.

use capstan_api::common::{BackendRef, Router};
use capstan_api::foreign::InferencePool;
use capstan_plan::kit::expose::{self, to_service};
use k8s_openapi::api::networking::v1::Ingress;

use super::parts::Parts;
use super::{Cx, names, service};

/// Adds the objects of the spec.
pub(super) fn add(cx: &Cx<'_>, parts: &mut Parts) {
    if let Some(ingress) = ingress(cx) {
        parts.add(&ingress);
    }
    let Some(router) = router(cx) else { return };
    let Some((gateway, host)) = expose::gateway(router).zip(host(cx)) else { return };
    let (field, metadata) = ("spec.expose.router.gateway", || names::annotated(cx, router.annotations.as_ref()));
    if let Some(route) = expose::http_route(metadata(), gateway, &host, backend(cx)) {
        parts.add_if_served(cx, field, &route);
    }
    let grpc_port = service::exposure(cx).and_then(|service| service.grpc_port);
    let route = grpc_port.and_then(|port| expose::grpc_route(metadata(), gateway, &host, to_service(&cx.name, port)));
    if let Some(route) = route {
        parts.add_if_served(cx, field, &route);
    }
}

pub(super) fn router<'a>(cx: &Cx<'a>) -> Option<&'a Router> {
    cx.spec().expose.as_ref()?.router.as_ref()
}

/// External host name.
pub(super) fn host(cx: &Cx<'_>) -> Option<String> {
    expose::host(router(cx)?, &cx.name, &cx.namespace)
}

/// The Ingress: the user's spec, else from the router.
fn ingress(cx: &Cx<'_>) -> Option<Ingress> {
    let raw = cx.spec().expose.as_ref().and_then(|expose| expose.ingress.as_ref());
    if let Some(raw) = raw.filter(|raw| raw.enabled == Some(true)) {
        let metadata = names::annotated(cx, raw.annotations.as_ref());
        return Some(Ingress { metadata, spec: Some(raw.spec.clone().unwrap_or_default()), ..Ingress::default() });
    }
    let router = router(cx)?;
    expose::ingress(names::annotated(cx, router.annotations.as_ref()), router, host(cx)?, &cx.name, "api")
}

/// The default backend: the InferencePool with an endpoint picker, else the Service.
fn backend(cx: &Cx<'_>) -> BackendRef {
    let picks = router(cx).is_some_and(|router| router.epp_config.is_some());
    if picks && cx.facts.serves::<InferencePool>() {
        return BackendRef {
            group: Some("inference.networking.k8s.io".into()),
            kind: Some("InferencePool".into()),
            name: cx.name.clone(),
            ..BackendRef::default()
        };
    }
    to_service(&cx.name, service::port(cx))
}
