//! Jobs and CronJobs.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{cron, labels, pod, text};
use crate::admit::field::{At, Errors};
use crate::admit::json::{Fill, Read};
use crate::store::LabelSelector;
use capstan_semantics::names;

const MAX_PARALLEL: i64 = 100_000;

/// A Job.
pub(super) fn job(errors: &mut Errors, job: &Value, old: Option<&Value>) {
    let (at, spec_) = (At::new("spec"), &job["spec"]);
    if old.is_none() {
        generated(errors, job);
    }
    spec(errors, &at, spec_);
    let (path, selector) = (at.child("selector"), &spec_["selector"]);
    if selector.is_null() {
        errors.required(&path, "");
    }
    labels::selector(errors, &path, selector);
    let matches = LabelSelector::from_json(selector).is_ok_and(|one| one.matches_json(&spec_["template"]));
    // An absent selector selects nothing.
    if labels::is_usable(selector) && (selector.is_null() || !matches) {
        let at = at.child("template");
        let labels = &spec_["template"]["metadata"]["labels"];
        errors.invalid(&at.child("metadata").child("labels"), labels, "`selector` does not match template `labels`");
    }
    match old {
        None => name_allows(errors, job),
        Some(old) => update(errors, &at, job, old),
    }
}

/// The selector must be the generated one.
fn generated(errors: &mut Errors, job: &Value) {
    let (spec, uid, name) = (&job["spec"], job["metadata"].text("uid"), job["metadata"].text("name"));
    if spec.flag("manualSelector") || !spec.has("selector") {
        return;
    }
    let labels = [
        ("controller-uid", uid),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
    ];
    let expected = |key: &str| labels.iter().find(|(label, _)| *label == key).map(|(_, value)| *value);
    if LabelSelector::from_json(&spec["selector"]).is_ok_and(|selector| !selector.matches(expected)) {
        errors.invalid(&At::new("spec.selector"), &labels::shown(&spec["selector"]), "`selector` not auto-generated");
    }
}

fn name_allows(errors: &mut Errors, job: &Value) {
    let (spec, name) = (&job["spec"], job["metadata"].text("name"));
    let completions = spec.number("completions").filter(|count| *count > 0 && spec.text("completionMode") == "Indexed");
    let Some(completions) = completions else { return };
    let longest = format!("{name}-{}", completions - 1);
    if !names::dns_label(&longest).is_empty() {
        let why = format!("will not able to create pod with invalid DNS label: {longest}");
        errors.invalid(&At::new("metadata.name"), name, &why);
    }
}

