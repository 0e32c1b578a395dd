//! Deployments, ReplicaSets, DaemonSets, StatefulSets and ReplicationControllers.

use serde_json::{Value, json};

use super::{labels, pod, storage, text};
use crate::admit::field::{At, Errors, GoStruct};
use crate::admit::json::{Fill, Read};
use crate::store::LabelSelector;
use capstan_semantics::names;

/// Whether the selector matches the labels of the template; an invalid selector matches anything.
fn selects(selector: &Value, template: &Value) -> bool {
    LabelSelector::from_json(selector).is_ok_and(|selector| selector.matches_json(template))
}

fn unselected(errors: &mut Errors, at: &At<'_>, template: &Value) {
    let shown = match &template["metadata"]["labels"] {
        Value::Null => json!(null),
        labels => labels.clone(),
    };
    let why = "`selector` does not match template `labels`";
    errors.invalid(&at.child("template").child("metadata").child("labels"), &shown, why);
}

/// A selector that must be present, valid and not empty, and match the labels of the template; `why` is the error for
/// an invalid one.
fn selector(errors: &mut Errors, at: &At<'_>, spec: &Value, kind: &str, why: &str) {
    let (path, selector) = (at.child("selector"), &spec["selector"]);
    if selector.is_null() {
        errors.required(&path, "");
        // An absent selector selects nothing.
        return unselected(errors, at, &spec["template"]);
    }
    labels::selector(errors, &path, selector);
    if labels::is_empty(selector) {
        errors.invalid(&path, &labels::shown(selector), &format!("empty selector is invalid for {kind}"));
    } else if !labels::is_usable(selector) {
        errors.invalid(&path, &labels::shown(selector), why);
    } else if !selects(selector, &spec["template"]) {
        unselected(errors, at, &spec["template"]);
    }
}

/// The template of a controller whose pods restart always.
fn running_template(errors: &mut Errors, at: &At<'_>, spec: &Value, kind: &str) {
    let template = &spec["template"];
    let at = at.child("template");
    pod::template(errors, &at, template);
    let at = at.child("spec");
    let policy = template["spec"].text("restartPolicy");
    if policy != "Always" {
        errors.unsupported(&at.child("restartPolicy"), policy, &["Always"]);
    }
    if template["spec"].has("activeDeadlineSeconds") {
        let why = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.forbidden(&at.child("activeDeadlineSeconds"), &why);
    }
}

fn numbers(errors: &mut Errors, at: &At<'_>, spec: &Value, keys: &[&str]) {
    for key in keys {
        text::nonnegative(errors, &at.child(key), spec.number(key));
    }
}

/// The number of an int-or-percentage.
fn value(value: &Value) -> i64 {
    text::share(value).or_else(|| value.as_i64()).unwrap_or(0)
}

fn at_most_all(errors: &mut Errors, at: &At<'_>, value: &Value) {
    if text::share(value).is_some_and(|share| share > 100) {
        errors.invalid(at, value, "must not be greater than 100%");
    }
}

/// A Deployment.
pub(super) fn deployment(errors: &mut Errors, deployment: &Value, old: Option<&Value>) {
    let (at, spec) = (At::new("spec"), &deployment["spec"]);
    numbers(errors, &at, spec, &["replicas"]);
    selector(errors, &at, spec, "deployment", "invalid label selector");
    running_template(errors, &at, spec, "ReplicaSet");
    strategy(errors, &at.child("strategy"), &spec["strategy"]);
    numbers(errors, &at, spec, &["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"]);
    let ready = spec.number("minReadySeconds").unwrap_or(0);
    if let Some(seconds) = spec.number("progressDeadlineSeconds").filter(|seconds| *seconds <= ready) {
        errors.invalid(&at.child("progressDeadlineSeconds"), &seconds, "must be greater than minReadySeconds");
    }
    if let Some(old) = old {
        labels::immutable(errors, &at, spec, &old["spec"]);
    }
}

fn strategy(errors: &mut Errors, at: &At<'_>, strategy: &Value) {
    let rolling = &strategy["rollingUpdate"];
    let path = at.child("rollingUpdate");
    match strategy.text("type") {
        "Recreate" if !rolling.is_null() => {
            errors.forbidden(&path, "may not be specified when strategy `type` is 'Recreate'");
        }
        "Recreate" => {}
        "RollingUpdate" => {
            let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
            text::number_or_percent(errors, &path.child("maxUnavailable"), unavailable);
            text::number_or_percent(errors, &path.child("maxSurge"), surge);
            if value(unavailable) == 0 && value(surge) == 0 {
                errors.invalid(&path.child("maxUnavailable"), unavailable, "may not be 0 when `maxSurge` is 0");
            }
            at_most_all(errors, &path.child("maxUnavailable"), unavailable);
        }
        _ => errors.unsupported_value(at, &shown_strategy(strategy), &["Recreate", "RollingUpdate"]),
    }
}

