//! Resource requests, limits and claims.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::admit::field::{At, Errors};
use crate::admit::json::Read;
use capstan_semantics::Quantity;
use capstan_semantics::names;

/// Unprefixed resource names that are valid somewhere.
const STANDARD: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];
/// Integer resources.
const COUNTED: &[&str] = &[
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];
const CONTAINER: &[&str] = &["cpu", "memory", "ephemeral-storage"];

/// What the resources belong to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Container,
    Pod,
}

fn is_huge(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

pub(super) fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && names::qualified_name(&format!("requests.{name}")).is_empty()
}

fn may_overcommit(name: &str) -> bool {
    is_native(name) && !is_huge(name)
}

/// The name of any resource.
pub(super) fn name(errors: &mut Errors, at: &At<'_>, name: &str) -> bool {
    let wrong = names::qualified_name(name);
    let good = wrong.is_empty();
    errors.invalid_all(at, name, wrong);
    let known = STANDARD.contains(&name) || is_huge(name) || name.starts_with("requests.hugepages-");
    if good && !name.contains('/') && !known {
        errors.invalid(at, name, "must be a standard resource type or fully qualified");
        return false;
    }
    good
}

/// Whether a quota may constrain the resource.
pub(super) fn is_quota(name: &str) -> bool {
    let counted = STANDARD.contains(&name) && name != "storage";
    counted || is_huge(name) || name.starts_with("requests.hugepages-")
}

/// The name of a container resource.
pub(super) fn container_name(errors: &mut Errors, at: &At<'_>, resource: &str) {
    name(errors, at, resource);
    if !resource.contains('/') {
        if !CONTAINER.contains(&resource) && !is_huge(resource) {
            errors.invalid(at, resource, "must be a standard resource for containers");
        }
    } else if !is_native(resource) && !is_extended(resource) {
        errors.invalid(at, resource, "doesn't follow extended resource name standard");
    }
}

fn pod_name(errors: &mut Errors, at: &At<'_>, resource: &str) {
    if name(errors, at, resource) && !["cpu", "memory"].contains(&resource) && !is_huge(resource) {
        errors.unsupported(at, resource, &["cpu", "hugepages-", "memory"]);
    }
}

/// The quantity of a resource.
pub(super) fn amount(errors: &mut Errors, at: &At<'_>, resource: &str, amount: Quantity) {
    if amount < Quantity::ZERO {
        errors.invalid(at, &amount.to_string(), "must be greater than or equal to 0");
    }
    if (COUNTED.contains(&resource) || is_extended(resource)) && !amount.is_whole() {
        errors.invalid(at, &amount.to_string(), "must be an integer");
    }
}

/// A `ResourceRequirements`; `claims` are the names of the pod's claims.
pub(super) fn requirements(errors: &mut Errors, at: &At<'_>, resources: &Value, claims: &BTreeSet<&str>, of: Of) {
    let (limits, requests) = (at.child("limits"), at.child("requests"));
    let (mut basic, mut huge) = (false, false);
    for (list, path) in [("limits", &limits), ("requests", &requests)] {
        for (resource, value) in resources.members(list) {
            let at = path.key(resource);
            match of {
                Of::Container => container_name(errors, &at, resource),
                Of::Pod => pod_name(errors, &at, resource),
            }
            let Ok(quantity) = Quantity::from_json(value) else { continue };
            amount(errors, &at, resource, quantity);
            if list == "requests" {
                against_limit(errors, (&limits, &requests), resource, quantity, &resources["limits"][resource]);
            }
            if is_huge(resource) {
                huge = true;
                huge_pages(errors, &at, resource, quantity);
            }
            basic |= ["cpu", "memory"].contains(&resource.as_str());
        }
    }
    if huge && !basic {
        errors.forbidden(at, "HugePages require cpu or memory");
    }
    claim_names(errors, &at.child("claims"), resources.list("claims"), claims);
}

fn against_limit(errors: &mut Errors, at: (&At<'_>, &At<'_>), resource: &str, request: Quantity, limit: &Value) {
    let (limits, requests) = at;
    match Quantity::from_json(limit) {
        Ok(limit) if request != limit && !may_overcommit(resource) => {
            let why = format!("must be equal to {resource} limit of {limit}");
            errors.invalid(requests, &request.to_string(), &why);
        }
        Ok(limit) if request > limit => {
            let why = format!("must be less than or equal to {resource} limit of {limit}");
            errors.invalid(requests, &request.to_string(), &why);
        }
        Err(_) if !may_overcommit(resource) => {
            errors.required(limits, "Limit must be set for non overcommitable resources");
        }
        _ => {}
    }
}

fn huge_pages(errors: &mut Errors, at: &At<'_>, resource: &str, amount: Quantity) {
    let size = resource.strip_prefix("hugepages-").and_then(|size| Quantity::parse(size).ok());
    let divides =
        size.is_some_and(|size| size > Quantity::ZERO && size.is_whole() && amount.units() % size.units() == 0);
    if !divides {
        let why = format!("{amount} is not positive integer multiple of {resource}");
        errors.invalid(at, &amount.to_string(), &why);
    }
}

fn claim_names(errors: &mut Errors, at: &At<'_>, wanted: &[Value], claims: &BTreeSet<&str>) {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for (index, claim) in wanted.iter().enumerate() {
        let (at, name, request) = (at.index(index), claim.text("name"), claim.text("request"));
        if name.is_empty() {
            errors.required(&at, "");
            continue;
        }
        if seen.contains(name) {
            errors.duplicate(&at, name);
        } else {
            let key = if request.is_empty() { name.to_owned() } else { format!("{name}/{request}") };
            if !request.is_empty() {
                errors.invalid_all(&at.child("request"), request, names::dns_label(request));
            }
            let overlaps = request.is_empty() && seen.iter().any(|one| one.split('/').next() == Some(name));
            if seen.contains(&key) {
                errors.duplicate(&at, &key);
            } else if overlaps {
                errors.duplicate(&at, name);
            }
            seen.insert(key);
        }
        if !claims.contains(name) {
            let known: Vec<&str> = claims.iter().copied().collect();
            let end = if known.is_empty() { " which is empty".into() } else { format!(": {}", known.join(", ")) };
            errors.not_found_because(&at, name, &format!("must be one of the names in pod.spec.resourceClaims{end}"));
        }
    }
}

/// Pod-level resources must cover the aggregate of the containers.
pub(super) fn consistent(errors: &mut Errors, at: &At<'_>, spec: &Value) {
    let wanted = &spec["resources"];
    let requests = at.child("requests");
    for (resource, sum) in crate::admit::prepare::container_requests(spec) {
        let Ok(own) = Quantity::from_json(&wanted["requests"][&resource]) else { continue };
        if sum > own {
            let why = format!("must be greater than or equal to aggregate container requests of {sum}");
            errors.invalid(&requests.key(&resource), &own.to_string(), &why);
        }
    }
    let containers = at.child("containers");
    for (index, container) in spec.list("containers").iter().enumerate() {
        let here = containers.index(index);
        for (resource, limit) in container["resources"].members("limits") {
            let (Ok(limit), Ok(own)) = (Quantity::from_json(limit), Quantity::from_json(&wanted["limits"][resource]))
            else {
                continue;
            };
            if limit > own {
                let why = format!("must be less than or equal to pod limits of {own}");
                errors.invalid(&here.key(resource).child("limits"), &limit.to_string(), &why);
            }
        }
    }
}
