//! Preparation of Services: cluster IPs, IP families and node ports are kept from the old object, released with the
//! type that needs them, or allocated.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::admit::allocate::{Allocator, Owner};
use crate::admit::field::{At, Errors, Show};
use crate::admit::json::{Fill, Read};
use crate::admit::validate::service as checks;
use crate::error::{Result, Status};
use crate::ops::{Request, Server};

/// Prepares a Service; `old` is `None` on create.
pub(super) fn prepare(
    allocator: &Allocator,
    request: &Request,
    service: &mut Value,
    old: Option<&Value>,
) -> Result<()> {
    let owner = Owner::of(service);
    let keep = !request.dry_run();
    let work = Work { allocator, server: &request.server, owner, keep };
    let Some(spec) = service.inner_or_new("spec") else { return Ok(()) };
    let old = old.map(|old| &old["spec"]);
    same_address(spec, old);
    if let Some(old) = old {
        inherit(spec, old);
        forget(spec, old);
    }
    families(spec, old);
    let mut errors = Errors::default();
    checks::addresses(&mut errors, &At::new("spec"), spec);
    if !errors.0.is_empty() {
        return Err(Status::invalid("Service", "", &work.owner.name, errors.0));
    }
    work.addresses(spec)?;
    work.ports(spec, old)
}

struct Work<'a> {
    allocator: &'a Allocator,
    server: &'a Server,
    owner: Owner,
    /// Whether allocations are kept: not in a dry run.
    keep: bool,
}

fn needs_address(spec: &Value) -> bool {
    spec.text("type") != "ExternalName"
}

fn needs_ports(spec: &Value) -> bool {
    ["NodePort", "LoadBalancer"].contains(&spec.text("type"))
}

fn needs_health_port(spec: &Value) -> bool {
    spec.text("type") == "LoadBalancer" && spec.text("externalTrafficPolicy") == "Local"
}

/// `clusterIP` mirrors the first of `clusterIPs`; the one that the client changed wins.
fn same_address(spec: &mut Value, old: Option<&Value>) {
    let one = spec.text("clusterIP").to_owned();
    let first = spec.list("clusterIPs").first().and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(old) = old else {
        if !one.is_empty() && first.is_empty() {
            spec.put("clusterIPs", json!([one]));
        }
        return;
    };
    let before = old.text("clusterIP");
    if one != before && spec["clusterIPs"] == old["clusterIPs"] {
        // Only `clusterIP` was changed or cleared, and determines the list.
        if one.is_empty() {
            spec.drop("clusterIPs");
        } else {
            spec.put("clusterIPs", json!([one]));
        }
    } else if one == before && !one.is_empty() && spec.list("clusterIPs").is_empty() && old.has("clusterIPs") {
        spec.put("clusterIPs", old["clusterIPs"].clone());
    } else if one.is_empty() && !first.is_empty() {
        spec.put("clusterIP", first);
    }
}

/// Absent allocated fields are kept from the old object.
fn inherit(spec: &mut Value, old: &Value) {
    if needs_address(old) && needs_address(spec) {
        for key in ["clusterIP", "clusterIPs"] {
            if old.has(key) {
                spec.fill_zero(key, old[key].clone());
            }
        }
    }
    if needs_ports(old) && needs_ports(spec) {
        let key = |port: &Value| (port.text("protocol").to_owned(), port.number("port"));
        let before: HashMap<_, _> = old.list("ports").iter().map(|port| (key(port), port.number("nodePort"))).collect();
        let used: Vec<i64> = spec.list("ports").iter().filter_map(|port| port.number("nodePort")).collect();
        for port in spec.items("ports") {
            if let Some(number) = before.get(&key(port)).copied().flatten().filter(|number| !used.contains(number)) {
                port.fill_zero("nodePort", number);
            }
        }
    }
    if needs_health_port(old) && needs_health_port(spec) && old.has("healthCheckNodePort") {
        spec.fill_zero("healthCheckNodePort", old["healthCheckNodePort"].clone());
    }
}

/// Drops fields that only the old type needed, unless the client changed them.
fn forget(spec: &mut Value, old: &Value) {
    if needs_address(old) && !needs_address(spec) && spec["clusterIPs"] == old["clusterIPs"] {
        ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"].iter().for_each(|key| drop(spec.drop(key)));
    }
    if needs_ports(old) && !needs_ports(spec) {
        let numbers = |spec: &Value| -> Vec<Option<i64>> {
            spec.list("ports").iter().map(|port| port.number("nodePort")).collect()
        };
        if numbers(spec) == numbers(old) {
            spec.items("ports").for_each(|port| drop(port.drop("nodePort")));
        }
    }
    if needs_health_port(old) && !needs_health_port(spec) && spec["healthCheckNodePort"] == old["healthCheckNodePort"] {
        spec.drop("healthCheckNodePort");
    }
    if old.text("type") == "LoadBalancer" && spec.text("type") != "LoadBalancer" {
        for key in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if spec[key] == old[key] {
                spec.drop(key);
            }
        }
    }
    let outside = |spec: &Value| needs_ports(spec) || !spec.list("externalIPs").is_empty();
    if outside(old) && !outside(spec) && spec["externalTrafficPolicy"] == old["externalTrafficPolicy"] {
        spec.drop("externalTrafficPolicy");
    }
    if !needs_address(spec) && spec["internalTrafficPolicy"] == old["internalTrafficPolicy"] {
        spec.drop("internalTrafficPolicy");
    }
}

