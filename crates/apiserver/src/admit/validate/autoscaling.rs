//! HorizontalPodAutoscalers.

use serde_json::Value;

use super::resources;
use crate::admit::field::{At, Errors};
use crate::admit::json::Read;
use capstan_semantics::Quantity;
use capstan_semantics::names;

const SOURCES: &[&str] = &["ContainerResource", "External", "Object", "Pods", "Resource"];

/// An autoscaler, in either version.
pub(super) fn autoscaler(errors: &mut Errors, autoscaler: &Value) {
    let (at, spec) = (At::new("spec"), &autoscaler["spec"]);
    let (min, max) = (spec.number("minReplicas"), spec.number("maxReplicas").unwrap_or(0));
    if let Some(min) = min.filter(|min| *min < 0) {
        errors.invalid(&at.child("minReplicas"), &min, "must be greater than or equal to 0");
    }
    if max == 0 {
        errors.required(&at.child("maxReplicas"), "");
    } else if max < 0 {
        errors.invalid(&at.child("maxReplicas"), &max, "must be greater than or equal to 1");
    }
    if min.is_some_and(|min| max < min) {
        errors.invalid(&at.child("maxReplicas"), &max, "must be greater than or equal to `minReplicas`");
    }
    reference(errors, &at.child("scaleTargetRef"), &spec["scaleTargetRef"]);
    if let Some(target) = spec.number("targetCPUUtilizationPercentage").filter(|target| *target < 1) {
        let at = At::new("spec.metrics[0].resource.target.averageUtilization");
        errors.invalid(&at, &target, "must be greater than 0");
    }
    let metrics = at.child("metrics");
    for (index, metric) in spec.list("metrics").iter().enumerate() {
        self::metric(errors, &metrics.index(index), metric);
    }
    let zero = ["Object", "External"];
    if min == Some(0) && !spec.list("metrics").iter().any(|metric| zero.contains(&metric.text("type"))) {
        let why = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.forbidden(&metrics, why);
    }
    let behavior = at.child("behavior");
    for key in ["scaleUp", "scaleDown"].into_iter().filter(|key| spec["behavior"].has(key)) {
        rules(errors, &behavior.child(key), &spec["behavior"][key]);
    }
}

fn reference(errors: &mut Errors, at: &At<'_>, reference: &Value) {
    for key in ["kind", "name"] {
        match reference.text(key) {
            "" => errors.required(&at.child(key), ""),
            name => errors.invalid_all(&at.child(key), name, names::path_segment(name)),
        }
    }
    let version = reference.text("apiVersion");
    if version.matches('/').count() > 1 {
        let why = format!("unexpected GroupVersion string: {version}");
        errors.invalid(&at.child("apiVersion"), version, &why);
    } else if !version.contains('/') && reference.text("kind") != "ReplicationController" {
        errors.invalid(&at.child("apiVersion"), version, "apiVersion must specify API group");
    }
}

fn metric(errors: &mut Errors, at: &At<'_>, metric: &Value) {
    let kind = metric.text("type");
    if kind.is_empty() {
        errors.required(&at.child("type"), "must specify a metric source type");
    }
    if !SOURCES.contains(&kind) {
        errors.unsupported(&at.child("type"), kind, SOURCES);
    }
    let keys = ["object", "external", "pods", "resource", "containerResource"];
    let present: Vec<&str> = keys.into_iter().filter(|key| metric.has(key)).collect();
    if let Some(first) = present.first() {
        source(errors, &at.child(first), first, &metric[*first]);
    }
    let expected = keys.into_iter().find(|key| key.eq_ignore_ascii_case(kind));
    match expected {
        Some(key) if !metric.has(key) => {
            errors.required(&at.child(key), "must populate information for the given metric source");
        }
        _ => {}
    }
    if present.len() != 1 {
        for key in present.into_iter().filter(|key| Some(*key) != expected) {
            errors.forbidden(&at.child(key), "must populate the given metric source only");
        }
    }
}

