//! Prometheus scraping and rules.

use std::collections::BTreeMap;

use capstan_api::foreign::monitoring::{Endpoint, NamespaceSelector, ServiceMonitorSpec};
use capstan_api::foreign::{PrometheusRule, ServiceMonitor};
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};

use super::{MANAGED_BY, Scope};
use crate::Object;

/// A Service in front of the pods with label `app`, for one named port.
pub fn service(scope: &Scope, app: &str, port: &str, number: i32, spec: ServiceSpec) -> Object {
    let ports = vec![ServicePort {
        name: Some(port.into()),
        port: number,
        target_port: Some(IntOrString::Int(number)),
        protocol: Some("TCP".into()),
        ..ServicePort::default()
    }];
    let spec = ServiceSpec { selector: Some(BTreeMap::from([("app".into(), app.into())])), ports: Some(ports), ..spec };
    Object::new(&Service { metadata: labelled(scope, app, app), spec: Some(spec), ..Service::default() })
}

/// The same for annotation-based Prometheus discovery.
pub fn scraped_service(scope: &Scope, app: &str, port: &str, number: i32, spec: ServiceSpec) -> Object {
    service(scope, app, port, number, spec).annotated("prometheus.io/scrape", "true")
}

/// Metadata of an object of the namespace with label `app`.
pub fn labelled(scope: &Scope, name: &str, app: &str) -> ObjectMeta {
    let mut metadata = scope.meta(name);
    metadata.labels.get_or_insert_default().insert("app".into(), app.into());
    metadata
}

/// A ServiceMonitor for Services with the labels of `selector` in its own namespace, with more labels of the user.
pub fn service_monitor(
    mut metadata: ObjectMeta,
    more: Option<&BTreeMap<String, String>>,
    selector: BTreeMap<String, String>,
    job_label: Option<&str>,
    endpoints: Vec<Endpoint>,
) -> ServiceMonitor {
    let labels = metadata.labels.get_or_insert_default();
    let manager = labels.get(MANAGED_BY).cloned();
    labels.extend(more.cloned().unwrap_or_default());
    // We watch by this label.
    labels.extend(manager.map(|manager| (MANAGED_BY.to_owned(), manager)));
    let spec = ServiceMonitorSpec {
        job_label: job_label.map(Into::into),
        selector: Some(LabelSelector { match_labels: Some(selector), ..LabelSelector::default() }),
        namespace_selector: Some(NamespaceSelector { match_names: metadata.namespace.clone().map(|one| vec![one]) }),
        endpoints: Some(endpoints),
        ..ServiceMonitorSpec::default()
    };
    ServiceMonitor { metadata, spec, status: None }
}

/// A PrometheusRule with these `groups`.
pub fn prometheus_rule(scope: &Scope, name: &str, groups: Value) -> Object {
    let spec = serde_json::from_value(json!({"groups": groups})).expect("callers write rules that decode");
    let mut object = PrometheusRule::new(name, spec);
    object.metadata = scope.meta(name);
    Object::new(&object)
}

/// One alert.
pub fn alert(name: &str, expr: &str, after: &str, summary: &str) -> Value {
    json!({
        "alert": name, "expr": expr, "for": after,
        "labels": {"severity": "warning"}, "annotations": {"summary": summary},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_monitor_stays_ours_whatever_labels_the_user_adds() {
        let scope = Scope { namespace: "n".into(), manager: "m", ..Scope::default() };
        let more = BTreeMap::from([(MANAGED_BY.to_owned(), "you".to_owned()), ("release".into(), "prom".into())]);
        let monitor = service_monitor(scope.meta("s"), Some(&more), BTreeMap::new(), None, vec![]);
        let labels = monitor.metadata.labels.unwrap();
        assert_eq!((labels[MANAGED_BY].as_str(), labels["release"].as_str()), ("m", "prom"));
        assert_eq!(monitor.spec.namespace_selector.unwrap().match_names, Some(vec!["n".to_owned()]));
    }
}