/// The cluster is single-stack IPv4; only headless Services without a selector may be dual-stack.
fn families(spec: &mut Value, old: Option<&Value>) {
    if !needs_address(spec) {
        return;
    }
    let free = spec.text("clusterIP") == "None" && spec["selector"].as_object().is_none_or(serde_json::Map::is_empty);
    let before = old.map(|old| old.text("ipFamilyPolicy")).filter(|policy| !policy.is_empty());
    let policy = before.unwrap_or(if free { "RequireDualStack" } else { "SingleStack" }).to_owned();
    spec.fill("ipFamilyPolicy", policy);
    spec.fill_zero("ipFamilies", json!(["IPv4"]));
    if free && spec.text("ipFamilyPolicy") != "SingleStack" && spec.list("ipFamilies").len() == 1 {
        let other = if spec["ipFamilies"][0] == "IPv4" { "IPv6" } else { "IPv4" };
        let first = spec["ipFamilies"][0].clone();
        spec.put("ipFamilies", json!([first, other]));
    }
}

impl Work<'_> {
    fn invalid<T: Show + ?Sized>(&self, at: &At<'_>, value: &T, why: &str) -> Status {
        let mut errors = Errors::default();
        errors.invalid(at, value, why);
        Status::invalid("Service", "", &self.owner.name, errors.0)
    }

    fn addresses(&self, spec: &mut Value) -> Result<()> {
        let first = spec.list("clusterIPs").first().and_then(Value::as_str).unwrap_or_default().to_owned();
        if !needs_address(spec) || first == "None" {
            return Ok(());
        }
        let policy = spec.text("ipFamilyPolicy").to_owned();
        if policy == "RequireDualStack" {
            let why = "this cluster is not configured for dual-stack services";
            return Err(self.invalid(&At::new("spec.ipFamilyPolicy"), &policy, why));
        }
        if let Some(at) = spec.list("ipFamilies").iter().position(|family| family != "IPv4") {
            let family = &spec["ipFamilies"][at];
            let path = At::new("spec.ipFamilies");
            return Err(self.invalid(&path.index(at), family, "not configured on this cluster"));
        }
        if first.is_empty() {
            let Some(ip) = self.allocator.next_ip(self.server, &self.owner, self.keep) else {
                return Err(Status::internal("failed to allocate a serviceIP: range is full"));
            };
            spec.put("clusterIP", ip.to_string());
            spec.put("clusterIPs", json!([ip.to_string()]));
            return Ok(());
        }
        // Malformed addresses are left to validation.
        let Ok(ip) = first.parse() else { return Ok(()) };
        self.allocator.take_ip(self.server, &self.owner, ip, self.keep).map_err(|why| {
            let why = format!("failed to allocate IP {first}: {why}");
            self.invalid(&At::new("spec.clusterIPs"), &spec["clusterIPs"], &why)
        })
    }

    fn ports(&self, spec: &mut Value, old: Option<&Value>) -> Result<()> {
        if needs_ports(spec) {
            let any = spec.text("type") == "NodePort" || spec["allocateLoadBalancerNodePorts"] != false;
            let asked: Vec<(Option<i64>, i64)> = spec
                .list("ports")
                .iter()
                .map(|port| (port.number("port"), port.number("nodePort").unwrap_or(0)))
                .collect();
            // Ports with the same number but different protocols share a node port.
            let mut chosen: HashMap<Option<i64>, i64> = HashMap::new();
            for (at, port) in spec.items("ports").enumerate() {
                let (number, mut node_port) = asked[at];
                if node_port == 0 {
                    let sibling = asked.iter().find(|(other, asked)| *other == number && *asked != 0);
                    node_port = chosen.get(&number).copied().or(sibling.map(|(_, asked)| *asked)).unwrap_or(0);
                }
                if node_port == 0 && any {
                    node_port = self.next_port("failed to allocate a nodePort")?;
                } else if node_port != 0 {
                    let again =
                        old.is_none() && chosen.iter().any(|(other, mine)| *mine == node_port && *other != number);
                    let taken = if again {
                        Err("provided port is already allocated".into())
                    } else {
                        self.take_port(node_port)
                    };
                    taken.map_err(|why| {
                        self.invalid(&At::new("spec.ports").index(at).child("nodePort"), &node_port, &why)
                    })?;
                }
                if node_port != 0 {
                    chosen.entry(number).or_insert(node_port);
                    port.put("nodePort", node_port);
                }
            }
        }
        if needs_health_port(spec) {
            match spec.number("healthCheckNodePort").unwrap_or(0) {
                0 => {
                    let port = self.next_port("failed to allocate a HealthCheck NodePort 0")?;
                    spec.put("healthCheckNodePort", port);
                }
                port if old.is_some_and(|old| old.number("healthCheckNodePort") == Some(port)) => {}
                port => self.take_port(port).map_err(|why| {
                    Status::internal(format!("failed to allocate requested HealthCheck NodePort {port}: {why}"))
                })?,
            }
        }
        Ok(())
    }

    fn next_port(&self, what: &str) -> Result<i64> {
        let port = self.allocator.next_port(self.server, &self.owner, self.keep);
        port.map(i64::from).ok_or_else(|| Status::internal(format!("{what}: range is full")))
    }

    fn take_port(&self, port: i64) -> Result<(), String> {
        self.allocator.take_port(self.server, &self.owner, port, self.keep)
    }
}
