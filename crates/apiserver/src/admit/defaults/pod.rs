//! Defaults of pods and pod templates.

use serde_json::{Map, Value};

use super::volume;
use crate::admit::json::{Fill, Read};

/// A pod, which has more defaults than a template: requests default to limits.
pub(super) fn pod(pod: &mut Value) {
    let Some(spec) = pod.inner_or_new("spec") else { return };
    for key in ["containers", "initContainers"] {
        for container in spec.items(key) {
            if let Some(resources) = container.inner("resources") {
                requests_from_limits(resources);
            }
        }
    }
    spec.fill("enableServiceLinks", true);
    if spec.number("terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
        spec.put("terminationGracePeriodSeconds", 1);
    }
    if spec.flag("hostNetwork") {
        for key in ["containers", "initContainers"] {
            spec.items(key).flat_map(|container| container.items("ports")).for_each(|port| {
                let number = port.number("containerPort").unwrap_or(0);
                port.fill_zero("hostPort", number);
            });
        }
    }
    self::spec(spec);
    if let Some(status) = pod.inner("status") {
        plural_of(status, "podIP", "podIPs");
        plural_of(status, "hostIP", "hostIPs");
    }
}

/// `podIP` and `podIPs` (and the like) mirror each other: the list wins, unless its first item differs.
fn plural_of(status: &mut Value, one: &str, many: &str) {
    let single = status.text(one).to_owned();
    let first = status.list(many).first().map(|item| item.text("ip").to_owned()).unwrap_or_default();
    if single.is_empty() && !first.is_empty() {
        status.put(one, first);
    } else if !single.is_empty() && single != first {
        status.put(many, vec![serde_json::json!({"ip": single})]);
    }
}

fn requests_from_limits(resources: &mut Value) {
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else { return };
    if limits.is_empty() {
        return;
    }
    let Some(requests) = resources.inner_or_new("requests") else { return };
    for (name, limit) in limits {
        requests.fill(&name, limit);
    }
}

/// The spec of a pod or template.
pub(super) fn spec(spec: &mut Value) {
    spec.fill_zero("dnsPolicy", "ClusterFirst");
    spec.fill_zero("restartPolicy", "Always");
    spec.fill("securityContext", Map::new());
    spec.fill("terminationGracePeriodSeconds", 30);
    spec.fill_zero("schedulerName", "default-scheduler");
    service_account(spec);
    for volume in spec.items("volumes") {
        volume::volume(volume);
    }
    for key in ["initContainers", "containers", "ephemeralContainers"] {
        spec.items(key).for_each(container);
    }
}

/// `serviceAccount`, the deprecated alias, mirrors `serviceAccountName`.
fn service_account(spec: &mut Value) {
    let name = match spec.text("serviceAccountName") {
        "" => spec.text("serviceAccount").to_owned(),
        name => name.to_owned(),
    };
    if !name.is_empty() {
        spec.put("serviceAccountName", name.as_str());
        spec.put("serviceAccount", name);
    }
}

fn container(container: &mut Value) {
    let policy = pull_policy(container.text("image"));
    container.fill_zero("imagePullPolicy", policy);
    container.fill_zero("terminationMessagePath", "/dev/termination-log");
    container.fill_zero("terminationMessagePolicy", "File");
    container.fill("resources", Map::new());
    for port in container.items("ports") {
        port.fill_zero("protocol", "TCP");
    }
    for variable in container.items("env") {
        if let Some(field) = variable.inner("valueFrom").and_then(|from| from.inner("fieldRef")) {
            field.fill_zero("apiVersion", "v1");
        }
        if let Some(key) = variable.inner("valueFrom").and_then(|from| from.inner("fileKeyRef")) {
            key.fill("optional", false);
        }
    }
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(it) = container.inner(key) {
            probe(it);
        }
    }
    if let Some(lifecycle) = container.inner("lifecycle") {
        // Behind a feature gate that is off by default: dropped.
        lifecycle.drop("stopSignal");
        if lifecycle.as_object().is_some_and(Map::is_empty) {
            container.drop("lifecycle");
        }
    }
    if let Some(lifecycle) = container.inner("lifecycle") {
        for key in ["postStart", "preStop"] {
            if let Some(action) = lifecycle.inner(key) {
                http_get(action);
            }
        }
    }
}

fn probe(probe: &mut Value) {
    probe.fill_zero("timeoutSeconds", 1);
    probe.fill_zero("periodSeconds", 10);
    probe.fill_zero("successThreshold", 1);
    probe.fill_zero("failureThreshold", 3);
    http_get(probe);
    if let Some(grpc) = probe.inner("grpc") {
        grpc.fill("service", "");
    }
}

fn http_get(action: &mut Value) {
    if let Some(get) = action.inner("httpGet") {
        get.fill_zero("path", "/");
        get.fill_zero("scheme", "HTTP");
    }
}

/// The default pull policy: `Always` if the tag is or implies `latest`.
pub(in crate::admit) fn pull_policy(image: &str) -> &'static str {
    let (name, digest) = image.split_once('@').map_or((image, false), |(name, _)| (name, true));
    let last = name.rsplit('/').next().unwrap_or_default();
    let tag = last.split_once(':').map(|(_, tag)| tag);
    match tag {
        _ if image.is_empty() => "IfNotPresent",
        Some("latest") => "Always",
        None if !digest => "Always",
        _ => "IfNotPresent",
    }
}
