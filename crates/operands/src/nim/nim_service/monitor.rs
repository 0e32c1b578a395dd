//! The ServiceMonitor by which Prometheus finds the metrics.

use capstan_api::foreign::ServiceMonitor;
use capstan_api::foreign::monitoring::{Endpoint, NamespaceSelector, ServiceMonitorSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::parts::Parts;
use super::{Cx, names, service};

/// Adds it where metrics are on.
pub(super) fn add(cx: &Cx<'_>, parts: &mut Parts) {
    let Some(metrics) = cx.spec().metrics.as_ref().filter(|metrics| metrics.enabled == Some(true)) else { return };
    let wanted = metrics.service_monitor.clone().unwrap_or_default();
    let mut metadata = names::annotated(cx, wanted.annotations.as_ref());
    let labels = metadata.labels.get_or_insert_default();
    labels.extend(wanted.additional_labels.clone().unwrap_or_default());
    // Without this one we would lose sight of our own object.
    labels.insert("app.kubernetes.io/managed-by".into(), names::MANAGED_BY.into());
    let scraped = |port: &str, path: &str| Endpoint {
        port: Some(port.into()),
        path: Some(path.into()),
        interval: wanted.interval.clone().filter(|text| !text.is_empty()),
        scrape_timeout: wanted.scrape_timeout.clone().filter(|text| !text.is_empty()),
        ..Endpoint::default()
    };
    let extra = service::exposure(cx).and_then(|service| service.metrics_port).map(|_| scraped("metrics", "/metrics"));
    let endpoints = std::iter::once(scraped("api", "/v1/metrics")).chain(extra).collect();
    let spec = ServiceMonitorSpec {
        selector: Some(LabelSelector { match_labels: Some(names::labels(cx)), ..LabelSelector::default() }),
        namespace_selector: Some(NamespaceSelector { match_names: Some(vec![cx.namespace.clone()]) }),
        endpoints: Some(endpoints),
        ..ServiceMonitorSpec::default()
    };
    parts.add_if_served(cx, "spec.metrics", &ServiceMonitor { metadata, spec, status: None });
}
