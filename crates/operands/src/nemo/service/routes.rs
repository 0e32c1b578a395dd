//! What stands in front of the pods: Service, Ingress, HTTPRoute, autoscaler and monitor.

use capstan_api::common::{Router, ServiceExposure};
use capstan_api::foreign::monitoring::Endpoint;
use capstan_api::foreign::{HttpRoute, ServiceMonitor};
use capstan_api::nemo::expose::{NemoExpose, NemoIngressPath, NemoIngressSpec};
use capstan_plan::kit::autoscaler::autoscaler;
use capstan_plan::kit::expose::{self, to_service};
use capstan_plan::kit::monitoring::service_monitor;
use k8s_openapi::api::networking::v1::{
    HTTPIngressPath, HTTPIngressRuleValue, Ingress, IngressBackend, IngressRule, IngressServiceBackend, IngressSpec,
    ServiceBackendPort,
};

use super::{Built, Cx, names};

/// Port of the Service when the user names none.
const PORT: i32 = 8000;
/// Name of the port of the API, on the Service and in the container.
pub(super) const API: &str = "api";

/// Adds what the spec asks for.
pub(super) fn add(cx: &Cx<'_>, built: &mut Built) {
    built.add(&expose::service(names::meta(cx), exposure(cx), names::service_selector(cx), &ports(cx)));
    if let Some(ingress) = ingress(cx) {
        built.add(&ingress);
    }
    if let Some(route) = route(cx) {
        match cx.facts.serves::<HttpRoute>() {
            true => built.add(&route),
            false => built.missing_apis.push(
                "spec.expose.router.gateway needs HTTPRoute (gateway.networking.k8s.io/v1), which this cluster does not \
                 serve: install the CRDs of the Gateway API, or remove the field"
                    .into(),
            ),
        }
    }
    let scale = cx.service.server().scale.as_ref();
    let metadata = names::annotated(cx, scale.and_then(|scale| scale.annotations.as_ref()));
    if let Some(autoscaler) = autoscaler(metadata, scale, &cx.name) {
        built.add(&autoscaler);
    }
    if let Some(monitor) = monitor(cx) {
        match cx.facts.serves::<ServiceMonitor>() {
            true => built.add(&monitor),
            false => built.missing_apis.push(
                "spec.metrics needs ServiceMonitor (monitoring.coreos.com/v1), which this cluster does not serve: install \
                 the CRDs of the Prometheus operator, or remove the field"
                    .into(),
            ),
        }
    }
}

fn expose<'a>(cx: &Cx<'a>) -> Option<&'a NemoExpose> {
    cx.service.server().expose.as_ref()
}

/// What the user said about the Service; it may be absent.
pub(super) fn exposure<'a>(cx: &Cx<'a>) -> Option<&'a ServiceExposure> {
    expose(cx)?.service.as_ref()
}

/// Port of the API on the Service. That of the container is fixed.
pub(super) fn port(cx: &Cx<'_>) -> i32 {
    exposure(cx).and_then(|service| service.port).unwrap_or(PORT)
}

fn ports(cx: &Cx<'_>) -> Vec<(&'static str, i32)> {
    let further = cx.service.about().ports.iter().skip(1).copied();
    std::iter::once((API, port(cx))).chain(further).collect()
}

/// The router, unless it is an empty one, which the NIM Operator stores.
pub(super) fn router<'a>(cx: &Cx<'a>) -> Option<&'a Router> {
    expose(cx)?.router.as_ref().filter(|router| **router != Router::default())
}

/// The deprecated Ingress, where it is switched on and written out.
fn written<'a>(cx: &Cx<'a>) -> Option<&'a NemoIngressSpec> {
    let ingress = expose(cx)?.ingress.as_ref().filter(|ingress| ingress.enabled == Some(true))?;
    ingress.spec.as_ref()
}

/// Name under which clients outside reach the service.
pub(super) fn host(cx: &Cx<'_>) -> Option<String> {
    expose::host(router(cx)?, &cx.name, &cx.namespace)
}

/// The Ingress, as the user wrote it or as the router makes it. The former wins.
fn ingress(cx: &Cx<'_>) -> Option<Ingress> {
    if let Some(spec) = written(cx) {
        let annotations = expose(cx).and_then(|expose| expose.ingress.as_ref()?.annotations.as_ref());
        let root = NemoIngressPath::default();
        let listed = spec.paths.as_deref().filter(|paths| !paths.is_empty()).unwrap_or(std::slice::from_ref(&root));
        let paths = listed.iter().map(|path| to_api(cx, path)).collect();
        let host = spec.host.clone().filter(|host| !host.is_empty());
        let rule = IngressRule { host, http: Some(HTTPIngressRuleValue { paths }) };
        return Some(Ingress {
            metadata: names::annotated(cx, annotations),
            spec: Some(IngressSpec {
                ingress_class_name: Some(spec.ingress_class_name.clone()).filter(|class| !class.is_empty()),
                rules: Some(vec![rule]),
                ..IngressSpec::default()
            }),
            ..Ingress::default()
        });
    }
    let router = router(cx)?;
    expose::ingress(names::annotated(cx, router.annotations.as_ref()), router, host(cx)?, &cx.name, API)
}

fn to_api(cx: &Cx<'_>, path: &NemoIngressPath) -> HTTPIngressPath {
    let text = |value: &Option<String>, usual: &str| {
        value.clone().filter(|text| !text.is_empty()).unwrap_or_else(|| usual.into())
    };
    let port = ServiceBackendPort { name: Some(API.into()), ..ServiceBackendPort::default() };
    let backend = IngressServiceBackend { name: cx.name.clone(), port: Some(port) };
    HTTPIngressPath {
        path: Some(text(&path.path, "/")),
        path_type: text(&path.path_type, "Prefix"),
        backend: IngressBackend { service: Some(backend), ..IngressBackend::default() },
    }
}

fn route(cx: &Cx<'_>) -> Option<HttpRoute> {
    let router = router(cx)?;
    let (gateway, host) = expose::gateway(router).zip(host(cx))?;
    let metadata = names::annotated(cx, router.annotations.as_ref());
    expose::http_route(metadata, gateway, &host, to_service(&cx.name, port(cx)))
}

fn monitor(cx: &Cx<'_>) -> Option<ServiceMonitor> {
    let metrics = cx.service.server().metrics.as_ref().filter(|metrics| metrics.enabled == Some(true))?;
    let wanted = metrics.service_monitor.clone().unwrap_or_default();
    let scraped = Endpoint {
        port: Some(API.into()),
        interval: wanted.interval.clone().filter(|text| !text.is_empty()),
        scrape_timeout: wanted.scrape_timeout.clone().filter(|text| !text.is_empty()),
        ..Endpoint::default()
    };
    let metadata = names::annotated(cx, wanted.annotations.as_ref());
    Some(service_monitor(metadata, wanted.additional_labels.as_ref(), names::labels(cx), None, vec![scraped]))
}