fn shown_strategy(strategy: &Value) -> GoStruct {
    GoStruct::new(strategy, &["type", "rollingUpdate"])
}

/// A ReplicaSet.
pub(super) fn replica_set(errors: &mut Errors, set: &Value, old: Option<&Value>) {
    let (at, spec) = (At::new("spec"), &set["spec"]);
    numbers(errors, &at, spec, &["replicas", "minReadySeconds"]);
    selector(errors, &at, spec, "deployment", "invalid label selector");
    running_template(errors, &at, spec, "ReplicaSet");
    if let Some(old) = old {
        labels::immutable(errors, &at, spec, &old["spec"]);
    }
}

/// A ReplicationController.
pub(super) fn replication_controller(errors: &mut Errors, controller: &Value) {
    let (at, spec) = (At::new("spec"), &controller["spec"]);
    numbers(errors, &at, spec, &["minReadySeconds"]);
    if spec.members("selector").next().is_none() {
        errors.required(&at.child("selector"), "");
    }
    numbers(errors, &at, spec, &["replicas"]);
    if !spec.has("template") {
        return errors.required(&at.child("template"), "");
    }
    let have = &spec["template"]["metadata"]["labels"];
    if spec.members("selector").any(|(key, value)| have.get(key) != Some(value)) {
        unselected(errors, &at, &spec["template"]);
    }
    running_template(errors, &at, spec, "ReplicationController");
}

/// A DaemonSet.
pub(super) fn daemon_set(errors: &mut Errors, set: &Value, old: Option<&Value>) {
    let (at, spec) = (At::new("spec"), &set["spec"]);
    labels::selector(errors, &at.child("selector"), &spec["selector"]);
    // An absent selector selects nothing.
    let usable = labels::is_usable(&spec["selector"]);
    if !spec.has("selector") || (usable && !selects(&spec["selector"], &spec["template"])) {
        unselected(errors, &at, &spec["template"]);
    }
    if spec.has("selector") && labels::is_empty(&spec["selector"]) {
        errors.invalid(&at.child("selector"), &spec["selector"], "empty selector is invalid for daemonset");
    }
    running_template(errors, &at, spec, "DaemonSet");
    numbers(errors, &at, spec, &["minReadySeconds"]);
    daemon_strategy(errors, &at.child("updateStrategy"), &spec["updateStrategy"]);
    numbers(errors, &at, spec, &["revisionHistoryLimit"]);
    if let Some(old) = old {
        labels::immutable(errors, &at, spec, &old["spec"]);
    }
}

fn daemon_strategy(errors: &mut Errors, at: &At<'_>, strategy: &Value) {
    let path = at.child("rollingUpdate");
    match strategy.text("type") {
        "OnDelete" => {}
        "RollingUpdate" if !strategy.has("rollingUpdate") => errors.required(&path, ""),
        "RollingUpdate" => {
            let rolling = &strategy["rollingUpdate"];
            let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
            text::number_or_percent(errors, &path.child("maxUnavailable"), unavailable);
            text::number_or_percent(errors, &path.child("maxSurge"), surge);
            at_most_all(errors, &path.child("maxUnavailable"), unavailable);
            at_most_all(errors, &path.child("maxSurge"), surge);
            match (value(unavailable) != 0, value(surge) != 0) {
                (true, true) => {
                    errors.invalid(&path.child("maxSurge"), surge, "may not be set when maxUnavailable is non-zero");
                }
                (false, false) => errors.required(&path.child("maxUnavailable"), "cannot be 0 when maxSurge is 0"),
                _ => {}
            }
        }
        _ => errors.unsupported_value(at, &shown_strategy(strategy), &["RollingUpdate", "OnDelete"]),
    }
}

