//! Status of a policy: a state, the conditions Ready and Error, and one per operand.

use std::time::Duration;

use capstan_api::gpu::cluster_policy::{ClusterPolicyState, ClusterPolicyStatus};
use capstan_plan::conditions::{self, Wanted};
use capstan_plan::{Note, Object, Plan, Severity};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::OPERANDS;
use crate::causes;
use crate::common_conditions;
use crate::gpu::components::progress::{Progress, judge};
use crate::gpu::components::{Operand, Outcome, PolicyCx, dcgm, enabled};
use crate::gpu::{kernels, upgrade};

/// Requeue delay while NFD labels are missing: they may come from outside our watches.
const DISCOVERY: Duration = Duration::from_secs(45);

/// The plan for a policy that is not active or invalid, with the reason.
pub(super) fn refused(cx: &PolicyCx<'_>) -> Option<Plan<ClusterPolicyStatus>> {
    if let Some(active) = cx.cluster.active().filter(|active| *active != cx.name()) {
        let message = format!("ClusterPolicy {active:?} is older and counts for this cluster: delete one of the two");
        return Some(show(cx, ClusterPolicyState::Ignored, Err(("Ignored", message)), &[]));
    }
    if let Some(other) = cx.cluster.gpu_clusters.first() {
        let message =
            format!("conflicting GPUCluster resource {other:?} detected; ClusterPolicy and GPUCluster cannot co-exist");
        return Some(failed(cx, "ReconcileFailed", &message));
    }
    let fault = match (cx.runtime.nri, cx.runtime.cdi, enabled(&cx.spec().toolkit.component)) {
        (true, false, _) => "the NRI Plugin cannot be enabled when CDI is disabled",
        (true, _, false) => "the NRI Plugin cannot be enabled when the Container Toolkit is disabled",
        _ => return None,
    };
    Some(failed(cx, "ReconcileFailed", &format!("error validating clusterpolicy: {fault}")))
}

/// The plan while blocked.
pub(super) fn failed(cx: &PolicyCx<'_>, reason: &str, message: &str) -> Plan<ClusterPolicyStatus> {
    show(cx, ClusterPolicyState::NotReady, Err((reason, message.into())), &[])
}

/// The plan from the live objects.
pub(super) fn observed(cx: &PolicyCx<'_>, parts: &[(&Operand, Outcome<Vec<Object>>)]) -> Plan<ClusterPolicyStatus> {
    let progress: Vec<(&Operand, Progress)> =
        parts.iter().map(|(operand, part)| (*operand, judged(cx, operand, part))).collect();
    let errors: Vec<String> = progress
        .iter()
        .filter_map(|(operand, progress)| match progress {
            Progress::Failed(error) => Some(format!("Failed to reconcile {}: {error}", operand.name)),
            _ => None,
        })
        .collect();
    if !errors.is_empty() {
        return show(cx, ClusterPolicyState::NotReady, Err(("ReconcileFailed", errors.join("; "))), &progress);
    }
    let waiting: Vec<(&str, &str)> = progress
        .iter()
        .filter_map(|(operand, progress)| match progress {
            Progress::Waiting(why) => Some((operand.name, why.as_str())),
            _ => None,
        })
        .collect();
    let unfinished = cx.cluster.fleet.upgrades.reasons().filter(|_| cx.drivers_apart());
    if !waiting.is_empty() || unfinished.is_some() {
        let names: Vec<&str> = waiting.iter().map(|(name, _)| *name).collect();
        let states = (!names.is_empty()).then(|| format!("states not ready: [{}]", names.join(" ")));
        let reasons = states.into_iter().chain(unfinished.into_iter().flatten());
        let parts: Vec<String> = std::iter::once("ClusterPolicy is not ready".to_owned()).chain(reasons).collect();
        let message = parts.join("; ");
        return show(cx, ClusterPolicyState::NotReady, Err(("OperandNotReady", message)), &progress);
    }
    let fleet = &cx.cluster.fleet;
    if fleet.unlabelled > 0 {
        let message = format!("ClusterPolicy is not ready; {} GPU nodes are not labelled yet", fleet.unlabelled);
        return show(cx, ClusterPolicyState::NotReady, Err(("OperandNotReady", message)), &progress);
    }
    let (reason, message) = if !fleet.discovered {
        ("NFDLabelsMissing", "No NFD labels found")
    } else if fleet.gpu_nodes == 0 {
        ("NoGPUNodes", "No GPU node found, watching for new nodes to join the cluster.")
    } else {
        ("Reconciled", "ClusterPolicy is ready as all resources have been successfully reconciled")
    };
    let requeue = (!fleet.discovered).then_some(DISCOVERY);
    let plan = show(cx, ClusterPolicyState::Ready, Ok((reason, message)), &progress);
    Plan { requeue: requeue.or(plan.requeue), ..plan }
}

