//! Services and endpoints.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Value, json};

use super::{labels, text};
use crate::admit::field::{At, Errors};
use crate::admit::json::Read;
use capstan_semantics::names;

const FAMILIES: &[&str] = &["IPv4", "IPv6"];
const POLICIES: &[&str] = &["PreferDualStack", "RequireDualStack", "SingleStack"];
const TYPES: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

fn is_headless(spec: &Value) -> bool {
    spec["clusterIPs"] == json!(["None"])
}

fn is_outside(spec: &Value) -> bool {
    ["NodePort", "LoadBalancer"].contains(&spec.text("type"))
        || (spec.text("type") == "ClusterIP" && !spec.list("externalIPs").is_empty())
}

fn is_checked(spec: &Value) -> bool {
    spec.text("type") == "LoadBalancer" && spec.text("externalTrafficPolicy") == "Local"
}

/// A Service.
pub(super) fn service(errors: &mut Errors, service: &Value, old: Option<&Value>) {
    let (at, spec) = (At::new("spec"), &service["spec"]);
    if let Some(old) = old {
        update(errors, &at, spec, &old["spec"]);
    }
    let (kind, headless) = (spec.text("type"), is_headless(spec));
    if spec.list("ports").is_empty() && !headless && kind != "ExternalName" {
        errors.required(&at.child("ports"), "");
    }
    by_type(errors, &at, spec);
    ports(errors, &at.child("ports"), spec);
    labels::labels(errors, &at.child("selector"), &spec["selector"]);
    affinity(errors, &at, spec);
    addresses(errors, &at, spec);
    let external = at.child("externalIPs");
    for (index, ip) in spec.list("externalIPs").iter().enumerate() {
        endpoint_address(errors, &external.index(index), ip.as_str().unwrap_or_default());
    }
    match kind {
        "" => errors.required(&at.child("type"), ""),
        kind if !TYPES.contains(&kind) => errors.unsupported(&at.child("type"), kind, TYPES),
        _ => {}
    }
    port_uses(errors, &at.child("ports"), spec);
    balancer(errors, &at, spec);
    traffic(errors, &at, spec);
}

fn by_type(errors: &mut Errors, at: &At<'_>, spec: &Value) {
    let path = at.child("clusterIPs");
    match spec.text("type") {
        kind @ ("LoadBalancer" | "NodePort") if is_headless(spec) => {
            let why = format!("may not be set to 'None' for {kind} services");
            errors.invalid(&path.index(0), "None", &why);
        }
        "ExternalName" => {
            let why = "may not be set for ExternalName services";
            for key in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"].into_iter().filter(|key| spec.has(key)) {
                errors.forbidden(&at.child(key), why);
            }
            let name = spec.text("externalName");
            match name.strip_suffix('.').unwrap_or(name) {
                "" => errors.required(&at.child("externalName"), ""),
                name => errors.invalid_all(&at.child("externalName"), name, names::dns_subdomain(name)),
            }
        }
        _ => {}
    }
}

fn ports(errors: &mut Errors, at: &At<'_>, spec: &Value) {
    let ports = spec.list("ports");
    let mut seen = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let at = at.index(index);
        match port.text("name") {
            "" if ports.len() > 1 => errors.required(&at.child("name"), ""),
            "" => {}
            name => {
                errors.invalid_all(&at.child("name"), name, names::dns_label(name));
                if !seen.insert(name) {
                    errors.duplicate(&at.child("name"), name);
                }
            }
        }
        let number = port.number("port").unwrap_or(0);
        errors.invalid_all(&at.child("port"), &number, text::port_number(number));
        match port.text("protocol") {
            "" => errors.required(&at.child("protocol"), ""),
            protocol if !PROTOCOLS.contains(&protocol) => {
                errors.unsupported(&at.child("protocol"), protocol, PROTOCOLS);
            }
            _ => {}
        }
        text::port(errors, &at.child("targetPort"), &port["targetPort"]);
        if let Some(protocol) = port.get("appProtocol").and_then(Value::as_str) {
            labels::key(errors, &at.child("appProtocol"), protocol);
        }
    }
}

