//! Ways in from outside: an Ingress, or routes of a Gateway.

use capstan_api::common::{BackendRef, Gateway, Router};
use capstan_api::foreign::gateway::{
    GrpcRouteSpec, GrpcRule, HttpMatch, HttpRouteSpec, HttpRule, ParentRef, PathMatch,
};
use capstan_api::foreign::{GrpcRoute, HttpRoute, InferencePool};
use k8s_openapi::api::networking::v1::{
    HTTPIngressPath, HTTPIngressRuleValue, Ingress, IngressBackend, IngressRule, IngressServiceBackend, IngressSpec,
    IngressTLS, ServiceBackendPort,
};

use super::parts::Parts;
use super::{Cx, names, service};

/// Adds what the spec asks for.
pub(super) fn add(cx: &Cx<'_>, parts: &mut Parts) {
    if let Some(ingress) = ingress(cx) {
        parts.add(&ingress);
    }
    let Some((gateway, host)) = gateway(cx).zip(host(cx)) else { return };
    let (field, extra) = ("spec.expose.router.gateway", router(cx).and_then(|router| router.annotations.as_ref()));
    let (parents, hostnames) = (Some(vec![parent(gateway)]), Some(vec![host]));
    if gateway.http_routes_enabled != Some(false) {
        let root = PathMatch { type_: Some("PathPrefix".into()), value: Some("/".into()) };
        let rule = HttpRule {
            matches: Some(vec![HttpMatch { path: Some(root) }]),
            backend_refs: Some(vec![gateway.backend_ref.clone().unwrap_or_else(|| backend(cx))]),
        };
        let spec =
            HttpRouteSpec { parent_refs: parents.clone(), hostnames: hostnames.clone(), rules: Some(vec![rule]) };
        parts.add_if_served(cx, field, &HttpRoute { metadata: names::annotated(cx, extra), spec, status: None });
    }
    let grpc_port = service::exposure(cx).and_then(|service| service.grpc_port);
    if gateway.grpc_routes_enabled == Some(true)
        && let Some(port) = grpc_port
    {
        let rules = Some(vec![GrpcRule { backend_refs: Some(vec![to_service(cx, port)]) }]);
        let spec = GrpcRouteSpec { parent_refs: parents, hostnames, rules };
        parts.add_if_served(cx, field, &GrpcRoute { metadata: names::annotated(cx, extra), spec, status: None });
    }
}

pub(super) fn router<'a>(cx: &Cx<'a>) -> Option<&'a Router> {
    cx.spec().expose.as_ref()?.router.as_ref()
}

fn gateway<'a>(cx: &Cx<'a>) -> Option<&'a Gateway> {
    router(cx)?.gateway.as_ref().filter(|gateway| !gateway.name.is_empty())
}

/// Name under which clients outside reach the service.
pub(super) fn host(cx: &Cx<'_>) -> Option<String> {
    let domain = router(cx)?.host_domain_name.as_deref().filter(|domain| !domain.is_empty())?;
    Some(format!("{}.{}.{domain}", cx.name, cx.namespace))
}

/// The Ingress, as the user wrote it or as the router makes it. The former wins.
fn ingress(cx: &Cx<'_>) -> Option<Ingress> {
    let raw = cx.spec().expose.as_ref().and_then(|expose| expose.ingress.as_ref());
    if let Some(raw) = raw.filter(|raw| raw.enabled == Some(true)) {
        let metadata = names::annotated(cx, raw.annotations.as_ref());
        return Some(Ingress { metadata, spec: Some(raw.spec.clone().unwrap_or_default()), ..Ingress::default() });
    }
    let router = router(cx)?;
    let wanted = router.ingress.as_ref().filter(|ingress| !ingress.ingress_class.is_empty())?;
    let host = host(cx)?;
    let port = ServiceBackendPort { name: Some("api".into()), ..ServiceBackendPort::default() };
    let backend = IngressServiceBackend { name: cx.name.clone(), port: Some(port) };
    let path = HTTPIngressPath {
        path: Some("/".into()),
        path_type: "Prefix".into(),
        backend: IngressBackend { service: Some(backend), ..IngressBackend::default() },
    };
    let secret = wanted.tls_secret_name.clone().filter(|name| !name.is_empty());
    let tls = secret.map(|name| vec![IngressTLS { hosts: Some(vec![host.clone()]), secret_name: Some(name) }]);
    let rule = IngressRule { host: Some(host), http: Some(HTTPIngressRuleValue { paths: vec![path] }) };
    Some(Ingress {
        metadata: names::annotated(cx, router.annotations.as_ref()),
        spec: Some(IngressSpec {
            ingress_class_name: Some(wanted.ingress_class.clone()),
            rules: Some(vec![rule]),
            tls,
            ..IngressSpec::default()
        }),
        ..Ingress::default()
    })
}

fn parent(gateway: &Gateway) -> ParentRef {
    ParentRef { name: gateway.name.clone(), namespace: Some(gateway.namespace.clone()) }
}

/// Where requests go unless the user says: to the pool, where an endpoint picker chooses, or else to the Service.
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
    to_service(cx, service::port(cx))
}

fn to_service(cx: &Cx<'_>, port: i32) -> BackendRef {
    BackendRef { name: cx.name.clone(), port: Some(port), ..BackendRef::default() }
}
