//! Affinity, tolerations and topology spread constraints.

use std::collections::BTreeSet;

use serde_json::Value;

use super::labels;
use crate::admit::field::{At, Errors};
use crate::admit::json::Read;
use capstan_semantics::names;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// The affinity of a pod.
pub(super) fn affinity(errors: &mut Errors, at: &At<'_>, affinity: &Value) {
    let node = &affinity["nodeAffinity"];
    let here = at.child("nodeAffinity");
    if node.has(REQUIRED) {
        node_selector(errors, &here.child(REQUIRED), &node[REQUIRED]);
    }
    let preferred = here.child(PREFERRED);
    for (index, term) in node.list(PREFERRED).iter().enumerate() {
        let at = preferred.index(index);
        weight(errors, &at, term);
        node_term(errors, &at.child("preference"), &term["preference"], Values::Any);
    }
    for key in ["podAffinity", "podAntiAffinity"] {
        let (rules, here) = (&affinity[key], at.child(key));
        let required = here.child(REQUIRED);
        for (index, term) in rules.list(REQUIRED).iter().enumerate() {
            pod_term(errors, &required.index(index), term);
        }
        let preferred = here.child(PREFERRED);
        for (index, weighted) in rules.list(PREFERRED).iter().enumerate() {
            let at = preferred.index(index);
            weight(errors, &at, weighted);
            pod_term(errors, &at.child("podAffinityTerm"), &weighted["podAffinityTerm"]);
        }
    }
}

fn weight(errors: &mut Errors, at: &At<'_>, term: &Value) {
    let weight = term.number("weight").unwrap_or(0);
    if !(1..=100).contains(&weight) {
        errors.invalid(&at.child("weight"), &weight, "must be in the range 1-100");
    }
}

/// Whether label values are validated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Values {
    Any,
    Labels,
}

/// A node selector.
pub(super) fn node_selector(errors: &mut Errors, at: &At<'_>, selector: &Value) {
    let at = at.child("nodeSelectorTerms");
    let terms = selector.list("nodeSelectorTerms");
    if terms.is_empty() {
        return errors.required(&at, "must have at least one node selector term");
    }
    for (index, term) in terms.iter().enumerate() {
        node_term(errors, &at.index(index), term, Values::Labels);
    }
}

fn node_term(errors: &mut Errors, at: &At<'_>, term: &Value, values: Values) {
    let expressions = at.child("matchExpressions");
    for (index, expression) in term.list("matchExpressions").iter().enumerate() {
        node_expression(errors, &expressions.index(index), expression, values);
    }
    let fields = at.child("matchFields");
    for (index, expression) in term.list("matchFields").iter().enumerate() {
        node_field(errors, &fields.index(index), expression);
    }
}

