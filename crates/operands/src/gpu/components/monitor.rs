//! ServiceMonitors and PrometheusRules of components, where the Prometheus operator is installed.

use std::collections::BTreeMap;

use capstan_api::foreign::monitoring::Endpoint;
use capstan_api::foreign::{PrometheusRule, ServiceMonitor};
use capstan_api::gpu::dcgm;
use capstan_plan::Object;
use capstan_plan::kit::monitoring::{labelled, prometheus_rule, service_monitor};
use serde_json::Value;

use super::context::Cx;

/// A ServiceMonitor for the Service of that name.
pub(crate) fn monitor(
    cx: &Cx<'_>,
    app: &str,
    port: &str,
    job_label: &str,
    settings: Option<&dcgm::ServiceMonitor>,
) -> Option<Object> {
    if !cx.facts.serves::<ServiceMonitor>() {
        return None;
    }
    let settings = settings.cloned().unwrap_or_default();
    let endpoint = Endpoint {
        port: Some(port.into()),
        path: Some("/metrics".into()),
        interval: settings.interval,
        scrape_timeout: settings.scrape_timeout,
        honor_labels: settings.honor_labels,
        relabelings: settings.relabelings,
        ..Endpoint::default()
    };
    let (metadata, more) = (labelled(&cx.scope, app, app), settings.additional_labels.as_ref());
    let selector = BTreeMap::from([("app".into(), app.into())]);
    Some(Object::new(&service_monitor(metadata, more, selector, Some(job_label), vec![endpoint])))
}

/// A PrometheusRule on OpenShift, with these `groups`.
pub(crate) fn rules(cx: &Cx<'_>, name: &str, groups: Value) -> Option<Object> {
    let wanted = cx.cluster.openshift.is_some() && cx.facts.serves::<PrometheusRule>();
    wanted.then(|| prometheus_rule(&cx.scope, name, groups))
}
