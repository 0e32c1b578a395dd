//! Preparation of pods: QoS class, scheduling gates, and affinity terms with `matchLabelKeys`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::admit::json::{Fill, Read};
use crate::ops::Request;
use capstan_semantics::Quantity;

/// A new pod.
pub(super) fn create(request: &Request, pod: &mut Value) {
    affinity(pod);
    if let Some(spec) = pod.inner("spec") {
        pod_requests(spec);
    }
    let class = qos_class(&pod["spec"]);
    let gated = !pod["spec"].list("schedulingGates").is_empty();
    let Some(status) = pod.inner_or_new("status") else { return };
    status.fill_zero("phase", "Pending");
    status.put("qosClass", class);
    if gated {
        let condition = json!({
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastTransitionTime": request.server.clock().rfc3339(), "lastProbeTime": null,
        });
        status.put("conditions", json!([condition]));
    }
}

/// Adds the pod's labels named by `matchLabelKeys` and the like to the selectors of affinity terms and spread
/// constraints.
fn affinity(pod: &mut Value) {
    let labels = pod["metadata"]["labels"].clone();
    let Some(spec) = pod.inner("spec") else { return };
    spec.items("topologySpreadConstraints").for_each(|constraint| term_labels(constraint, &labels));
    let Some(affinity) = spec.inner("affinity") else { return };
    for key in ["podAffinity", "podAntiAffinity"] {
        let Some(rules) = affinity.inner(key) else { continue };
        rules.items("requiredDuringSchedulingIgnoredDuringExecution").for_each(|term| term_labels(term, &labels));
        rules.items("preferredDuringSchedulingIgnoredDuringExecution").for_each(|weighted| {
            if let Some(term) = weighted.inner("podAffinityTerm") {
                term_labels(term, &labels);
            }
        });
    }
}

fn term_labels(term: &mut Value, labels: &Value) {
    if !term.has("labelSelector") {
        return;
    }
    for (keys, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        let names: Vec<String> = term.list(keys).iter().filter_map(Value::as_str).map(str::to_owned).collect();
        for name in names {
            let Some(value) = labels.get(&name).and_then(Value::as_str) else { continue };
            let expression = json!({"key": name, "operator": operator, "values": [value]});
            let Some(selector) = term.inner("labelSelector") else { continue };
            selector.fill("matchExpressions", json!([]));
            if let Some(Value::Array(expressions)) = selector.get_mut("matchExpressions")
                && !expressions.contains(&expression)
            {
                expressions.push(expression);
            }
        }
    }
}

/// Pod-level requests default to the sum of the container requests, or else to the pod-level limits.
fn pod_requests(spec: &mut Value) {
    let limits = spec["resources"]["limits"].clone();
    let Some(limits) = limits.as_object().filter(|limits| !limits.is_empty()) else { return };
    let sums = container_requests(spec);
    let Some(requests) = spec.inner("resources").and_then(|resources| resources.inner_or_new("requests")) else {
        return;
    };
    for (name, sum) in sums.iter().filter(|(name, _)| ["cpu", "memory"].contains(&name.as_str())) {
        requests.fill(name, sum.to_string());
    }
    for (name, limit) in limits.iter().filter(|(name, _)| is_pod_level(name)) {
        requests.fill(name, limit.clone());
    }
}

fn is_pod_level(name: &str) -> bool {
    ["cpu", "memory"].contains(&name) || name.starts_with("hugepages-")
}

/// Effective requests of the containers: the maximum that they need at the same time.
pub(in crate::admit) fn container_requests(spec: &Value) -> BTreeMap<String, Quantity> {
    at_once(spec, "requests")
}

/// Effective limits of the containers.
pub(in crate::admit) fn container_limits(spec: &Value) -> BTreeMap<String, Quantity> {
    at_once(spec, "limits")
}

