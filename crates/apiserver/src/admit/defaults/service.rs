//! Defaults of Services, endpoints, NetworkPolicies and IngressClasses.

use serde_json::{Value, json};

use crate::admit::json::{Fill, Read};

/// A Service. Allocated fields are set later.
pub(super) fn service(service: &mut Value) {
    let Some(spec) = service.inner_or_new("spec") else { return };
    spec.fill_zero("sessionAffinity", "None");
    match spec.text("sessionAffinity") {
        "None" => drop(spec.drop("sessionAffinityConfig")),
        "ClientIP" if !spec["sessionAffinityConfig"]["clientIP"].has("timeoutSeconds") => {
            spec.put("sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": 10800}}));
        }
        _ => {}
    }
    spec.fill_zero("type", "ClusterIP");
    for port in spec.items("ports") {
        port.fill_zero("protocol", "TCP");
        let number = port.get("port").cloned().unwrap_or_default();
        port.fill_zero("targetPort", number);
    }
    let kind = spec.text("type").to_owned();
    let inside = ["NodePort", "LoadBalancer", "ClusterIP"].contains(&kind.as_str());
    let outside = ["NodePort", "LoadBalancer"].contains(&kind.as_str());
    if outside || (kind == "ClusterIP" && !spec.list("externalIPs").is_empty()) {
        spec.fill_zero("externalTrafficPolicy", "Cluster");
    }
    if inside {
        spec.fill("internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        spec.fill("allocateLoadBalancerNodePorts", true);
    }
    let Some(balancer) = service.inner_or_new("status").and_then(|status| status.inner_or_new("loadBalancer")) else {
        return;
    };
    if kind == "LoadBalancer" {
        for ingress in balancer.items("ingress").filter(|ingress| !ingress.text("ip").is_empty()) {
            ingress.fill("ipMode", "VIP");
        }
    }
}

/// Endpoints.
pub(super) fn endpoints(endpoints: &mut Value) {
    endpoints.items("subsets").flat_map(|subset| subset.items("ports")).for_each(|port| {
        port.fill_zero("protocol", "TCP");
    });
}

/// An EndpointSlice.
pub(super) fn endpoint_slice(slice: &mut Value) {
    for port in slice.items("ports") {
        port.fill("name", "");
        port.fill("protocol", "TCP");
    }
}

/// A NetworkPolicy.
pub(super) fn network_policy(policy: &mut Value) {
    let Some(spec) = policy.inner("spec") else { return };
    for key in ["ingress", "egress"] {
        spec.items(key).flat_map(|rule| rule.items("ports")).for_each(|port| port.fill("protocol", "TCP"));
    }
    let types = if spec.list("egress").is_empty() { json!(["Ingress"]) } else { json!(["Ingress", "Egress"]) };
    spec.fill_zero("policyTypes", types);
}

/// An IngressClass.
pub(super) fn ingress_class(class: &mut Value) {
    if let Some(parameters) = class.inner("spec").and_then(|spec| spec.inner("parameters")) {
        parameters.fill("scope", "Cluster");
    }
}
