//! Quota usage of pods.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::Amounts;
use crate::admit::json::Read;
use crate::admit::prepare::{container_limits, container_requests, qos_class};
use capstan_semantics::Quantity;

/// Quota resources of pods.
const NAMES: &[&str] = &[
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
];
/// Compute resources that every container must specify if a quota constrains them.
const REQUIRED_RESOURCES: &[&str] =
    &["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];

/// Extended resources, which have quotas only on requests: `nvidia.com/gpu`.
fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.starts_with("kubernetes.io/") && !name.contains(".kubernetes.io/")
        || name.starts_with("deviceclass.resource.kubernetes.io/")
}

pub(super) fn concerns(name: &str) -> bool {
    let request = name.strip_prefix("requests.").unwrap_or_default();
    NAMES.contains(&name) || name.starts_with("hugepages-") || request.starts_with("hugepages-") || is_extended(request)
}

/// Quota resources for requests and limits.
fn named(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut used = Amounts::from([("pods".to_owned(), Quantity::of(1))]);
    for (name, amount) in requests {
        let plain = ["cpu", "memory", "ephemeral-storage"].contains(&name.as_str()) || name.starts_with("hugepages-");
        if plain {
            used.insert(name.clone(), *amount);
        }
        if plain || is_extended(name) {
            used.insert(format!("requests.{name}"), *amount);
        }
    }
    for (name, amount) in
        limits.iter().filter(|(name, _)| ["cpu", "memory", "ephemeral-storage"].contains(&name.as_str()))
    {
        used.insert(format!("limits.{name}"), *amount);
    }
    used
}

/// The usage of a pod; none once it has terminated, or should have.
pub(super) fn usage(pod: &Value, now: Timestamp) -> Amounts {
    let overdue = || -> Option<bool> {
        let meta = &pod["metadata"];
        let gone: Timestamp = meta.text("deletionTimestamp").parse().ok()?;
        let grace = SignedDuration::from_secs(meta.number("deletionGracePeriodSeconds")?);
        Some(now > gone.checked_add(grace).ok()?)
    };
    if ["Failed", "Succeeded"].contains(&pod["status"].text("phase")) || overdue() == Some(true) {
        return Amounts::new();
    }
    let spec = &pod["spec"];
    let (mut requests, mut limits) = (container_requests(spec), container_limits(spec));
    // Pod-level resources take precedence.
    requests.extend(super::amounts(&spec["resources"]["requests"]));
    limits.extend(super::amounts(&spec["resources"]["limits"]));
    for (name, amount) in super::amounts(&spec["overhead"]) {
        let sum = requests.entry(name.clone()).or_insert(Quantity::ZERO);
        *sum = sum.plus(amount);
        if let Some(sum) = limits.get_mut(&name) {
            *sum = sum.plus(amount);
        }
    }
    named(&requests, &limits)
}

/// The constrained resources that a container does not specify.
pub(super) fn unspecified_resources<'a>(pod: &Value, limited: impl Iterator<Item = &'a String>) -> Option<String> {
    let spec = &pod["spec"];
    if spec["resources"].members("requests").next().is_some() || spec["resources"].members("limits").next().is_some() {
        return None;
    }
    let demanded: BTreeSet<&String> = limited.filter(|name| REQUIRED_RESOURCES.contains(&name.as_str())).collect();
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for container in spec.list("containers").iter().chain(spec.list("initContainers")) {
        let resources = &container["resources"];
        let said = named(&super::amounts(&resources["requests"]), &super::amounts(&resources["limits"]));
        for name in demanded.iter().filter(|name| !said.contains_key(**name)) {
            missing.entry(name).or_default().insert(container.text("name"));
        }
    }
    let lines: Vec<String> = missing
        .into_iter()
        .map(|(name, containers)| format!("{name} for: {}", containers.into_iter().collect::<Vec<_>>().join(",")))
        .collect();
    (!lines.is_empty()).then(|| format!("must specify {}", lines.join("; ")))
}

pub(super) fn is_terminating(pod: &Value) -> bool {
    pod["spec"].number("activeDeadlineSeconds").is_some_and(|seconds| seconds >= 0)
}

pub(super) fn in_scope(scope: &str, operator: &str, values: &Value, pod: &Value) -> bool {
    let spec = &pod["spec"];
    match scope {
        "Terminating" => is_terminating(pod),
        "NotTerminating" => !is_terminating(pod),
        "BestEffort" => qos_class(spec) == "BestEffort",
        "NotBestEffort" => qos_class(spec) != "BestEffort",
        "PriorityClass" => {
            let class = spec.text("priorityClassName");
            let listed = values.as_array().is_some_and(|values| values.iter().any(|value| value == class));
            match operator {
                "Exists" => !class.is_empty(),
                "DoesNotExist" => class.is_empty(),
                "In" => !class.is_empty() && listed,
                _ => class.is_empty() || !listed,
            }
        }
        "CrossNamespacePodAffinity" => crosses_namespaces(&spec["affinity"]),
        _ => false,
    }
}

fn crosses_namespaces(affinity: &Value) -> bool {
    let crosses = |term: &Value| !term.list("namespaces").is_empty() || term.has("namespaceSelector");
    ["podAffinity", "podAntiAffinity"].iter().any(|key| {
        let rules = &affinity[*key];
        rules.list("requiredDuringSchedulingIgnoredDuringExecution").iter().any(crosses)
            || rules
                .list("preferredDuringSchedulingIgnoredDuringExecution")
                .iter()
                .any(|term| crosses(&term["podAffinityTerm"]))
    })
}