fn at_once(spec: &Value, list: &str) -> BTreeMap<String, Quantity> {
    let mut sums: BTreeMap<String, Quantity> = BTreeMap::new();
    let add = |sums: &mut BTreeMap<String, Quantity>, container: &Value| {
        for (name, amount) in container["resources"].members(list) {
            let Ok(amount) = Quantity::from_json(amount) else { continue };
            let sum = sums.entry(name.clone()).or_insert(Quantity::ZERO);
            *sum = sum.plus(amount);
        }
    };
    spec.list("containers").iter().for_each(|container| add(&mut sums, container));
    let (mut beside, mut most): (BTreeMap<_, _>, BTreeMap<String, Quantity>) = Default::default();
    for container in spec.list("initContainers") {
        if container.text("restartPolicy") == "Always" {
            add(&mut sums, container);
            add(&mut beside, container);
            continue;
        }
        let mut now = beside.clone();
        add(&mut now, container);
        for (name, amount) in now {
            let most = most.entry(name).or_insert(Quantity::ZERO);
            *most = (*most).max(amount);
        }
    }
    for (name, amount) in most {
        let sum = sums.entry(name).or_insert(Quantity::ZERO);
        *sum = (*sum).max(amount);
    }
    sums
}

/// The QoS class.
pub(in crate::admit) fn qos_class(spec: &Value) -> &'static str {
    let mut sums: BTreeMap<(&str, &str), Quantity> = BTreeMap::new();
    let mut limited_everywhere = true;
    let pod_level = spec.has("resources").then(|| &spec["resources"]);
    let containers = spec.list("containers").iter().chain(spec.list("initContainers"));
    let each: Vec<&Value> = match pod_level {
        Some(resources) => vec![resources],
        None => containers.map(|container| &container["resources"]).collect(),
    };
    for resources in each {
        let mut limits = 0;
        for list in ["requests", "limits"] {
            for name in ["cpu", "memory"] {
                let Ok(amount) = Quantity::from_json(&resources[list][name]) else { continue };
                if amount > Quantity::ZERO {
                    let sum = sums.entry((list, name)).or_insert(Quantity::ZERO);
                    *sum = sum.plus(amount);
                    limits += i32::from(list == "limits");
                }
            }
        }
        limited_everywhere &= limits == 2;
    }
    if sums.is_empty() {
        return "BestEffort";
    }
    let equal = ["cpu", "memory"].iter().all(|name| sums.get(&("requests", name)) == sums.get(&("limits", name)));
    if limited_everywhere && equal { "Guaranteed" } else { "Burstable" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_served_by_what_they_ask_for() {
        let both = |cpu: &str, memory: &str| json!({"cpu": cpu, "memory": memory});
        let container = |requests: Value, limits: Value| json!({"resources": {"requests": requests, "limits": limits}});
        let none = || container(json!({}), json!({}));
        let cases = [
            (json!({"containers": [none()]}), "BestEffort"),
            (json!({"containers": [container(json!({"x.io/y": "1"}), json!({"x.io/y": "1"}))]}), "BestEffort"),
            (json!({"containers": [container(json!({"cpu": "1"}), json!({}))]}), "Burstable"),
            (json!({"containers": [container(both("1", "1Gi"), both("1000m", "1024Mi"))]}), "Guaranteed"),
            (json!({"containers": [container(both("1", "1Gi"), both("1", "1Gi")), none()]}), "Burstable"),
            (
                json!({"containers": [container(both("1", "1Gi"), both("1", "1Gi"))], "initContainers": [none()]}),
                "Burstable",
            ),
            (
                json!({"resources": {"requests": both("1", "1Gi"), "limits": both("1", "1Gi")}, "containers": [none()]}),
                "Guaranteed",
            ),
        ];
        for (spec, class) in cases {
            assert_eq!(qos_class(&spec), class, "{spec}");
        }
    }

    #[test]
    fn affinity_follows_the_labels_that_it_names() {
        let term = json!({"labelSelector": {"matchLabels": {"app": "web"}}, "matchLabelKeys": ["hash", "absent"]});
        let rules = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
        let mut pod = json!({"metadata": {"labels": {"hash": "1"}}, "spec": {"affinity": {"podAntiAffinity": rules}}});
        affinity(&mut pod);
        affinity(&mut pod);
        let rules = &pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        let expressions = json!([{"key": "hash", "operator": "In", "values": ["1"]}]);
        assert_eq!(rules[0]["labelSelector"]["matchExpressions"], expressions);
    }
}
