//! The ServiceMonitor.

use capstan_api::foreign::monitoring::Endpoint;
use capstan_plan::kit::monitoring::service_monitor;

use super::parts::Parts;
use super::{Cx, names, service};

/// Adds it if metrics are enabled.
pub(super) fn add(cx: &Cx<'_>, parts: &mut Parts) {
    let Some(metrics) = cx.spec().metrics.as_ref().filter(|metrics| metrics.enabled == Some(true)) else { return };
    let wanted = metrics.service_monitor.clone().unwrap_or_default();
    let scraped = |port: &str, path: &str| Endpoint {
        port: Some(port.into()),
        path: Some(path.into()),
        interval: wanted.interval.clone().filter(|text| !text.is_empty()),
        scrape_timeout: wanted.scrape_timeout.clone().filter(|text| !text.is_empty()),
        ..Endpoint::default()
    };
    let extra = service::exposure(cx).and_then(|service| service.metrics_port).map(|_| scraped("metrics", "/metrics"));
    let endpoints = std::iter::once(scraped("api", "/v1/metrics")).chain(extra).collect();
    let (metadata, more) = (names::annotated(cx, wanted.annotations.as_ref()), wanted.additional_labels.as_ref());
    let monitor = service_monitor(metadata, more, names::labels(cx), None, endpoints);
    parts.add_if_served(cx, "spec.metrics", &monitor);
}
