//! The `eviction` subresource: deletes a pod if its PodDisruptionBudget allows it.

use serde_json::{Value, json};

use super::binding::success;
use super::body::Form;
use super::server::Profile;
use super::{
    Caller, DeleteOptions, Payload, Preconditions, Propagation, Server, Target, UserInfo, WriteOptions, Written,
    delete, meta, read, write,
};
use crate::auth::MASTERS;
use crate::error::{Result, Status};
use crate::store::{LabelSelector, Object, Selection};

/// Maximum size of `disruptedPods`, which the disruption controller has yet to process.
const MAX_DISRUPTED: usize = 2000;
const ATTEMPTS: usize = 20;

pub(super) async fn evict(
    server: &Server,
    caller: &Caller,
    target: &Target,
    body: Payload,
    options: &WriteOptions,
) -> Result<Written> {
    let mut warnings = Vec::new();
    let eviction = Form::builtin("policy", "policy/v1", "Eviction").decode(body, options, &mut warnings)?;
    if meta::text(&eviction, "name") != target.name.as_deref().unwrap_or_default() {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let deletion = delete_options(&eviction["deleteOptions"], options.dry_run);
    let pods = Target { subresource: None, ..target.clone() };
    let profile = server.profile(&target.resource);
    let conditional = deletion.preconditions.resource_version.is_some();
    for _ in 0..ATTEMPTS {
        let live = read::find(server, &profile, &pods)?;
        let pod = live.value();
        let deletion = match decide(server, &live, &pod, deletion.dry_run).await? {
            EvictionDecision::Evict => deletion.clone(),
            // The pod must not have changed between the check and the deletion.
            EvictionDecision::EvictIfUnchanged if !conditional => with_revision(&deletion, &live),
            EvictionDecision::EvictIfUnchanged => deletion.clone(),
            EvictionDecision::Retry => continue,
        };
        let deletion = match announce(server, &profile, &live, pod, &deletion) {
            Some(deletion) => deletion,
            None if conditional => return Err(Status::modified(&target.resource, live.name())),
            None => continue,
        };
        match delete::delete(server, caller, &pods, &deletion).await {
            Ok(_) => return Ok(success(warnings)),
            Err(status) if status.code == 409 && !conditional => {}
            Err(status) => return Err(status),
        }
    }
    Err(too_many("is still being processed by the server.", target.name.as_deref().unwrap_or_default(), 10))
}

/// Sets the DisruptionTarget condition. `None`: a concurrent write conflicted. Otherwise the options to delete the
/// updated pod.
fn announce(
    server: &Server,
    profile: &Profile,
    live: &Object,
    mut pod: Value,
    deletion: &DeleteOptions,
) -> Option<DeleteOptions> {
    let seen = deletion.preconditions.resource_version.as_deref();
    let uid = deletion.preconditions.uid.as_deref();
    let meant = seen.is_none_or(|seen| seen == live.revision.to_string()) && uid.is_none_or(|uid| *uid == *live.uid);
    if deletion.dry_run || !meant {
        return Some(deletion.clone());
    }
    set_condition(
        &mut pod,
        json!({
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting", "lastProbeTime": null, "lastTransitionTime": server.clock().rfc3339(),
        }),
    );
    let object = Object::new(profile.stored.clone(), &pod, &profile.fields);
    let written = server.store().update(&profile.table, object, live.revision).ok()?;
    Some(if seen.is_some() { with_revision(deletion, &written) } else { deletion.clone() })
}

/// Sets a condition, replacing the one of its type.
pub(super) fn set_condition(object: &mut Value, condition: Value) {
    if !object["status"].is_object() {
        object["status"] = json!({});
    }
    let conditions = &mut object["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    if let Some(conditions) = conditions.as_array_mut() {
        match conditions.iter_mut().find(|one| one["type"] == condition["type"]) {
            Some(one) => *one = condition,
            None => conditions.push(condition),
        }
    }
}

fn delete_options(options: &Value, dry_run: bool) -> DeleteOptions {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    DeleteOptions {
        grace: options["gracePeriodSeconds"].as_i64(),
        propagation: match options["propagationPolicy"].as_str() {
            Some("Orphan") => Some(Propagation::Orphan),
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            _ => None,
        },
        preconditions: Preconditions {
            uid: text(&options["preconditions"]["uid"]),
            resource_version: text(&options["preconditions"]["resourceVersion"]),
        },
        dry_run: dry_run || options["dryRun"].as_array().is_some_and(|all| !all.is_empty()),
    }
}

fn with_revision(options: &DeleteOptions, live: &Object) -> DeleteOptions {
    let mut options = options.clone();
    options.preconditions.resource_version = Some(live.revision.to_string());
    options
}

/// Whether a pod may be evicted.
enum EvictionDecision {
    Evict,
    EvictIfUnchanged,
    /// A concurrent write changed the budget: retry.
    Retry,
}

async fn decide(server: &Server, live: &Object, pod: &Value, dry_run: bool) -> Result<EvictionDecision> {
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    if matches!(phase, "Succeeded" | "Failed") || live.deleting {
        return Ok(EvictionDecision::Evict);
    }
    if phase == "Pending" {
        return Ok(EvictionDecision::EvictIfUnchanged);
    }
    let budgets = budgets(server, live);
    let budget = match budgets.as_slice() {
        [] => return Ok(EvictionDecision::Evict),
        [budget] => budget,
        _ => {
            let message =
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Status::new(500, "", message));
        }
    };
    let value = budget.value();
    let count = |field: &str| value["status"][field].as_i64().unwrap_or(0);
    if !is_ready(pod) {
        let healthy = count("currentHealthy") >= count("desiredHealthy") && count("desiredHealthy") > 0;
        if healthy || value["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow" {
            return Ok(EvictionDecision::EvictIfUnchanged);
        }
    }
    decrement(server, live.name(), budget, value, dry_run).await
}

/// Decrements `disruptionsAllowed` of a budget.
async fn decrement(
    server: &Server,
    pod: &str,
    budget: &Object,
    mut value: Value,
    dry_run: bool,
) -> Result<EvictionDecision> {
    let name = budget.name();
    let count = |field: &str| value["status"][field].as_i64().unwrap_or(0);
    let forbidden = |why: &str| {
        let message = format!("poddisruptionbudgets.policy \"{name}\" is forbidden: {why}");
        let details = json!({"name": name, "group": "policy", "kind": "poddisruptionbudgets"});
        Status::new(403, "Forbidden", message).with_details(details)
    };
    if count("observedGeneration") < budget.generation {
        return Err(too_many("is still being processed by the server.", name, 10));
    }
    let allowed = count("disruptionsAllowed");
    if allowed < 0 {
        return Err(forbidden("pdb disruptions allowed is negative"));
    }
    if value["status"]["disruptedPods"].as_object().is_some_and(|pods| pods.len() > MAX_DISRUPTED) {
        return Err(forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller"));
    }
    if allowed == 0 {
        let (desired, current) = (count("desiredHealthy"), count("currentHealthy"));
        return Err(too_many(&format!("needs {desired} healthy pods and has {current} currently"), name, 0));
    }
    if dry_run {
        return Ok(EvictionDecision::Evict);
    }
    value["status"]["disruptionsAllowed"] = (allowed - 1).into();
    if allowed == 1 {
        forbid_disruption(&mut value, &server.clock().rfc3339());
    }
    value["status"]["disruptedPods"][pod] = server.clock().rfc3339().into();
    let Some(resource) = server.registry().lookup("policy", "v1", "poddisruptionbudgets") else {
        return Ok(EvictionDecision::Evict);
    };
    let target = Target::one(resource, Some(budget.namespace()), name).sub("status");
    let caller = Caller { user: UserInfo::new("system:apiserver", &[MASTERS]), user_agent: "kube-apiserver".into() };
    match write::update(server, &caller, &target, value.into(), &WriteOptions::default()).await {
        Ok(_) => Ok(EvictionDecision::Evict),
        Err(status) if status.code == 409 => Ok(EvictionDecision::Retry),
        Err(status) => Err(status),
    }
}

/// Sets the condition DisruptionAllowed of a budget to False.
fn forbid_disruption(budget: &mut Value, now: &str) {
    let generation = budget["metadata"]["generation"].clone();
    let condition = json!({
        "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
        "lastTransitionTime": now, "observedGeneration": generation,
    });
    set_condition(budget, condition);
}

fn budgets(server: &Server, pod: &Object) -> Vec<std::sync::Arc<Object>> {
    let table = crate::store::TableKey::new("policy", "poddisruptionbudgets");
    let all = server.store().select(&table, &Selection::namespace(pod.namespace()));
    let covers = |budget: &Object| {
        let selector = LabelSelector::from_json(&budget.value()["spec"]["selector"]);
        // A budget without selector selects no pods.
        selector.is_ok_and(|selector| !selector.is_empty() && selector.matches(|key| pod.label(key)))
    };
    all.into_iter().filter(|budget| covers(budget)).collect()
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
}

fn too_many(why: &str, budget: &str, retry_after: u32) -> Status {
    let cause = json!({"reason": "DisruptionBudget", "message": format!("The disruption budget {budget} {why}")});
    let mut details = json!({"causes": [cause]});
    if retry_after > 0 {
        details["retryAfterSeconds"] = retry_after.into();
    }
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    Status::new(429, "TooManyRequests", message).with_details(details)
}
