//! Exposure of a server: Service, Ingress, Gateway routes.

use std::collections::BTreeMap;

use capstan_api::common::{BackendRef, Gateway, Router, ServiceExposure};
use capstan_api::foreign::gateway::{
    GrpcRouteSpec, GrpcRule, HttpMatch, HttpRouteSpec, HttpRule, ParentRef, PathMatch,
};
use capstan_api::foreign::{GrpcRoute, HttpRoute};
use k8s_openapi::api::core::v1::{ContainerPort, Service, ServicePort, ServiceSpec};
use k8s_openapi::api::networking::v1::{
    HTTPIngressPath, HTTPIngressRuleValue, Ingress, IngressBackend, IngressRule, IngressServiceBackend, IngressSpec,
    IngressTLS, ServiceBackendPort,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::merge_maps;

/// A named port of a container.
pub fn container_port(name: &str, number: i32) -> ContainerPort {
    ContainerPort {
        name: Some(name.into()),
        container_port: number,
        protocol: Some("TCP".into()),
        ..ContainerPort::default()
    }
}

/// A Service with these named ports, each to the container port of the same name. `metadata` takes precedence over the
/// user's labels and annotations.
pub fn service(
    mut metadata: ObjectMeta,
    settings: Option<&ServiceExposure>,
    selector: BTreeMap<String, String>,
    ports: &[(&str, i32)],
) -> Service {
    let (labels, annotations) = (metadata.labels.take(), metadata.annotations.take());
    metadata.labels = labels.map(|own| merge_maps(own, settings.and_then(|service| service.labels.as_ref())));
    metadata.annotations =
        annotations.map(|own| merge_maps(own, settings.and_then(|service| service.annotations.as_ref())));
    let ports = ports.iter().map(|(name, port)| ServicePort {
        name: Some((*name).into()),
        port: *port,
        target_port: Some(IntOrString::String((*name).into())),
        protocol: Some("TCP".into()),
        ..ServicePort::default()
    });
    let type_ = settings.and_then(|service| service.type_.clone()).filter(|name| !name.is_empty());
    Service {
        metadata,
        spec: Some(ServiceSpec {
            type_: Some(type_.unwrap_or_else(|| "ClusterIP".into())),
            selector: Some(selector),
            ports: Some(ports.collect()),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// External host name of the server.
pub fn host(router: &Router, name: &str, namespace: &str) -> Option<String> {
    let domain = router.host_domain_name.as_deref().filter(|domain| !domain.is_empty())?;
    Some(format!("{name}.{namespace}.{domain}"))
}

/// The Gateway that the router names.
pub fn gateway(router: &Router) -> Option<&Gateway> {
    router.gateway.as_ref().filter(|gateway| !gateway.name.is_empty())
}

/// The Ingress of the router for `host`: all paths go to the named port of Service `service`.
pub fn ingress(metadata: ObjectMeta, router: &Router, host: String, service: &str, port: &str) -> Option<Ingress> {
    let wanted = router.ingress.as_ref().filter(|ingress| !ingress.ingress_class.is_empty())?;
    let port = ServiceBackendPort { name: Some(port.into()), ..ServiceBackendPort::default() };
    let backend = IngressServiceBackend { name: service.into(), port: Some(port) };
    let path = HTTPIngressPath {
        path: Some("/".into()),
        path_type: "Prefix".into(),
        backend: IngressBackend { service: Some(backend), ..IngressBackend::default() },
    };
    let secret = wanted.tls_secret_name.clone().filter(|name| !name.is_empty());
    let tls = secret.map(|name| vec![IngressTLS { hosts: Some(vec![host.clone()]), secret_name: Some(name) }]);
    let rule = IngressRule { host: Some(host), http: Some(HTTPIngressRuleValue { paths: vec![path] }) };
    Some(Ingress {
        metadata,
        spec: Some(IngressSpec {
            ingress_class_name: Some(wanted.ingress_class.clone()),
            rules: Some(vec![rule]),
            tls,
            ..IngressSpec::default()
        }),
        ..Ingress::default()
    })
}

/// The HTTPRoute from the Gateway, unless disabled. `default` is the backend if the user names none.
pub fn http_route(metadata: ObjectMeta, gateway: &Gateway, host: &str, default: BackendRef) -> Option<HttpRoute> {
    if gateway.http_routes_enabled == Some(false) {
        return None;
    }
    let root = PathMatch { type_: Some("PathPrefix".into()), value: Some("/".into()) };
    let rule = HttpRule {
        matches: Some(vec![HttpMatch { path: Some(root) }]),
        backend_refs: Some(vec![gateway.backend_ref.clone().unwrap_or(default)]),
    };
    let spec = HttpRouteSpec {
        parent_refs: Some(vec![parent(gateway)]),
        hostnames: Some(vec![host.into()]),
        rules: Some(vec![rule]),
    };
    Some(HttpRoute { metadata, spec, status: None })
}

/// The GRPCRoute from the Gateway, if enabled.
pub fn grpc_route(metadata: ObjectMeta, gateway: &Gateway, host: &str, backend: BackendRef) -> Option<GrpcRoute> {
    if gateway.grpc_routes_enabled != Some(true) {
        return None;
    }
    let spec = GrpcRouteSpec {
        parent_refs: Some(vec![parent(gateway)]),
        hostnames: Some(vec![host.into()]),
        rules: Some(vec![GrpcRule { backend_refs: Some(vec![backend]) }]),
    };
    Some(GrpcRoute { metadata, spec, status: None })
}

/// A Service as the backend of a route.
pub fn to_service(name: &str, port: i32) -> BackendRef {
    BackendRef { name: name.into(), port: Some(port), ..BackendRef::default() }
}

fn parent(gateway: &Gateway) -> ParentRef {
    ParentRef { name: gateway.name.clone(), namespace: Some(gateway.namespace.clone()) }
}

#[cfg(test)]
mod tests {
    use capstan_api::common::RouterIngress;

    use super::*;

    fn named() -> ObjectMeta {
        ObjectMeta { name: Some("s".into()), ..ObjectMeta::default() }
    }

    #[test]
    fn an_ingress_needs_a_class_and_routes_a_gateway() {
        let mut router = Router { host_domain_name: Some("example.com".into()), ..Router::default() };
        let host = host(&router, "s", "n").unwrap();
        assert_eq!(host, "s.n.example.com");
        assert!(ingress(named(), &router, host.clone(), "s", "api").is_none());
        assert!(gateway(&router).is_none());
        router.ingress = Some(RouterIngress { ingress_class: "nginx".into(), tls_secret_name: None });
        let ingress = ingress(named(), &router, host, "s", "api").unwrap();
        assert_eq!(ingress.spec.unwrap().rules.unwrap()[0].host.as_deref(), Some("s.n.example.com"));
    }

    #[test]
    fn routes_are_on_for_http_and_off_for_grpc() {
        let gateway = Gateway { name: "g".into(), namespace: "n".into(), ..Gateway::default() };
        assert!(http_route(named(), &gateway, "h", to_service("s", 1)).is_some());
        assert!(grpc_route(named(), &gateway, "h", to_service("s", 2)).is_none());
        let other = Gateway { http_routes_enabled: Some(false), grpc_routes_enabled: Some(true), ..gateway };
        assert!(http_route(named(), &other, "h", to_service("s", 1)).is_none());
        assert!(grpc_route(named(), &other, "h", to_service("s", 2)).is_some());
    }
}