/// Progress of an operand. An engine that is not needed counts as ready.
fn judged(cx: &PolicyCx<'_>, operand: &Operand, part: &Outcome<Vec<Object>>) -> Progress {
    match judge(cx, operand.deploy, part) {
        Progress::Ready(_) if operand.name == dcgm::OPERAND.name && dcgm::is_spared(cx) => {
            Progress::Ready(dcgm::SPARED.into())
        }
        progress => progress,
    }
}

/// The status with this state and message.
fn show(
    cx: &PolicyCx<'_>,
    state: ClusterPolicyState,
    verdict: Result<(&str, &str), (&str, String)>,
    progress: &[(&Operand, Progress)],
) -> Plan<ClusterPolicyStatus> {
    let before = cx.policy.status.clone();
    let old = before.as_ref().and_then(|status| status.conditions.clone());
    let mut list = old.clone().unwrap_or_default();
    let error_message =
        |list: &[Condition]| list.iter().find(|one| one.type_ == "Error").map(|one| one.message.clone());
    let previous_error = error_message(&list);
    let (generation, now) = (cx.policy.metadata.generation, cx.facts.now);
    let (ready, error) = match &verdict {
        Ok((reason, message)) => ((true, *reason, *message), (false, "Ready", "")),
        Err((reason, message)) => ((false, "Error", ""), (true, *reason, message.as_str())),
    };
    for (type_, (status, reason, message)) in [("Ready", ready), ("Error", error)] {
        conditions::set(&mut list, Wanted { type_, status, reason, message }, generation, now);
    }
    for operand in OPERANDS {
        let type_ = operand.condition;
        match progress.iter().find(|(one, _)| one.name == operand.name).map(|(_, progress)| progress.condition()) {
            Some((status, reason, message)) => {
                conditions::set(&mut list, Wanted { type_, status, reason, message }, generation, now);
            }
            None => conditions::clear(&mut list, type_),
        }
    }
    kernels::show(&mut list, &cx.cluster.unsupported, &cx.facts.live, generation, now);
    let upgrade = upgrade::show(&mut list, cx.cluster.upgrade(""), generation, now);
    let causes = causes::new_events(&cx.cluster.diagnoses, &cx.facts.live, old.as_ref(), &list);
    common_conditions::set_common(&mut list, "ClusterPolicy", cx.spec(), cx.facts, generation);
    let event = match &verdict {
        Ok((reason, message)) if before.is_none_or(|status| status.state != state) => {
            Some(Note { severity: Severity::Normal, reason: ready_reason(reason), message: (*message).into() })
        }
        Err((reason, message)) if *reason != "OperandNotReady" && previous_error.as_deref() != Some(message) => {
            Some(Note { severity: Severity::Warning, reason: "ReconcileFailed", message: message.clone() })
        }
        _ => None,
    };
    let transient = upgrade::is_under_way(&list);
    Plan {
        objects: None,
        status: ClusterPolicyStatus { state, namespace: Some(cx.namespace().into()), conditions: Some(list) },
        events: event.into_iter().chain(upgrade).chain(causes).collect(),
        requeue: cx.cluster.diagnoses.again,
        queries: Vec::new(),
        transient,
    }
}

fn ready_reason(reason: &str) -> &'static str {
    match reason {
        "NFDLabelsMissing" => "NFDLabelsMissing",
        "NoGPUNodes" => "NoGPUNodes",
        _ => "Reconciled",
    }
}