/// A StatefulSet.
pub(super) fn stateful_set(errors: &mut Errors, set: &Value, old: Option<&Value>) {
    let (at, spec) = (At::new("spec"), &set["spec"]);
    match spec.text("podManagementPolicy") {
        "OrderedReady" | "Parallel" => {}
        "" => errors.required(&at.child("podManagementPolicy"), ""),
        other => errors.invalid(&at.child("podManagementPolicy"), other, "must be 'OrderedReady' or 'Parallel'"),
    }
    stateful_strategy(errors, &at.child("updateStrategy"), &spec["updateStrategy"]);
    let retention = at.child("persistentVolumeClaimRetentionPolicy");
    for key in ["whenDeleted", "whenScaled"] {
        let policy = spec["persistentVolumeClaimRetentionPolicy"].text(key);
        if !["Retain", "Delete"].contains(&policy) {
            errors.unsupported(&retention.child(key), policy, &["Retain", "Delete"]);
        }
    }
    let claims = at.child("volumeClaimTemplates");
    for (index, claim) in spec.list("volumeClaimTemplates").iter().enumerate() {
        storage::claim_spec(errors, &claims.index(index).child("spec"), &claim["spec"]);
    }
    numbers(errors, &at, spec, &["replicas", "minReadySeconds"]);
    text::nonnegative(errors, &at.child("ordinals.start"), spec["ordinals"].number("start"));
    let service = spec.text("serviceName");
    if !service.is_empty() {
        errors.invalid_all(&at.child("serviceName"), service, names::dns_label(service));
    }
    selector(errors, &at, spec, "statefulset", "");
    running_template(errors, &at, &claimed(spec), "StatefulSet");
    if let Some(old) = old {
        for key in ["selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy"] {
            errors.immutable(&at.child(key), &spec[key], &old["spec"][key]);
        }
    }
}

/// The spec with the claim volumes that the controller adds, and without the names that it overwrites.
fn claimed(spec: &Value) -> Value {
    let mut spec = spec.clone();
    let claims: Vec<String> =
        spec.list("volumeClaimTemplates").iter().map(|claim| claim["metadata"].text("name").to_owned()).collect();
    let Some(pod) = spec.inner("template").and_then(|template| template.inner("spec")) else { return spec };
    pod.drop("subdomain");
    pod.drop("hostname");
    let mut volumes: Vec<Value> =
        claims.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}})).collect();
    volumes.extend(
        pod.list("volumes").iter().filter(|volume| !claims.iter().any(|name| volume.text("name") == name)).cloned(),
    );
    if !volumes.is_empty() {
        pod.put("volumes", volumes);
    }
    spec
}

fn stateful_strategy(errors: &mut Errors, at: &At<'_>, strategy: &Value) {
    let (rolling, path) = (&strategy["rollingUpdate"], at.child("rollingUpdate"));
    match strategy.text("type") {
        "" => errors.required(at, ""),
        "OnDelete" if !rolling.is_null() => {
            let shown = GoStruct::new(rolling, &["partition", "maxUnavailable"]);
            errors.invalid(&path, &shown, "only allowed for updateStrategy 'RollingUpdate'");
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            text::nonnegative(errors, &path.child("partition"), rolling.number("partition"));
            let unavailable = &rolling["maxUnavailable"];
            if !unavailable.is_null() {
                let at = path.child("maxUnavailable");
                text::number_or_percent(errors, &at, unavailable);
                if value(unavailable) == 0 {
                    errors.invalid(&at, unavailable, "cannot be 0");
                }
                at_most_all(errors, &at, unavailable);
            }
        }
        _ => errors.invalid(at, &shown_strategy(strategy), "must be 'RollingUpdate' or 'OnDelete'"),
    }
}

/// The status of a workload with replica counts.
pub(super) fn status(errors: &mut Errors, kind: &str, status: &Value) {
    let at = At::new("status");
    let count = |key: &str| status.number(key).unwrap_or(0);
    let keys: &[&str] = match kind {
        "Deployment" => &[
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
        ],
        "StatefulSet" => &[
            "replicas",
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
            "observedGeneration",
        ],
        "DaemonSet" => &[
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
        ],
        _ => &["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"],
    };
    numbers(errors, &at, status, keys);
    if kind == "DaemonSet" {
        return;
    }
    let bounded = ["fullyLabeledReplicas", "updatedReplicas", "readyReplicas", "currentReplicas", "availableReplicas"];
    for key in bounded.into_iter().filter(|key| keys.contains(key) && count(key) > count("replicas")) {
        errors.invalid(&at.child(key), &count(key), "cannot be greater than status.replicas");
    }
    if count("availableReplicas") > count("readyReplicas") {
        let why = if kind == "StatefulSet" {
            "cannot be greater than status.readyReplicas"
        } else {
            "cannot be greater than readyReplicas"
        };
        errors.invalid(&at.child("availableReplicas"), &count("availableReplicas"), why);
    }
}
