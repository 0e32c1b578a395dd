//! How Prometheus finds an operand, and the rules that it evaluates.

use std::collections::BTreeMap;

use capstan_api::foreign::monitoring::{Endpoint, NamespaceSelector, ServiceMonitorSpec};
use capstan_api::foreign::{PrometheusRule, ServiceMonitor};
use capstan_api::gpu::dcgm;
use capstan_plan::Object;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};

use super::Cx;
use super::access::meta;

/// A Service in front of the pods with label `app`, for one named port.
pub(crate) fn service(cx: &Cx<'_>, app: &str, port: &str, number: i32, spec: ServiceSpec) -> Object {
    let mut metadata = meta(cx, app, true);
    metadata.labels.get_or_insert_default().insert("app".into(), app.into());
    let ports = vec![ServicePort {
        name: Some(port.into()),
        port: number,
        target_port: Some(IntOrString::Int(number)),
        protocol: Some("TCP".into()),
        ..ServicePort::default()
    }];
    let spec = ServiceSpec { selector: Some(BTreeMap::from([("app".into(), app.into())])), ports: Some(ports), ..spec };
    Object::new(&Service { metadata, spec: Some(spec), ..Service::default() })
}

/// The same for a Prometheus that finds its targets by an annotation.
pub(crate) fn scraped(cx: &Cx<'_>, app: &str, port: &str, number: i32, spec: ServiceSpec) -> Object {
    service(cx, app, port, number, spec).annotated("prometheus.io/scrape", "true")
}

/// A ServiceMonitor for it, where the Prometheus operator is.
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
    let mut metadata = meta(cx, app, true);
    let labels = metadata.labels.get_or_insert_default();
    labels.insert("app".into(), app.into());
    let ours = labels.clone();
    labels.extend(settings.additional_labels.unwrap_or_default());
    // By this label we watch what is ours.
    labels.extend(ours.into_iter().filter(|(key, _)| key == "app.kubernetes.io/managed-by"));
    let endpoint = Endpoint {
        port: Some(port.into()),
        path: Some("/metrics".into()),
        interval: settings.interval,
        scrape_timeout: settings.scrape_timeout,
        honor_labels: settings.honor_labels,
        relabelings: settings.relabelings,
        ..Endpoint::default()
    };
    let spec = ServiceMonitorSpec {
        job_label: Some(job_label.into()),
        selector: Some(LabelSelector {
            match_labels: Some(BTreeMap::from([("app".into(), app.into())])),
            ..LabelSelector::default()
        }),
        namespace_selector: Some(NamespaceSelector { match_names: Some(vec![cx.namespace().into()]) }),
        endpoints: Some(vec![endpoint]),
        ..ServiceMonitorSpec::default()
    };
    let mut object = ServiceMonitor::new(app, spec);
    object.metadata = metadata;
    Some(Object::new(&object))
}

/// Rules for OpenShift's Prometheus: `groups` as they are written.
pub(crate) fn rules(cx: &Cx<'_>, name: &str, groups: Value) -> Option<Object> {
    if cx.cluster.openshift.is_none() || !cx.facts.serves::<PrometheusRule>() {
        return None;
    }
    let spec = serde_json::from_value(json!({"groups": groups})).expect("the rules are written here");
    let mut object = PrometheusRule::new(name, spec);
    object.metadata = meta(cx, name, true);
    Some(Object::new(&object))
}

/// One alert.
pub(crate) fn alert(name: &str, expr: &str, after: &str, summary: &str) -> Value {
    json!({
        "alert": name, "expr": expr, "for": after,
        "labels": {"severity": "warning"}, "annotations": {"summary": summary},
    })
}
