//! Conditions of custom resources: rejected specs, and resources that are not ready.

use std::time::Duration;

use serde_json::Value;

use crate::doctor::finding::{Finding, Scope, Severity};
use crate::doctor::index::{Index, condition, items, reference, text};
use crate::products::{self, Affects, Kind};

/// Longer than any driver build or model load.
const NOT_READY_TIMEOUT: Duration = Duration::from_secs(20 * 60);
/// Reasons that have their own rule.
const COVERED_REASONS: &[&str] = &["NoProfileSelected", "OperandNotReady", "JobFailed"];

/// The custom resources of all products.
pub(in crate::doctor) fn all<'a>(index: &Index<'a>) -> impl Iterator<Item = &'a Value> + use<'a> {
    with_kind(index).map(|(_, resource)| resource)
}

fn with_kind<'a>(index: &Index<'a>) -> impl Iterator<Item = (&'static Kind, &'a Value)> + use<'a> {
    let snapshot = index.snapshot;
    products::kinds().flat_map(move |kind| snapshot.of(kind.group, kind.kind).iter().map(move |one| (kind, one)))
}

pub(super) fn refused(index: &Index<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (kind, resource) in with_kind(index) {
        let conditions = items(&resource["status"]["conditions"]).iter();
        let failed = |one: &&Value| {
            let operand = one["status"] == "False" && one["reason"] == "Failed";
            let wrong = one["status"] == "True"
                && ["Failed", "NIM_CACHE_RECONCILE_FAILED", "InvalidFields"].contains(&text(&one["type"]));
            operand || wrong
        };
        let mut failed_conditions: Vec<&Value> = conditions.filter(failed).collect();
        if failed_conditions.is_empty() {
            failed_conditions.extend(condition(resource, "Error").filter(|one| one["status"] == "True"));
        }
        for one in failed_conditions.into_iter().filter(|one| !COVERED_REASONS.contains(&text(&one["reason"]))) {
            let message = text(&one["message"]);
            if message.is_empty() {
                continue;
            }
            let finding = Finding::about(resource, message);
            let finding = if kind.affects == Affects::Nodes { finding.scope(Scope::Cluster) } else { finding };
            let line = format!("{}, condition {}: {}", reference(resource), text(&one["type"]), text(&one["reason"]));
            let (kind, name) = (text(&resource["kind"]).to_lowercase(), text(&resource["metadata"]["name"]));
            let namespace = text(&resource["metadata"]["namespace"]);
            let place = if namespace.is_empty() { String::new() } else { format!(" -n {namespace}") };
            found.push(finding.evidence(line).fix(format!("kubectl edit {kind} {name}{place}")));
        }
    }
    found
}

/// Resources that are not ready, and since when. By itself this is a finding only after a long time.
pub(super) fn not_ready(index: &Index<'_>) -> Vec<Finding> {
    let waiting = all(index).filter_map(|resource| {
        let state = text(&resource["status"]["state"]);
        if state.is_empty() || ["ready", "ignored"].contains(&state.to_lowercase().as_str()) {
            return None;
        }
        let ready = condition(resource, "Ready").filter(|one| one["status"] != "True");
        let error = condition(resource, "Error").filter(|one| one["status"] == "True");
        let condition_message =
            [error, ready].into_iter().flatten().map(|one| text(&one["message"])).find(|text| !text.is_empty());
        let message = condition_message.map_or_else(|| format!("its state is {state}"), str::to_owned);
        let since = ready.and_then(|ready| index.since(&ready["lastTransitionTime"])).unwrap_or_default();
        let severity = if since >= NOT_READY_TIMEOUT { Severity::Warning } else { Severity::Note };
        let fix = format!("kubectl describe {}", reference(resource).to_lowercase());
        let minutes = format!("{} is not ready for {} minutes", reference(resource), since.as_secs() / 60);
        Some(Finding::about(resource, message).severity(severity).evidence(minutes).fix(fix))
    });
    waiting.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::doctor::testing::{Cluster, assert_healthy, assert_only, policy};

    #[test]
    fn an_operand_that_cannot_be_decided_is_told_in_its_own_words() {
        let failed = json!([
            {"type": "Ready", "status": "False", "reason": "Error", "message": ""},
            {"type": "Error", "status": "True", "reason": "ReconcileFailed", "message": "Failed to reconcile driver: no image"},
            {"type": "Driver", "status": "False", "reason": "Failed", "message": "no image"},
        ]);
        let report = assert_only(&policy("notReady", failed), "spec-refused");
        assert_eq!(report.causes[0].title, "ClusterPolicy cluster-policy: no image");
    }

    fn waiting(since: &str) -> Cluster {
        policy(
            "notReady",
            json!([
                {"type": "Ready", "status": "False", "reason": "Error", "message": "", "lastTransitionTime": since},
                {"type": "Error", "status": "True", "reason": "OperandNotReady", "message": "states not ready: [driver]"},
            ]),
        )
    }

    #[test]
    fn what_is_not_done_yet_is_no_trouble_for_a_while() {
        assert_healthy(&waiting("2026-06-01T11:59:00Z"));
        assert_only(&waiting("2026-06-01T10:00:00Z"), "not-ready");
    }
}
