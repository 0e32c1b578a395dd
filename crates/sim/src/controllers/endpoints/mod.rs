//! Endpoints controllers: the ready pods of a Service, as EndpointSlices and as the older Endpoints object.

mod legacy;
mod mirror;
mod slices;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, ObjectReference, Service, ServicePort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::common::{Controller, debounce_delay, name_of, namespace_of};
use super::pods;
use crate::Pod;
use crate::context::Context;
use crate::informer::key_of;
use capstan_semantics::label_selector::{Labels, contains};

/// Debounce of pod changes: pods often change together. The delay grows with the number of pods.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// Label on endpoints of headless Services.
const HEADLESS: &str = "service.kubernetes.io/headless";

pub(crate) fn start(context: &Context) {
    slices::start(context);
    mirror::start(context);
    legacy::start(context);
}

/// Enqueues Services when they or their pods change.
fn watch(controller: &Controller) {
    let caches = &controller.context.caches;
    controller.watch(&caches.services);
    let (queue, services, all) = (controller.queue.clone(), caches.services.clone(), caches.pods.downgrade());
    caches.pods.subscribe(move |change| {
        if change.old.map(|pod| shape(pod)) == change.new.map(|pod| shape(pod)) {
            return;
        }
        let pods = [change.old, change.new];
        for service in services.in_namespace(namespace_of(&**change.last())) {
            let Some(selector) = selector(&service) else { continue };
            if pods.iter().flatten().any(|pod| contains(pod.metadata.labels.as_ref(), selector)) {
                let pods = all.upgrade().map_or(0, |pods| pods.len());
                queue.add_after(key_of(&service.metadata), DEBOUNCE.max(debounce_delay(pods)));
            }
        }
    });
}

/// The fields of a pod that affect its endpoint.
#[derive(Debug, PartialEq, Eq)]
struct Shape<'a> {
    ip: &'a str,
    ready: bool,
    deleting: bool,
    terminal: bool,
    node: &'a str,
    labels: Option<&'a Labels>,
}

fn shape(pod: &Pod) -> Shape<'_> {
    Shape {
        ip: ip(pod),
        ready: pods::is_ready(pod),
        deleting: pods::is_deleting(pod),
        terminal: pods::is_terminal(pod),
        node: pods::node_name(pod),
        labels: pod.metadata.labels.as_ref(),
    }
}

fn ip(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()).unwrap_or_default()
}

/// The selector of a Service, unless its endpoints are managed by the user.
fn selector(service: &Service) -> Option<&BTreeMap<String, String>> {
    let spec = service.spec.as_ref()?;
    spec.selector.as_ref().filter(|selector| !selector.is_empty() && spec.type_.as_deref() != Some("ExternalName"))
}

fn is_headless(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()) == Some("None")
}

fn publishes_not_ready(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses) == Some(true)
}

/// The pods of a Service with an IP that have not terminated.
fn members(controller: &Controller, service: &Service) -> Vec<Arc<Pod>> {
    let Some(selector) = selector(service) else { return Vec::new() };
    let mut pods = controller.context.caches.pods.in_namespace(namespace_of(service));
    pods.retain(|pod| {
        contains(pod.metadata.labels.as_ref(), selector) && !ip(pod).is_empty() && !pods::is_terminal(pod)
    });
    pods
}

fn target(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// The host name of a pod in a headless Service.
fn hostname(service: &Service, pod: &Pod) -> Option<String> {
    let spec = pods::spec(pod);
    let subdomain = spec.subdomain.as_deref().is_some_and(|subdomain| subdomain == name_of(service));
    spec.hostname.clone().filter(|name| !name.is_empty() && subdomain)
}

/// The container port that a Service port targets; `None` if the pod has no such port.
fn target_port(port: &ServicePort, pod: &Pod) -> Option<i32> {
    match &port.target_port {
        None => Some(port.port),
        Some(IntOrString::Int(0)) => Some(port.port),
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::String(name)) => {
            let spec = pods::spec(pod);
            let sidecars = spec.init_containers.iter().flatten();
            let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
            let mut containers: Box<dyn Iterator<Item = &Container>> = Box::new(spec.containers.iter().chain(sidecars));
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            containers.find_map(|container| {
                let ports = container.ports.iter().flatten();
                let mut ports = ports.filter(|one| one.protocol.as_deref().unwrap_or("TCP") == protocol);
                ports.find(|one| one.name.as_deref() == Some(name)).map(|one| one.container_port)
            })
        }
    }
}

/// Labels that endpoints inherit from their Service, and the headless label.
fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.remove(HEADLESS);
    if is_headless(service) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels
}

/// Name and namespace of the endpoints of a Service.
fn meta_for(service: &Service) -> ObjectMeta {
    ObjectMeta { namespace: service.metadata.namespace.clone(), ..ObjectMeta::default() }
}