fn node_expression(errors: &mut Errors, at: &At<'_>, expression: &Value, kind: Values) {
    let (operator, values, path) = (expression.text("operator"), expression.list("values"), at.child("values"));
    match operator {
        "In" | "NotIn" if values.is_empty() => {
            errors.required(&path, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            errors.forbidden(&path, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        "Gt" | "Lt" if values.len() != 1 => {
            errors.required(&path, "must be specified single value when `operator` is 'Lt' or 'Gt'");
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => errors.invalid(&at.child("operator"), other, "not a valid selector operator"),
    }
    labels::key(errors, &at.child("key"), expression.text("key"));
    if kind == Values::Labels {
        for (index, value) in values.iter().enumerate() {
            let value = value.as_str().unwrap_or_default();
            errors.invalid_all(&path.index(index), value, names::label_value(value));
        }
    }
}

fn node_field(errors: &mut Errors, at: &At<'_>, expression: &Value) {
    let values = expression.list("values");
    match expression.text("operator") {
        "In" | "NotIn" if values.len() != 1 => {
            let why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            errors.required(&at.child("values"), why);
        }
        "In" | "NotIn" => {}
        other => errors.invalid(&at.child("operator"), other, "not a valid selector operator"),
    }
    if expression.text("key") != "metadata.name" {
        return errors.invalid(&at.child("key"), expression.text("key"), "not a valid field selector key");
    }
    let path = at.child("values");
    for (index, value) in values.iter().enumerate() {
        let value = value.as_str().unwrap_or_default();
        errors.invalid_all(&path.index(index), value, names::dns_subdomain(value));
    }
}

fn pod_term(errors: &mut Errors, at: &At<'_>, term: &Value) {
    labels::selector(errors, &at.child("labelSelector"), &term["labelSelector"]);
    labels::selector(errors, &at.child("namespaceSelector"), &term["namespaceSelector"]);
    for namespace in term.list("namespaces") {
        let namespace = namespace.as_str().unwrap_or_default();
        errors.invalid_all(&at.child("namespace"), namespace, names::dns_label(namespace));
    }
    label_keys(errors, at, term);
    let key = term.text("topologyKey");
    if key.is_empty() {
        errors.required(&at.child("topologyKey"), "can not be empty");
    }
    labels::key(errors, &at.child("topologyKey"), key);
}

/// `matchLabelKeys` and `mismatchLabelKeys` beside a selector.
fn label_keys(errors: &mut Errors, at: &At<'_>, term: &Value) {
    for list in ["matchLabelKeys", "mismatchLabelKeys"] {
        let (keys, path) = (term.list(list), at.child(list));
        if keys.is_empty() {
            continue;
        }
        if !term.has("labelSelector") {
            errors.forbidden(&path, "must not be specified when labelSelector is not set");
            continue;
        }
        for (index, key) in keys.iter().enumerate() {
            labels::key(errors, &path.index(index), key.as_str().unwrap_or_default());
        }
    }
    let keys: Vec<&str> = term.list("matchLabelKeys").iter().filter_map(Value::as_str).collect();
    let selector = &term["labelSelector"];
    let mut seen: BTreeSet<&str> = selector.members("matchLabels").map(|(key, _)| key.as_str()).collect();
    for expression in selector.list("matchExpressions") {
        // The selector already has the keys: one that occurs twice was also set by the client.
        let key = expression.text("key");
        if let Some(index) = keys.iter().position(|one| *one == key).filter(|_| seen.contains(key)) {
            errors.invalid(&at.index(index), key, "exists in both matchLabelKeys and labelSelector");
        }
        seen.insert(key);
    }
    let path = at.child("matchLabelKeys");
    for (index, key) in keys.iter().enumerate() {
        if term.list("mismatchLabelKeys").iter().any(|other| other == key) {
            let why = "exists in both matchLabelKeys and mismatchLabelKeys";
            errors.invalid(&path.index(index), *key, why);
        }
    }
}

/// The effect of a taint or toleration.
pub(super) fn effect(errors: &mut Errors, at: &At<'_>, effect: &str) {
    match effect {
        "" => errors.required(at, ""),
        effect if !EFFECTS.contains(&effect) => errors.unsupported(at, effect, EFFECTS),
        _ => {}
    }
}

/// Tolerations of a pod.
pub(super) fn tolerations(errors: &mut Errors, at: &At<'_>, tolerations: &[Value]) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let at = at.index(index);
        let (key, operator, value) = (toleration.text("key"), toleration.text("operator"), toleration.text("value"));
        if !key.is_empty() {
            labels::key(errors, &at.child("key"), key);
        } else if operator != "Exists" {
            let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid(&at.child("operator"), operator, why);
        }
        if toleration.has("tolerationSeconds") && toleration.text("effect") != "NoExecute" {
            let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid(&at.child("effect"), toleration.text("effect"), why);
        }
        match operator {
            "Equal" | "" => {
                let wrong = names::label_value(value);
                if !wrong.is_empty() {
                    errors.invalid(&at.child("operator"), value, &wrong.join(";"));
                }
            }
            "Exists" if !value.is_empty() => {
                errors.invalid(&at.child("operator"), value, "value must be empty when `operator` is 'Exists'");
            }
            "Exists" => {}
            "Lt" | "Gt" => number(errors, &at.child("value"), value),
            other => errors.unsupported(&at.child("operator"), other, &["Equal", "Exists"]),
        }
        if !toleration.text("effect").is_empty() {
            effect(errors, &at.child("effect"), toleration.text("effect"));
        }
    }
}

fn number(errors: &mut Errors, at: &At<'_>, value: &str) {
    let digits = value.strip_prefix('-').unwrap_or(value);
    let canonical = digits == "0" || (!digits.is_empty() && !digits.starts_with('0'));
    if !digits.bytes().all(|b| b.is_ascii_digit()) || !canonical {
        errors.invalid(at, value, "must be a valid decimal integer in canonical form");
    }
    if value.parse::<i64>().is_err() {
        errors.invalid(at, value, &format!("strconv.ParseInt: parsing {value:?}: invalid syntax"));
    }
}

/// Topology spread constraints of a pod.
pub(super) fn spread(errors: &mut Errors, at: &At<'_>, constraints: &[Value]) {
    for (index, constraint) in constraints.iter().enumerate() {
        let here = at.index(index);
        let skew = constraint.number("maxSkew").unwrap_or(0);
        if skew <= 0 {
            errors.invalid(&here.child("maxSkew"), &skew, "must be greater than zero");
        }
        let (key, action) = (constraint.text("topologyKey"), constraint.text("whenUnsatisfiable"));
        if key.is_empty() {
            errors.required(&here.child("topologyKey"), "can not be empty");
        }
        if !["DoNotSchedule", "ScheduleAnyway"].contains(&action) {
            errors.unsupported(&here.child("whenUnsatisfiable"), action, &["DoNotSchedule", "ScheduleAnyway"]);
        }
        let again = |other: &Value| other.text("topologyKey") == key && other.text("whenUnsatisfiable") == action;
        if constraints[index + 1..].iter().any(again) {
            errors.duplicate(&here.child("{topologyKey, whenUnsatisfiable}"), &format!("{{{key}, {action}}}"));
        }
        if let Some(domains) = constraint.number("minDomains") {
            let at = here.child("minDomains");
            if domains <= 0 {
                errors.invalid(&at, &domains, "must be greater than zero");
            }
            if action != "DoNotSchedule" {
                let why = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                errors.invalid(&at, &domains, &why);
            }
        }
        for key in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            let policy = constraint.get(key).and_then(Value::as_str);
            if let Some(policy) = policy.filter(|policy| !["Honor", "Ignore"].contains(policy)) {
                errors.unsupported(&here.child(key), policy, &["Honor", "Ignore"]);
            }
        }
        label_keys(errors, &here, constraint);
        labels::selector(errors, &here.child("labelSelector"), &constraint["labelSelector"]);
    }
}
