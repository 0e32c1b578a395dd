//! What custom resources say themselves, in their own words: specs that cannot be acted on, and what is not ready.

use std::time::Duration;

use serde_json::Value;

use super::finding::{Finding, Reach, Severity};
use super::look::{Look, condition, items, reference, text};

/// Drivers are built and models are loaded in less.
const LONG: Duration = Duration::from_secs(20 * 60);
/// Kinds whose nodes are concerned.
const POLICIES: &[&str] = &["ClusterPolicy", "NVIDIADriver", "GPUCluster"];
const MODELS: &[&str] = &["NIMService", "NIMCache", "NIMPipeline", "NIMBuild"];
/// Reasons that have a rule of their own.
const ELSEWHERE: &[&str] = &["NoProfileSelected", "OperandNotReady", "JobFailed"];

fn resources<'a>(look: &Look<'a>) -> impl Iterator<Item = &'a Value> + use<'a> {
    let snapshot = look.snapshot;
    let policies = POLICIES.iter().flat_map(move |kind| snapshot.of("nvidia.com", kind));
    policies.chain(MODELS.iter().flat_map(move |kind| snapshot.of("apps.nvidia.com", kind)))
}

fn is_policy(resource: &Value) -> bool {
    POLICIES.contains(&text(&resource["kind"]))
}

pub(super) fn refused(look: &Look<'_>) -> Vec<Finding> {
    let mut all = Vec::new();
    for resource in resources(look) {
        let conditions = items(&resource["status"]["conditions"]).iter();
        let failed = |one: &&Value| {
            let operand = one["status"] == "False" && one["reason"] == "Failed";
            let wrong = one["status"] == "True"
                && ["Failed", "NIM_CACHE_RECONCILE_FAILED", "InvalidFields"].contains(&text(&one["type"]));
            operand || wrong
        };
        let mut said: Vec<&Value> = conditions.filter(failed).collect();
        if said.is_empty() {
            said.extend(condition(resource, "Error").filter(|one| one["status"] == "True"));
        }
        for one in said.into_iter().filter(|one| !ELSEWHERE.contains(&text(&one["reason"]))) {
            let message = text(&one["message"]);
            if message.is_empty() {
                continue;
            }
            let finding = Finding::about(resource, message);
            let finding = if is_policy(resource) { finding.reach(Reach::Cluster) } else { finding };
            let line = format!("{}, condition {}: {}", reference(resource), text(&one["type"]), text(&one["reason"]));
            let (kind, name) = (text(&resource["kind"]).to_lowercase(), text(&resource["metadata"]["name"]));
            let namespace = text(&resource["metadata"]["namespace"]);
            let place = if namespace.is_empty() { String::new() } else { format!(" -n {namespace}") };
            all.push(finding.evidence(line).fix(format!("kubectl edit {kind} {name}{place}")));
        }
    }
    all
}

/// Driver upgrades that do not go on by themselves.
pub(super) fn upgrade(look: &Look<'_>) -> Vec<Finding> {
    let stuck = resources(look).filter_map(|resource| {
        let told = condition(resource, "DriverUpgrade")?;
        let reason = text(&told["reason"]);
        if !["NodesFailed", "Halted", "RolledBack", "Held"].contains(&reason) {
            return None;
        }
        let line = format!("{}, condition DriverUpgrade: {reason}", reference(resource));
        let fix = "see the annotation capstan.dev/upgrade-reason of the nodes; docs/gpu.md, Driver upgrades, says how to \
                   try a node again, leave it out or go back";
        Some(Finding::about(resource, text(&told["message"])).evidence(line).fix(fix))
    });
    stuck.collect()
}

/// What is not ready, and since when. Alone it is a finding only after a long time: until then it is just not done.
pub(super) fn not_ready(look: &Look<'_>) -> Vec<Finding> {
    let waiting = resources(look).filter_map(|resource| {
        let state = text(&resource["status"]["state"]);
        if state.is_empty() || ["ready", "ignored"].contains(&state.to_lowercase().as_str()) {
            return None;
        }
        let ready = condition(resource, "Ready").filter(|one| one["status"] != "True");
        let error = condition(resource, "Error").filter(|one| one["status"] == "True");
        let said = [error, ready].into_iter().flatten().map(|one| text(&one["message"])).find(|text| !text.is_empty());
        let message = said.map_or_else(|| format!("its state is {state}"), str::to_owned);
        let since = ready.and_then(|ready| look.since(&ready["lastTransitionTime"])).unwrap_or_default();
        let severity = if since >= LONG { Severity::Warning } else { Severity::Note };
        let fix = format!("kubectl describe {}", reference(resource).to_lowercase());
        let minutes = format!("{} is not ready for {} minutes", reference(resource), since.as_secs() / 60);
        Some(Finding::about(resource, message).severity(severity).evidence(minutes).fix(fix))
    });
    waiting.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::doctor::testing::{Cluster, assert_healthy, assert_only};

    fn policy(state: &str, conditions: serde_json::Value) -> Cluster {
        Cluster::healthy().edit("ClusterPolicy", "cluster-policy", |policy| {
            policy["status"] = json!({"state": state, "conditions": conditions});
        })
    }

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
    fn an_upgrade_that_stands_still() {
        let told =
            json!([{"type": "DriverUpgrade", "status": "False", "reason": "Halted", "message": "3 nodes failed"}]);
        let report = assert_only(&policy("ready", told), "driver-upgrade");
        assert_eq!(report.causes[0].title, "ClusterPolicy cluster-policy: 3 nodes failed");
    }

    #[test]
    fn what_is_not_done_yet_is_no_trouble_for_a_while() {
        assert_healthy(&waiting("2026-06-01T11:59:00Z"));
        assert_only(&waiting("2026-06-01T10:00:00Z"), "not-ready");
    }
}
