//! Ingresses, NetworkPolicies, EndpointSlices.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;

use super::{labels, service, text};
use crate::admit::field::{At, Errors};
use crate::admit::json::Read;
use capstan_semantics::names;

const PROTOCOLS: &[&str] = &["TCP", "UDP", "SCTP"];

/// A DNS name that may start with `*.`.
fn wildcard(name: &str) -> Vec<String> {
    let good = name.strip_prefix("*.").is_some_and(|rest| names::dns_subdomain(rest).is_empty());
    let label = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
    let why = format!(
        "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower \
         case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used \
         for validation is '\\*\\.{label}(\\.{label})*')"
    );
    if good { Vec::new() } else { vec![why] }
}

fn host_name(errors: &mut Errors, at: &At<'_>, host: &str) {
    let wrong = if host.contains('*') { wildcard(host) } else { names::dns_subdomain(host) };
    errors.invalid_all(at, host, wrong);
}

/// An Ingress.
pub(super) fn ingress(errors: &mut Errors, ingress: &Value) {
    let (at, spec) = (At::new("spec"), &ingress["spec"]);
    let rules = spec.list("rules");
    if rules.is_empty() && !spec.has("defaultBackend") {
        let why = "either `defaultBackend` or `rules` must be specified";
        errors.invalid(&at, &spec["rules"], why);
    }
    if spec.has("defaultBackend") {
        backend(errors, &at.child("defaultBackend"), &spec["defaultBackend"]);
    }
    let path = at.child("rules");
    for (index, rule) in rules.iter().enumerate() {
        let at = path.index(index);
        let host = rule.text("host");
        if !host.is_empty() {
            if host.parse::<IpAddr>().is_ok() {
                errors.invalid(&at.child("host"), host, "must be a DNS name, not an IP address");
            }
            host_name(errors, &at.child("host"), host);
        }
        if rule.has("http") {
            let at = at.child("http");
            let at = at.child("paths");
            if rule["http"].list("paths").is_empty() {
                errors.required(&at, "");
            }
            for (index, path) in rule["http"].list("paths").iter().enumerate() {
                http_path(errors, &at.index(index), path);
            }
        }
    }
    let path = at.child("tls");
    for (index, tls) in spec.list("tls").iter().enumerate() {
        let at = path.index(index);
        let hosts = at.child("hosts");
        for (index, host) in tls.list("hosts").iter().enumerate() {
            host_name(errors, &hosts.index(index), host.as_str().unwrap_or_default());
        }
        let secret = tls.text("secretName");
        if !secret.is_empty() {
            errors.invalid_all(&at.child("secretName"), secret, names::dns_subdomain(secret));
        }
    }
    if let Some(class) = spec.get("ingressClassName").and_then(Value::as_str) {
        errors.invalid_all(&at.child("ingressClassName"), class, names::dns_subdomain(class));
    }
}

fn http_path(errors: &mut Errors, at: &At<'_>, rule: &Value) {
    let path = rule.text("path");
    let here = at.child("path");
    match rule.get("pathType").and_then(Value::as_str) {
        None => return errors.required(&at.child("pathType"), "pathType must be specified"),
        Some("Exact" | "Prefix") => {
            if !path.starts_with('/') {
                errors.invalid(&here, path, "must be an absolute path");
            }
            for part in ["//", "/./", "/../", "%2f", "%2F"].into_iter().filter(|part| path.contains(part)) {
                errors.invalid(&here, path, &format!("must not contain '{part}'"));
            }
            for end in ["/..", "/."].into_iter().filter(|end| path.ends_with(end)) {
                errors.invalid(&here, path, &format!("cannot end with '{end}'"));
            }
        }
        Some("ImplementationSpecific") if !path.is_empty() && !path.starts_with('/') => {
            errors.invalid(&here, path, "must be an absolute path");
        }
        Some("ImplementationSpecific") => {}
        Some(other) => {
            errors.unsupported(&at.child("pathType"), other, &["Exact", "ImplementationSpecific", "Prefix"]);
        }
    }
    backend(errors, &at.child("backend"), &rule["backend"]);
}

