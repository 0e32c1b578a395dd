//! ResourceQuotas: usage of objects, and enforcement.

mod plugin;
mod pods;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::json::Read;
use crate::ops::Server;
use crate::registry::Resource;
use crate::store::{Selection, TableKey};
use capstan_semantics::Quantity;
pub use plugin::ResourceQuota;

/// Quantities by resource name.
pub type Amounts = BTreeMap<String, Quantity>;

/// Resources that quotas count by their plain name, besides `count/NAME`.
const COUNTED: &[&str] =
    &["configmaps", "persistentvolumeclaims", "replicationcontrollers", "resourcequotas", "secrets", "services"];
/// Infix of per-StorageClass quotas.
const STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";

/// The quantities of a resource list.
pub(super) fn amounts(list: &Value) -> Amounts {
    let list = list.as_object().into_iter().flatten();
    list.filter_map(|(name, amount)| Some((name.clone(), Quantity::from_json(amount).ok()?))).collect()
}

/// `count/deployments.apps`, `count/pods`.
fn count_name(resource: &Resource) -> String {
    format!("count/{}", resource.group_resource())
}

/// The quota usage of an object.
fn usage(resource: &Resource, object: &Value, now: Timestamp) -> Amounts {
    let mut used = Amounts::from([(count_name(resource), Quantity::of(1))]);
    if !resource.group.is_empty() {
        return used;
    }
    let plural = &*resource.plural;
    if COUNTED.contains(&plural) {
        used.insert(plural.to_owned(), Quantity::of(1));
    }
    match plural {
        "pods" => used.extend(pods::usage(object, now)),
        "services" => used.extend(service(object)),
        "persistentvolumeclaims" => used.extend(claim(object)),
        _ => {}
    }
    used
}

fn service(service: &Value) -> Amounts {
    let spec = &service["spec"];
    let ports = spec.list("ports");
    let chosen = || ports.iter().filter(|port| port.number("nodePort").is_some_and(|port| port != 0)).count();
    let (mut nodes, mut balancers) = (0, 0);
    match spec.text("type") {
        "NodePort" => nodes = ports.len(),
        "LoadBalancer" => {
            balancers = 1;
            let none = spec.get("allocateLoadBalancerNodePorts") == Some(&Value::Bool(false));
            nodes = if none { chosen() } else { ports.len() };
        }
        _ => {}
    }
    let amount = |count: usize| Quantity::of(i64::try_from(count).unwrap_or(i64::MAX));
    Amounts::from([
        ("services.nodeports".to_owned(), amount(nodes)),
        ("services.loadbalancers".to_owned(), amount(balancers)),
    ])
}

fn claim(claim: &Value) -> Amounts {
    let spec = &claim["spec"];
    let mut used = Amounts::new();
    let class = match claim["metadata"]["annotations"].text("volume.beta.kubernetes.io/storage-class") {
        "" => spec.text("storageClassName"),
        class => class,
    };
    if !class.is_empty() {
        used.insert(format!("{class}{STORAGE_CLASS}persistentvolumeclaims"), Quantity::of(1));
    }
    if let Ok(size) = Quantity::from_json(&spec["resources"]["requests"]["storage"]) {
        used.insert("requests.storage".to_owned(), size);
        if !class.is_empty() {
            used.insert(format!("{class}{STORAGE_CLASS}requests.storage"), size);
        }
    }
    used
}

/// Whether a quota resource counts objects of this kind.
fn concerns(name: &str, resource: &Resource) -> bool {
    if name == count_name(resource) {
        return true;
    }
    if !resource.group.is_empty() {
        return false;
    }
    match &*resource.plural {
        "pods" => pods::concerns(name),
        "services" => name == "services" || name.starts_with("services."),
        "persistentvolumeclaims" => {
            let plain = name.split_once(STORAGE_CLASS).map_or(name, |(_, name)| name);
            plain == "persistentvolumeclaims" || plain == "requests.storage"
        }
        plural => name == plural && COUNTED.contains(&plural),
    }
}

/// Whether an object is in the scopes of a quota.
fn in_scope(quota: &Value, resource: &Resource, object: &Value) -> bool {
    let spec = &quota["spec"];
    let plain = spec.list("scopes").iter().filter_map(Value::as_str).map(|scope| (scope, "Exists", &Value::Null));
    let selected = spec["scopeSelector"].list("matchExpressions").iter();
    let selected = selected.map(|one| (one.text("scopeName"), one.text("operator"), &one["values"]));
    let mut scopes = plain.chain(selected);
    let is_pod = resource.group.is_empty() && &*resource.plural == "pods";
    scopes.all(|(scope, operator, values)| is_pod && pods::in_scope(scope, operator, values, object))
}

/// The current usage of a quota.
pub fn used(server: &Server, quota: &Value) -> Amounts {
    let namespace = quota["metadata"].text("namespace");
    let hard = amounts(&quota["spec"]["hard"]);
    let mut used: Amounts = hard.keys().map(|name| (name.clone(), Quantity::ZERO)).collect();
    let snapshot = server.registry().snapshot();
    let now = server.clock().now();
    let mut seen = Vec::new();
    for resource in snapshot.iter().filter(|resource| resource.namespaced && resource.serves("list")) {
        let table = TableKey::of(resource);
        if seen.contains(&table) || !hard.keys().any(|name| concerns(name, resource)) {
            continue;
        }
        for object in server.store().select(&table, &Selection::namespace(namespace)) {
            let object = object.value();
            if !in_scope(quota, resource, &object) {
                continue;
            }
            for (name, amount) in usage(resource, &object, now) {
                if let Some(sum) = used.get_mut(&name) {
                    *sum = sum.plus(amount);
                }
            }
        }
        seen.push(table);
    }
    used
}
