//! PodDisruptionBudgets, PriorityClasses, Leases, RuntimeClasses.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::resources::{self, Of};
use super::{affinity, labels, text};
use crate::admit::field::{At, Errors};
use crate::admit::json::Read;
use capstan_semantics::names;

const SYSTEM: &str = "system-";
const MAX_PRIORITY: i64 = 1_000_000_000;

fn at_most_all(errors: &mut Errors, at: &At<'_>, value: &Value) {
    if text::share(value).is_some_and(|share| share > 100) {
        errors.invalid(at, value, "must not be greater than 100%");
    }
}

/// A PodDisruptionBudget.
pub(super) fn budget(errors: &mut Errors, budget: &Value) {
    let (at, spec) = (At::new("spec"), &budget["spec"]);
    if spec.has("minAvailable") && spec.has("maxUnavailable") {
        let shown = Budget(spec);
        errors.invalid(&at, &shown, "minAvailable and maxUnavailable cannot be both set");
    }
    for key in ["minAvailable", "maxUnavailable"].into_iter().filter(|key| spec.has(key)) {
        text::number_or_percent(errors, &at.child(key), &spec[key]);
        at_most_all(errors, &at.child(key), &spec[key]);
    }
    labels::selector(errors, &at.child("selector"), &spec["selector"]);
    let known = &["AlwaysAllow", "IfHealthyBudget"];
    let policy = spec.get("unhealthyPodEvictionPolicy").and_then(Value::as_str);
    if let Some(policy) = policy.filter(|policy| !known.contains(policy)) {
        errors.unsupported(&at.child("unhealthyPodEvictionPolicy"), policy, known);
    }
}

/// The spec of a budget as Go prints it.
struct Budget<'a>(&'a Value);

impl crate::admit::field::Show for Budget<'_> {
    fn show(&self) -> String {
        let part = |key: &str| crate::golang::json(self.0.get(key).unwrap_or(&Value::Null));
        let selector = labels::shown(&self.0["selector"]).0;
        format!(
            r#"{{"MinAvailable":{},"Selector":{selector},"MaxUnavailable":{},"UnhealthyPodEvictionPolicy":{}}}"#,
            part("minAvailable"),
            part("maxUnavailable"),
            part("unhealthyPodEvictionPolicy")
        )
    }
}

/// The status of a PodDisruptionBudget.
pub(super) fn budget_status(errors: &mut Errors, budget: &Value) {
    let at = At::new("status");
    for key in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        text::nonnegative(errors, &at.child(key), budget["status"].number(key));
    }
}

/// A PriorityClass.
pub(super) fn priority_class(errors: &mut Errors, class: &Value, old: Option<&Value>) {
    let (name, value) = (class["metadata"].text("name"), class.number("value").unwrap_or(0));
    if let Some(old) = old {
        if class["value"] != old["value"] {
            errors.forbidden(&At::new("value"), "may not be changed in an update.");
        }
        errors.immutable(&At::new("preemptionPolicy"), &class["preemptionPolicy"], &old["preemptionPolicy"]);
        return;
    }
    if name.starts_with(SYSTEM) {
        let known = [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];
        let why = match known.iter().find(|(known, _)| *known == name) {
            None => Some(format!("{name} is not a known system priority class")),
            Some((_, wanted)) if *wanted != value => Some(format!("value of {name} PriorityClass must be {wanted}")),
            Some(_) if class.flag("globalDefault") => {
                Some(format!("globalDefault of {name} PriorityClass must be false"))
            }
            Some(_) => None,
        };
        if let Some(why) = why {
            let start = "priority class names with 'system-' prefix are reserved for system use only. error: ";
            errors.forbidden(&At::new("metadata.name"), &format!("{start}{why}"));
        }
    } else if value > MAX_PRIORITY {
        let why = format!("maximum allowed value of a user defined priority is {MAX_PRIORITY}");
        errors.forbidden(&At::new("value"), &why);
    }
    match class.get("preemptionPolicy").and_then(Value::as_str) {
        None | Some("PreemptLowerPriority" | "Never") => {}
        Some(other) => errors.unsupported(&At::new("preemptionPolicy"), other, &["PreemptLowerPriority", "Never"]),
    }
}

/// A Lease.
pub(super) fn lease(errors: &mut Errors, lease: &Value) {
    let (at, spec) = (At::new("spec"), &lease["spec"]);
    if let Some(seconds) = spec.number("leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
        errors.invalid(&at.child("leaseDurationSeconds"), &seconds, "must be greater than 0");
    }
    text::nonnegative(errors, &at.child("leaseTransitions"), spec.number("leaseTransitions"));
}

/// A RuntimeClass.
pub(super) fn runtime_class(errors: &mut Errors, class: &Value, old: Option<&Value>) {
    if let Some(old) = old {
        return errors.declared_immutable(&At::new("handler"), &class["handler"], &old["handler"]);
    }
    match class.text("handler") {
        "" => errors.required(&At::new("handler"), ""),
        handler => errors.invalid_all(&At::new("handler"), handler, names::dns_label(handler)),
    }
    if class.has("overhead") {
        let limits = json!({"limits": class["overhead"]["podFixed"]});
        resources::requirements(errors, &At::new("overhead"), &limits, &BTreeSet::new(), Of::Container);
    }
    let (at, scheduling) = (At::new("scheduling"), &class["scheduling"]);
    labels::labels(errors, &at.child("nodeSelector"), &scheduling["nodeSelector"]);
    affinity::tolerations(errors, &at.child("tolerations"), scheduling.list("tolerations"));
}