fn source(errors: &mut Errors, at: &At<'_>, key: &str, source: &Value) {
    let goal = &source["target"];
    let path = at.child("target");
    match key {
        "object" => reference(errors, &at.child("describedObject"), &source["describedObject"]),
        "resource" if source.text("name").is_empty() => {
            errors.required(&at.child("name"), "must specify a resource name");
        }
        "containerResource" => {
            match source.text("name") {
                "" => errors.required(&at.child("name"), "must specify a resource name"),
                name => resources::container_name(errors, &at.child("name"), name),
            }
            match source.text("container") {
                "" => errors.required(&at.child("container"), "must specify a container"),
                name => errors.invalid_all(&at.child("container"), name, names::dns_label(name)),
            }
        }
        _ => {}
    }
    if ["object", "external", "pods"].contains(&key) {
        let at = at.child("metric");
        match source["metric"].text("name") {
            "" => errors.required(&at.child("name"), "must specify a metric name"),
            name => errors.invalid_all(&at.child("name"), name, names::path_segment(name)),
        }
    }
    target(errors, &path, goal);
    let (value, average, use_) = (goal.has("value"), goal.has("averageValue"), goal.has("averageUtilization"));
    match key {
        "object" if !value && !average => {
            errors.required(&path.child("averageValue"), "must set either a target value or averageValue");
        }
        "external" if !value && !average => {
            let why = "must set either a target value for metric or a per-pod target";
            errors.required(&path.child("averageValue"), why);
        }
        "external" if value && average => {
            let why = "may not set both a target value for metric and a per-pod target";
            errors.forbidden(&path.child("value"), why);
        }
        "pods" if !average => {
            errors.required(&path.child("averageValue"), "must specify a positive target averageValue");
        }
        "resource" | "containerResource" if !use_ && !average => {
            let why = "must set either a target raw value or a target utilization";
            errors.required(&path.child("averageUtilization"), why);
        }
        "resource" | "containerResource" if use_ && average => {
            let why = "may not set both a target raw value and a target utilization";
            errors.forbidden(&path.child("averageValue"), why);
        }
        _ => {}
    }
}

fn target(errors: &mut Errors, at: &At<'_>, target: &Value) {
    let kind = target.text("type");
    if kind.is_empty() {
        errors.required(&at.child("type"), "must specify a metric target type");
    }
    if !["Utilization", "Value", "AverageValue"].contains(&kind) {
        errors.invalid(&at.child("type"), kind, "must be either Utilization, Value, or AverageValue");
    }
    for key in ["value", "averageValue"] {
        if let Some(amount) = Quantity::from_json(&target[key]).ok().filter(|amount| *amount <= Quantity::ZERO) {
            errors.invalid(&at.child(key), &amount.to_string(), "must be positive");
        }
    }
    if let Some(share) = target.number("averageUtilization").filter(|share| *share < 1) {
        errors.invalid(&at.child("averageUtilization"), &share, "must be greater than 0");
    }
}

fn rules(errors: &mut Errors, at: &At<'_>, rules: &Value) {
    let window = at.child("stabilizationWindowSeconds");
    match rules.number("stabilizationWindowSeconds") {
        Some(seconds) if seconds < 0 => {
            errors.invalid(&window, &seconds, "must be greater than or equal to zero");
        }
        Some(seconds) if seconds > 3600 => errors.invalid(&window, &seconds, "must be less than or equal to 3600"),
        _ => {}
    }
    let known = &["Disabled", "Max", "Min"];
    if let Some(policy) = rules.get("selectPolicy").and_then(Value::as_str).filter(|one| !known.contains(one)) {
        errors.unsupported(&at.child("selectPolicy"), policy, known);
    }
    let path = at.child("policies");
    if rules.list("policies").is_empty() {
        errors.required(&path, "must specify at least one Policy");
    }
    for (index, policy) in rules.list("policies").iter().enumerate() {
        let at = path.index(index);
        if !["Percent", "Pods"].contains(&policy.text("type")) {
            errors.unsupported(&at.child("type"), policy.text("type"), &["Percent", "Pods"]);
        }
        for key in ["value", "periodSeconds"] {
            let number = policy.number(key).unwrap_or(0);
            if number <= 0 {
                errors.invalid(&at.child(key), &number, "must be greater than zero");
            } else if key == "periodSeconds" && number > 1800 {
                errors.invalid(&at.child(key), &number, "must be less than or equal to 1800");
            }
        }
    }
}