fn affinity(errors: &mut Errors, at: &At<'_>, spec: &Value) {
    let config = &spec["sessionAffinityConfig"];
    let path = at.child("sessionAffinityConfig");
    match spec.text("sessionAffinity") {
        "" => errors.required(&at.child("sessionAffinity"), ""),
        "ClientIP" => {
            let path = path.child("clientIP");
            let path = path.child("timeoutSeconds");
            match config["clientIP"].number("timeoutSeconds") {
                None => errors.required(&path, "when session affinity type is ClientIP"),
                Some(seconds) if !(1..=86400).contains(&seconds) => {
                    errors.invalid(&path, &seconds, "must be greater than 0 and less than 86400");
                }
                Some(_) => {}
            }
        }
        "None" if !config.is_null() => errors.forbidden(&path, "must not be set when session affinity is None"),
        "None" => {}
        other => errors.unsupported(&at.child("sessionAffinity"), other, &["ClientIP", "None"]),
    }
}

/// Cluster IPs, IP families and their consistency.
pub(in crate::admit) fn addresses(errors: &mut Errors, at: &At<'_>, spec: &Value) {
    if spec.text("type") == "ExternalName" {
        return;
    }
    let (one, all, path) = (spec.text("clusterIP"), spec.list("clusterIPs"), at.child("clusterIPs"));
    if !one.is_empty() && all.is_empty() {
        errors.required(&path, "");
    } else if !one.is_empty() && all[0] != one {
        errors.invalid(&path, &spec["clusterIPs"], "first value must match `clusterIP`");
    } else if one.is_empty() && !all.is_empty() {
        errors.invalid(&path, &spec["clusterIPs"], "must be empty when `clusterIP` is not specified");
    }
    let families = at.child("ipFamilies");
    let mut seen = BTreeSet::new();
    for (index, family) in spec.list("ipFamilies").iter().filter_map(Value::as_str).enumerate() {
        if !FAMILIES.contains(&family) {
            errors.unsupported(&families.index(index), family, FAMILIES);
        }
        if !seen.insert(family) {
            errors.duplicate(&families.index(index), family);
        }
    }
    if let Some(policy) = spec.get("ipFamilyPolicy").and_then(Value::as_str).filter(|one| !POLICIES.contains(one)) {
        errors.unsupported(&at.child("ipFamilyPolicy"), policy, POLICIES);
    }
    let mut parsed: Vec<IpAddr> = Vec::new();
    for (index, ip) in all.iter().filter_map(Value::as_str).enumerate() {
        if index == 0 && ip == "None" {
            if all.len() > 1 {
                errors.invalid(&path, &spec["clusterIPs"], "'None' must be the first and only value");
            }
            continue;
        }
        parsed.extend(text::address(errors, &path.index(index), ip));
    }
    if all.len() > 2 {
        errors.invalid(&path, &spec["clusterIPs"], "may only hold up to 2 values");
    }
    if let [first, second] = parsed.as_slice()
        && first.is_ipv4() == second.is_ipv4()
    {
        errors.invalid(&path, &spec["clusterIPs"], "may specify no more than one IP for each IP family");
    }
    for (index, (ip, family)) in parsed.iter().zip(spec.list("ipFamilies")).enumerate() {
        let own = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
        if let Some(family) = family.as_str().filter(|family| FAMILIES.contains(family) && *family != own) {
            let why = format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            errors.invalid(&path.index(index), &ip.to_string(), &why);
        }
    }
}