fn backend(errors: &mut Errors, at: &At<'_>, backend: &Value) {
    let (service, resource) = (&backend["service"], &backend["resource"]);
    match (service.is_object(), resource.is_object()) {
        (true, true) => errors.invalid(at, "", "cannot set both resource and service backends"),
        (false, false) => errors.invalid(at, "", "resource or service backend is required"),
        (false, true) => {
            for key in ["kind", "name"].into_iter().filter(|key| resource.text(key).is_empty()) {
                errors.required(&at.child("resource").child(key), "");
            }
        }
        (true, false) => {
            let path = at.child("service");
            match service.text("name") {
                "" => errors.required(&path.child("name"), ""),
                name => errors.invalid_all(&path.child("name"), name, names::dns_label(name)),
            }
            let port = path.child("port");
            match (service["port"].text("name"), service["port"].number("number").unwrap_or(0)) {
                ("", 0) => errors.required(at, "port name or number is required"),
                ("", number) => errors.invalid_all(&port.child("number"), &number, text::port_number(number)),
                (name, 0) => errors.invalid_all(&port.child("name"), name, text::port_name(name)),
                _ => errors.invalid(at, "", "cannot set both port name & port number"),
            }
        }
    }
}

/// An IngressClass.
pub(super) fn ingress_class(errors: &mut Errors, class: &Value, old: Option<&Value>) {
    let at = At::new("spec.controller");
    let controller = class["spec"].text("controller");
    if let Some(old) = old {
        errors.immutable(&at, &class["spec"]["controller"], &old["spec"]["controller"]);
    }
    if controller.is_empty() {
        return errors.required(&at, "");
    }
    match controller.split_once('/') {
        Some((host, path)) if !host.is_empty() && !path.is_empty() => {
            errors.invalid_all(&at, host, names::dns_subdomain(host));
        }
        _ => errors.invalid(&at, controller, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
    }
}

/// A NetworkPolicy.
pub(super) fn network_policy(errors: &mut Errors, policy: &Value) {
    let (at, spec) = (At::new("spec"), &policy["spec"]);
    labels::selector(errors, &at.child("podSelector"), &spec["podSelector"]);
    for (list, peers) in [("ingress", "from"), ("egress", "to")] {
        let path = at.child(list);
        for (index, rule) in spec.list(list).iter().enumerate() {
            let at = path.index(index);
            let ports = at.child("ports");
            for (index, port) in rule.list("ports").iter().enumerate() {
                policy_port(errors, &ports.index(index), port);
            }
            let path = at.child(peers);
            for (index, peer) in rule.list(peers).iter().enumerate() {
                policy_peer(errors, &path.index(index), peer);
            }
        }
    }
    let (types, path) = (spec.list("policyTypes"), at.child("policyTypes"));
    if types.len() > 2 {
        return errors.invalid(&path, &spec["policyTypes"], "may not specify more than two policyTypes");
    }
    for (index, kind) in types.iter().filter_map(Value::as_str).enumerate() {
        if !["Ingress", "Egress"].contains(&kind) {
            errors.unsupported(&path.index(index), kind, &["Ingress", "Egress"]);
        }
    }
}

fn policy_port(errors: &mut Errors, at: &At<'_>, port: &Value) {
    if let Some(protocol) = port.get("protocol").and_then(Value::as_str).filter(|one| !PROTOCOLS.contains(one)) {
        errors.unsupported(&at.child("protocol"), protocol, PROTOCOLS);
    }
    let (end, path) = (port.number("endPort"), at.child("endPort"));
    match (&port["port"], end) {
        (Value::Null, Some(end)) => errors.invalid(&path, &end, "may not be specified when `port` is not specified"),
        (Value::Null, None) => {}
        (Value::String(name), end) => {
            if let Some(end) = end {
                errors.invalid(&path, &end, "may not be specified when `port` is non-numeric");
            }
            errors.invalid_all(&at.child("port"), name, text::port_name(name));
        }
        (number, end) => {
            let number = number.as_i64().unwrap_or(0);
            errors.invalid_all(&at.child("port"), &number, text::port_number(number));
            if let Some(end) = end {
                if end < number {
                    errors.invalid(&path, &end, "must be greater than or equal to `port`");
                }
                errors.invalid_all(&path, &end, text::port_number(end));
            }
        }
    }
}

fn policy_peer(errors: &mut Errors, at: &At<'_>, peer: &Value) {
    let mut count = 0;
    for key in ["podSelector", "namespaceSelector"].into_iter().filter(|key| peer.has(key)) {
        count += 1;
        labels::selector(errors, &at.child(key), &peer[key]);
    }
    let block = &peer["ipBlock"];
    if block.is_object() {
        count += 1;
        let at = at.child("ipBlock");
        match block.text("cidr") {
            "" => errors.required(&at.child("cidr"), ""),
            range => text::cidr(errors, &at.child("cidr"), range),
        }
        let path = at.child("except");
        for (index, range) in block.list("except").iter().enumerate() {
            text::cidr(errors, &path.index(index), range.as_str().unwrap_or_default());
        }
    }
    if count == 0 {
        errors.required(at, "must specify a peer");
    } else if count > 1 && block.is_object() {
        errors.forbidden(at, "may not specify both ipBlock and another peer");
    }
}

/// An EndpointSlice.
pub(super) fn endpoint_slice(errors: &mut Errors, slice: &Value, old: Option<&Value>) {
    let kind = slice.text("addressType");
    match kind {
        "" => errors.required(&At::new("addressType"), ""),
        "IPv4" | "IPv6" | "FQDN" => {}
        other => errors.unsupported(&At::new("addressType"), other, &["FQDN", "IPv4", "IPv6"]),
    }
    slice_ports(errors, slice);
    let at = At::new("endpoints");
    let endpoints = slice.list("endpoints");
    if endpoints.len() > 1000 {
        errors.too_many(&at, endpoints.len(), 1000);
        return;
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        let at = at.index(index);
        let path = at.child("addresses");
        let addresses = endpoint.list("addresses");
        if addresses.is_empty() {
            errors.required(&path, "");
        } else if addresses.len() > 100 {
            errors.too_many(&path, addresses.len(), 100);
        }
        for (index, address) in addresses.iter().filter_map(Value::as_str).enumerate() {
            slice_address(errors, &path, index, kind, address);
        }
        if let Some(name) = endpoint.get("nodeName").and_then(Value::as_str) {
            errors.invalid_all(&at.child("nodeName"), name, names::dns_subdomain(name));
        }
        if let Some(name) = endpoint.get("hostname").and_then(Value::as_str) {
            errors.invalid_all(&at.child("hostname"), name, names::dns_label(name));
        }
    }
    if let Some(old) = old {
        errors.declared_immutable(&At::new("addressType"), &slice["addressType"], &old["addressType"]);
    }
}

fn slice_ports(errors: &mut Errors, slice: &Value) {
    let at = At::new("ports");
    let mut seen = BTreeSet::new();
    for (index, port) in slice.list("ports").iter().enumerate() {
        let at = at.index(index);
        let name = port.text("name");
        if !name.is_empty() {
            errors.invalid_all(&at.child("name"), name, names::dns_label(name));
        }
        if !seen.insert(name) {
            errors.duplicate(&at.child("name"), name);
        }
        match port.get("protocol").and_then(Value::as_str) {
            None => errors.required(&at.child("protocol"), ""),
            Some("TCP" | "UDP" | "SCTP") => {}
            Some(other) => errors.unsupported(&at.child("protocol"), other, &["SCTP", "TCP", "UDP"]),
        }
        if let Some(protocol) = port.get("appProtocol").and_then(Value::as_str) {
            labels::key(errors, &at.child("appProtocol"), protocol);
        }
    }
}

fn slice_address(errors: &mut Errors, at: &At<'_>, index: usize, kind: &str, address: &str) {
    match kind {
        "IPv4" | "IPv6" => {
            let here = at.index(index);
            let Ok(ip) = address.parse::<IpAddr>() else {
                text::address(errors, &here, address);
                return;
            };
            if ip.is_ipv4() != (kind == "IPv4") {
                errors.invalid(at, address, &format!("must be an {kind} address"));
            }
            service::endpoint_address(errors, &here, address);
        }
        "FQDN" => {
            let name = address.strip_suffix('.').unwrap_or(address);
            let wrong = names::dns_subdomain(name);
            if !wrong.is_empty() {
                errors.invalid(&at.index(index), name, &wrong.join(","));
            } else if !name.contains('.') {
                let why = "should be a domain with at least two segments separated by dots";
                errors.invalid(&at.index(index), name, why);
            }
        }
        _ => {}
    }
}