fn spec(errors: &mut Errors, at: &At<'_>, spec: &Value) {
    let counts = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    for key in counts {
        text::nonnegative(errors, &at.child(key), spec.number(key));
    }
    if spec.has("maxFailedIndexes") && !spec.has("backoffLimitPerIndex") {
        errors.required(&at.child("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    completion_mode(errors, at, spec);
    failure_policy(errors, &at.child("podFailurePolicy"), spec);
    let replacement = at.child("podReplacementPolicy");
    match spec.get("podReplacementPolicy").and_then(Value::as_str) {
        Some(policy) if spec.has("podFailurePolicy") && policy != "Failed" => {
            errors.unsupported(&replacement, policy, &["Failed"]);
        }
        Some("Failed" | "TerminatingOrFailed") | None => {}
        Some(other) => errors.unsupported(&replacement, other, &["Failed", "TerminatingOrFailed"]),
    }
    let template = at.child("template");
    pod::template(errors, &template, &spec["template"]);
    let path = template.child("spec");
    let path = path.child("restartPolicy");
    match spec["template"]["spec"].text("restartPolicy") {
        "" | "Always" => errors.required(&path, "valid values: \"OnFailure\", \"Never\""),
        "Never" => {}
        "OnFailure" if spec.has("podFailurePolicy") => {
            errors.invalid(&path, "OnFailure", "only \"Never\" is supported when podFailurePolicy is specified");
        }
        "OnFailure" => {}
        other => errors.unsupported(&path, other, &["OnFailure", "Never"]),
    }
}

fn completion_mode(errors: &mut Errors, at: &At<'_>, spec: &Value) {
    match spec.get("completionMode").and_then(Value::as_str) {
        Some("Indexed") => {
            if !spec.has("completions") {
                errors.required(&at.child("completions"), "when completion mode is Indexed");
            }
            if let Some(parallel) = spec.number("parallelism").filter(|parallel| *parallel > MAX_PARALLEL) {
                let why = format!("must be less than or equal to {MAX_PARALLEL} when completion mode is Indexed");
                errors.invalid(&at.child("parallelism"), &parallel, &why);
            }
            if let (Some(most), Some(completions)) = (spec.number("maxFailedIndexes"), spec.number("completions"))
                && most > completions
            {
                errors.invalid(&at.child("maxFailedIndexes"), &most, "must be less than or equal to completions");
            }
        }
        Some("NonIndexed") | None => {
            for key in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if let Some(value) = spec.number(key) {
                    errors.invalid(&at.child(key), &value, "requires indexed completion mode");
                }
            }
        }
        Some(other) => errors.unsupported(&at.child("completionMode"), other, &["NonIndexed", "Indexed"]),
    }
}

fn failure_policy(errors: &mut Errors, at: &At<'_>, spec: &Value) {
    let rules = spec["podFailurePolicy"].list("rules");
    let pods = &spec["template"]["spec"];
    let containers: BTreeSet<&str> =
        pods.list("containers").iter().chain(pods.list("initContainers")).map(|one| one.text("name")).collect();
    let path = at.child("rules");
    if rules.len() > 20 {
        errors.too_many(&path, rules.len(), 20);
    }
    for (index, rule) in rules.iter().enumerate() {
        let at = path.index(index);
        match rule.text("action") {
            "" => {
                errors.required(&at.child("action"), "valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]")
            }
            "FailIndex" if !spec.has("backoffLimitPerIndex") => {
                errors.invalid(&at.child("action"), "FailIndex", "requires the backoffLimitPerIndex to be set");
            }
            "Count" | "FailIndex" | "FailJob" | "Ignore" => {}
            other => errors.unsupported(&at.child("action"), other, &["Count", "FailIndex", "FailJob", "Ignore"]),
        }
        let (codes, conditions) = (&rule["onExitCodes"], rule.list("onPodConditions"));
        if codes.is_object() {
            exit_codes(errors, &at.child("onExitCodes"), codes, &containers);
        }
        let path = at.child("onPodConditions");
        for (index, condition) in conditions.iter().enumerate() {
            let at = path.index(index);
            labels::key(errors, &at.child("type"), condition.text("type"));
            let status = condition.text("status");
            if !["False", "True", "Unknown"].contains(&status) {
                errors.unsupported(&at.child("status"), status, &["False", "True", "Unknown"]);
            }
        }
        match (codes.is_object(), conditions.is_empty()) {
            (true, false) => {
                errors.invalid_hidden(&at, "specifying both OnExitCodes and OnPodConditions is not supported");
            }
            (false, true) => {
                errors.invalid_hidden(&at, "specifying one of OnExitCodes and OnPodConditions is required");
            }
            _ => {}
        }
    }
}

fn exit_codes(errors: &mut Errors, at: &At<'_>, codes: &Value, containers: &BTreeSet<&str>) {
    match codes.text("operator") {
        "" => errors.required(&at.child("operator"), "valid values: [\"In\" \"NotIn\"]"),
        "In" | "NotIn" => {}
        other => errors.unsupported(&at.child("operator"), other, &["In", "NotIn"]),
    }
    if let Some(name) = codes.get("containerName").and_then(Value::as_str).filter(|name| !containers.contains(name)) {
        let why = "must be one of the container or initContainer names in the pod template";
        errors.invalid(&at.child("containerName"), name, why);
    }
    let (values, path) = (codes.list("values"), at.child("values"));
    if values.is_empty() {
        errors.invalid(&path, &Value::Array(Vec::new()), "at least one value is required");
    } else if values.len() > 255 {
        errors.too_many(&path, values.len(), 255);
    }
    let numbers: Vec<i64> = values.iter().filter_map(Value::as_i64).collect();
    for (index, number) in numbers.iter().enumerate() {
        if codes.text("operator") == "In" && *number == 0 {
            errors.invalid(&path.index(index), number, "must not be 0 for the In operator");
        }
        if numbers[..index].contains(number) {
            errors.duplicate(&path.index(index), number);
        }
    }
    if !numbers.is_sorted() {
        errors.invalid(&path, &codes["values"], "must be ordered");
    }
}

fn update(errors: &mut Errors, at: &At<'_>, job: &Value, old: &Value) {
    let (spec, before) = (&job["spec"], &old["spec"]);
    let indexed = spec.text("completionMode") == "Indexed";
    if spec["completions"] != before["completions"] {
        let at = at.child("completions");
        if !indexed {
            errors.invalid(&at, &spec["completions"], "field is immutable");
        } else if spec["completions"] != spec["parallelism"] {
            errors.invalid(&at, &spec["completions"], "can only be modified in tandem with spec.parallelism");
        }
    }
    labels::immutable(errors, at, spec, before);
    let (template, was) = (&spec["template"], &before["template"]);
    if template != was {
        let suspended = before.flag("suspend") && !old["status"].has("startTime");
        let (mut now, mut then) = (template.clone(), was.clone());
        if suspended {
            // The scheduling directives of a suspended Job that has not started are mutable.
            for template in [&mut now, &mut then] {
                if let Some(meta) = template.inner("metadata") {
                    meta.drop("labels");
                    meta.drop("annotations");
                }
                if let Some(pod) = template.inner("spec") {
                    for key in ["nodeSelector", "tolerations", "schedulingGates"] {
                        pod.drop(key);
                    }
                    if let Some(affinity) = pod.inner("affinity") {
                        affinity.drop("nodeAffinity");
                    }
                    for list in ["containers", "initContainers"] {
                        pod.items(list).for_each(|container| drop(container.drop("resources")));
                    }
                }
            }
        }
        if now != then {
            errors.invalid(&at.child("template"), template, "field is immutable");
        }
    }
    for key in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"] {
        errors.immutable(&at.child(key), &spec[key], &before[key]);
    }
}

/// A CronJob.
pub(super) fn cron_job(errors: &mut Errors, job: &Value, old: Option<&Value>) {
    let (at, spec_) = (At::new("spec"), &job["spec"]);
    let schedule = spec_.text("schedule");
    let path = at.child("schedule");
    if schedule.is_empty() {
        errors.required(&path, "");
    } else {
        if let Err(why) = cron::parse(schedule) {
            errors.invalid(&path, schedule, &why);
        }
        let zoned = old.is_some_and(|old| old["spec"].text("schedule").contains("TZ"));
        if schedule.contains("TZ") && !zoned {
            errors.invalid(&path, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
        } else if schedule.contains("TZ") && spec_.has("timeZone") {
            errors.invalid(&path, schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule");
        }
    }
    text::nonnegative(errors, &at.child("startingDeadlineSeconds"), spec_.number("startingDeadlineSeconds"));
    if let Some(zone) = spec_.get("timeZone").and_then(Value::as_str) {
        time_zone(errors, &at.child("timeZone"), zone);
    }
    match spec_.text("concurrencyPolicy") {
        "" => errors.required(&at.child("concurrencyPolicy"), ""),
        "Allow" | "Forbid" | "Replace" => {}
        other => errors.unsupported(&at.child("concurrencyPolicy"), other, &["Allow", "Forbid", "Replace"]),
    }
    let template = at.child("jobTemplate");
    let (path, inner) = (template.child("spec"), &spec_["jobTemplate"]["spec"]);
    spec(errors, &path, inner);
    if inner.has("selector") {
        errors.invalid(
            &path.child("selector"),
            &labels::shown(&inner["selector"]),
            "`selector` will be auto-generated",
        );
    }
    if inner.flag("manualSelector") {
        errors.unsupported_value(&path.child("manualSelector"), &inner["manualSelector"], &["nil", "false"]);
    }
    for key in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        text::nonnegative(errors, &at.child(key), spec_.number(key));
    }
}

fn time_zone(errors: &mut Errors, at: &At<'_>, zone: &str) {
    let part = |part: &str| {
        let good = |c: char| c.is_ascii_alphanumeric() || ".-_+".contains(c);
        !part.is_empty()
            && part.len() <= 14
            && ![".", ".."].contains(&part)
            && !part.starts_with('-')
            && part.chars().all(good)
    };
    if zone.is_empty() {
        errors.invalid(at, zone, "timeZone must be nil or non-empty string");
    } else if !zone.split('/').all(part) {
        errors.invalid(at, zone, &format!("unknown time zone {zone}"));
        return;
    }
    if zone.eq_ignore_ascii_case("local") {
        let why = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.invalid(at, zone, why);
    }
    if !zone.is_empty() && zone != "UTC" && zone != "Local" && jiff::tz::TimeZone::get(zone).is_err() {
        errors.invalid(at, zone, &format!("unknown time zone {zone}"));
    }
}