/// A valid endpoint address.
pub(super) fn endpoint_address(errors: &mut Errors, at: &At<'_>, address: &str) {
    let Some(ip) = text::address(errors, at, address) else { return };
    if ip.is_unspecified() {
        errors.invalid(at, address, &format!("may not be unspecified ({address})"));
    }
    if ip.is_loopback() {
        errors.invalid(at, address, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    if link_local {
        errors.invalid(at, address, "may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    let link_multicast = match ip {
        IpAddr::V4(ip) => ip.octets()[..3] == [224, 0, 0],
        IpAddr::V6(ip) => ip.segments()[0] & 0xff0f == 0xff02,
    };
    if link_multicast {
        errors.invalid(at, address, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}

fn port_uses(errors: &mut Errors, at: &At<'_>, spec: &Value) {
    let ports = spec.list("ports");
    for (index, port) in ports.iter().enumerate() {
        if spec.text("type") == "ClusterIP" && port.number("nodePort").unwrap_or(0) != 0 {
            errors.forbidden(&at.index(index).child("nodePort"), "may not be used when `type` is 'ClusterIP'");
        }
    }
    let (mut nodes, mut seen) = (BTreeSet::new(), BTreeSet::new());
    for (index, port) in ports.iter().enumerate() {
        let number = port.number("nodePort").unwrap_or(0);
        if number != 0 && !nodes.insert((port.text("protocol"), number)) {
            errors.duplicate(&at.index(index).child("nodePort"), &number);
        }
    }
    for (index, port) in ports.iter().enumerate() {
        if !seen.insert((port.text("protocol"), port.number("port"))) {
            let shown = PortKey { protocol: port.text("protocol"), port: port.number("port").unwrap_or(0) };
            errors.duplicate(&at.index(index), &shown);
        }
    }
}

/// The unique key of a port, as Go prints it.
struct PortKey<'a> {
    protocol: &'a str,
    port: i64,
}

impl crate::admit::field::Show for PortKey<'_> {
    fn show(&self) -> String {
        let Self { protocol, port } = self;
        format!(r#"{{"Name":"","Protocol":"{protocol}","AppProtocol":null,"Port":{port},"TargetPort":0,"NodePort":0}}"#)
    }
}

fn balancer(errors: &mut Errors, at: &At<'_>, spec: &Value) {
    let only = "may only be used when `type` is 'LoadBalancer'";
    let balancer = spec.text("type") == "LoadBalancer";
    let ranges = spec.list("loadBalancerSourceRanges");
    if !ranges.is_empty() {
        let at = at.child("LoadBalancerSourceRanges");
        if !balancer {
            errors.forbidden(&at, only);
        }
        for (index, range) in ranges.iter().enumerate() {
            text::cidr(errors, &at.index(index), range.as_str().unwrap_or_default().trim());
        }
    }
    if spec.has("allocateLoadBalancerNodePorts") && !balancer {
        errors.forbidden(&at.child("allocateLoadBalancerNodePorts"), only);
    }
    if let Some(class) = spec.get("loadBalancerClass").and_then(Value::as_str) {
        let at = at.child("loadBalancerClass");
        if balancer {
            labels::key(errors, &at, class);
        } else {
            errors.forbidden(&at, only);
        }
    }
}

fn traffic(errors: &mut Errors, at: &At<'_>, spec: &Value) {
    let (policy, path) = (spec.text("externalTrafficPolicy"), at.child("externalTrafficPolicy"));
    match (is_outside(spec), policy) {
        (false, "") | (true, "Cluster" | "Local") => {}
        (false, policy) => errors.invalid(&path, policy, "may only be set for externally-accessible services"),
        (true, "") => errors.required(&path, ""),
        (true, policy) => errors.unsupported(&path, policy, &["Cluster", "Local"]),
    }
    let (port, path) = (spec.number("healthCheckNodePort").unwrap_or(0), at.child("healthCheckNodePort"));
    match (is_checked(spec), port) {
        (false, 0) => {}
        (false, port) => {
            let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.invalid(&path, &port, why);
        }
        (true, 0) => errors.required(&path, ""),
        (true, port) => errors.invalid_all(&path, &port, text::port_number(port)),
    }
    let inside = ["NodePort", "LoadBalancer", "ClusterIP"].contains(&spec.text("type"));
    match spec.get("internalTrafficPolicy").and_then(Value::as_str) {
        None if inside => errors.required(&at.child("internalTrafficPolicy"), ""),
        None | Some("Cluster" | "Local") => {}
        Some(other) => errors.unsupported(&at.child("internalTrafficPolicy"), other, &["Cluster", "Local"]),
    }
    let known = &["PreferClose", "PreferSameZone", "PreferSameNode"];
    if let Some(other) = spec.get("trafficDistribution").and_then(Value::as_str).filter(|one| !known.contains(one)) {
        errors.unsupported(&at.child("trafficDistribution"), other, known);
    }
}

fn update(errors: &mut Errors, at: &At<'_>, spec: &Value, old: &Value) {
    if [spec, old].iter().all(|spec| spec.text("type") != "ExternalName") {
        let (now, was, path) = (spec.list("clusterIPs"), old.list("clusterIPs"), at.child("clusterIPs"));
        if !(is_headless(spec) && is_headless(old)) {
            if now.is_empty() && !was.is_empty() {
                errors.invalid(&path.index(0), &spec["clusterIPs"], "primary clusterIP can not be unset");
            }
            for (index, (now, was)) in now.iter().zip(was).enumerate() {
                if now != was {
                    errors.invalid(&path.index(index), &spec["clusterIPs"], "may not change once set");
                }
            }
        }
        let path = at.child("ipFamilies");
        let changed = spec.list("ipFamilies").iter().zip(old.list("ipFamilies")).any(|(now, was)| now != was);
        if changed && !is_headless(spec) && !is_headless(old) {
            errors.invalid(&path.index(0), &spec["ipFamilies"], "may not change once set");
        }
    }
    let balancers = [spec, old].iter().all(|spec| spec.text("type") == "LoadBalancer");
    if balancers && spec["loadBalancerClass"] != old["loadBalancerClass"] {
        errors.invalid(&at.child("loadBalancerClass"), &spec["loadBalancerClass"], "may not change once set");
    }
    if is_checked(spec) && is_checked(old) && spec["healthCheckNodePort"] != old["healthCheckNodePort"] {
        errors.forbidden(&at.child("healthCheckNodePort"), "field is immutable");
    }
}

/// Endpoints.
pub(super) fn endpoints(errors: &mut Errors, endpoints: &Value) {
    let at = At::new("subsets");
    for (index, subset) in endpoints.list("subsets").iter().enumerate() {
        let at = at.index(index);
        if subset.list("addresses").is_empty() && subset.list("notReadyAddresses").is_empty() {
            errors.required(&at, "must specify `addresses` or `notReadyAddresses`");
        }
        for list in ["addresses", "notReadyAddresses"] {
            let path = at.child(list);
            for (index, address) in subset.list(list).iter().enumerate() {
                let at = path.index(index);
                endpoint_address(errors, &at.child("ip"), address.text("ip"));
                if address.text("ip").parse::<IpAddr>().is_err() {
                    errors.invalid(&at.child("ip"), address.text("ip"), "must be a valid IP address");
                }
                let name = address.text("hostname");
                if !name.is_empty() {
                    errors.invalid_all(&at.child("hostname"), name, names::dns_label(name));
                }
            }
        }
        let path = at.child("ports");
        let ports = subset.list("ports");
        for (index, port) in ports.iter().enumerate() {
            let at = path.index(index);
            match port.text("name") {
                "" if ports.len() > 1 => errors.required(&at.child("name"), ""),
                "" => {}
                name => errors.invalid_all(&at.child("name"), name, names::dns_label(name)),
            }
            let number = port.number("port").unwrap_or(0);
            errors.invalid_all(&at.child("port"), &number, text::port_number(number));
            let protocol = port.text("protocol");
            if !PROTOCOLS.contains(&protocol) {
                errors.unsupported(&at.child("protocol"), protocol, PROTOCOLS);
            }
        }
    }
}
