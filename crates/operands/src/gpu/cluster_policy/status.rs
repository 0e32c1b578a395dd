//! How far a policy is: a state, the pair Ready and Error, and a condition for each operand.

use std::time::Duration;

use capstan_api::gpu::cluster_policy::{ClusterPolicyState, ClusterPolicyStatus};
use capstan_plan::conditions::{self, Wanted};
use capstan_plan::{Note, Object, Plan, Severity, is_current};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::Value;

use super::OPERANDS;
use crate::causes;
use crate::gpu::components::{self, Cx, Operand, Outcome, dcgm, node_agent};
use crate::gpu::{kernels, upgrade};
use crate::shown;

/// Labels of feature discovery may come from somewhere that we do not see.
const DISCOVERY: Duration = Duration::from_secs(45);

/// More nodes than this are counted in steps, so that a large rollout does not write its status for each node.
const MANY: i64 = 20;

/// What an operand came to.
type Part<'a> = (&'a Operand, Outcome<Vec<Object>>);

/// How far one operand is.
pub(crate) enum Progress {
    /// Wherever it should be.
    Ready(String),
    /// Not yet.
    Waiting(String),
    /// It cannot be decided.
    Failed(String),
}

impl Progress {
    /// Status, reason and message of the operand's condition.
    pub(crate) fn condition(&self) -> (bool, &'static str, &str) {
        match self {
            Self::Ready(message) => (true, "Ready", message),
            Self::Waiting(message) => (false, "NotReady", message),
            Self::Failed(message) => (false, "Failed", message),
        }
    }
}

/// The answer for a policy that is not acted on, with the reason.
pub(super) fn refused(cx: &Cx<'_>) -> Option<Plan<ClusterPolicyStatus>> {
    if let Some(active) = cx.cluster.active().filter(|active| *active != cx.name()) {
        let message = format!("ClusterPolicy {active:?} is older and counts for this cluster: delete one of the two");
        return Some(show(cx, ClusterPolicyState::Ignored, Err(("Ignored", message)), &[]));
    }
    if let Some(other) = cx.cluster.gpu_clusters.first() {
        let message =
            format!("conflicting GPUCluster resource {other:?} detected; ClusterPolicy and GPUCluster cannot co-exist");
        return Some(failed(cx, "ReconcileFailed", &message));
    }
    let fault = match (cx.nri(), cx.cdi(), components::enabled(&cx.spec().toolkit.component)) {
        (true, false, _) => "the NRI Plugin cannot be enabled when CDI is disabled",
        (true, _, false) => "the NRI Plugin cannot be enabled when the Container Toolkit is disabled",
        _ => return None,
    };
    Some(failed(cx, "ReconcileFailed", &format!("error validating clusterpolicy: {fault}")))
}

/// The answer when something is in the way.
pub(super) fn failed(cx: &Cx<'_>, reason: &str, message: &str) -> Plan<ClusterPolicyStatus> {
    show(cx, ClusterPolicyState::NotReady, Err((reason, message.into())), &[])
}

/// The answer from what is there.
pub(super) fn observed(cx: &Cx<'_>, parts: &[Part<'_>]) -> Plan<ClusterPolicyStatus> {
    let progress: Vec<(&Operand, Progress)> =
        parts.iter().map(|(operand, part)| (*operand, operand.judge(cx, part))).collect();
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

impl Operand {
    fn judge(&self, cx: &Cx<'_>, part: &Outcome<Vec<Object>>) -> Progress {
        match judge(cx, self.deploy, part) {
            Progress::Ready(_) if self.name == dcgm::OPERAND.name && dcgm::is_spared(cx) => {
                Progress::Ready(dcgm::SPARED.into())
            }
            progress => progress,
        }
    }
}

/// How far an operand is, and what is wrong with its pods. `deploy` is the label of the nodes that should have it.
pub(crate) fn judge(cx: &Cx<'_>, deploy: Option<&str>, part: &Outcome<Vec<Object>>) -> Progress {
    match (count(cx, deploy, part), part) {
        (Progress::Waiting(said), Ok(objects)) => {
            let there = objects.iter().filter_map(|object| cx.facts.live.get(&object.reference));
            let owners: Vec<&str> = there.filter_map(|live| live["metadata"]["uid"].as_str()).collect();
            Progress::Waiting(cx.cluster.troubles.add_to(said, &owners))
        }
        (progress, _) => progress,
    }
}

/// How far an operand is, from the workloads that it consists of.
fn count(cx: &Cx<'_>, deploy: Option<&str>, part: &Outcome<Vec<Object>>) -> Progress {
    let objects = match part {
        Ok(objects) => objects,
        Err(error) => return Progress::Failed(error.clone()),
    };
    let live = &cx.facts.live;
    if let Some(object) = objects.iter().find(|object| !is_current(object, live)) {
        return Progress::Waiting(format!("{} is being written", object.reference));
    }
    let deployments = objects.iter().filter(|object| object.reference.gvk.kind == "Deployment");
    for there in deployments.filter_map(|object| live.get(&object.reference)) {
        if there["status"]["availableReplicas"].as_i64() < there["spec"]["replicas"].as_i64() {
            let name = there["metadata"]["name"].as_str().unwrap_or_default();
            return Progress::Waiting(format!("Deployment {name} is not available"));
        }
    }
    let mut counts = Counts::default();
    for object in objects.iter().filter(|object| object.reference.gvk.kind == "DaemonSet") {
        let Some(there) = live.get(&object.reference) else {
            return Progress::Waiting(format!("{} is being written", object.reference));
        };
        counts.add(there);
    }
    let wanted = deploy.map_or(counts.desired, |label| cx.cluster.fleet.wanting(label) as i64);
    let mut sets = objects.iter().filter(|object| object.reference.gvk.kind == "DaemonSet").peekable();
    match sets.peek() {
        // When all of its pods run, some may be where this operand waits and another of theirs is wanted.
        Some(set) if set.reference.name == node_agent::NAME && counts.are_all_there() => counts.judge(wanted),
        Some(_) => counts.judge(wanted.max(counts.desired)),
        None => Progress::Ready(String::new()),
    }
}

/// What the DaemonSets of an operand report.
#[derive(Default)]
struct Counts {
    desired: i64,
    updated: i64,
    available: i64,
    unobserved: bool,
}

impl Counts {
    fn add(&mut self, daemon_set: &Value) {
        let status = |field: &str| daemon_set["status"][field].as_i64().unwrap_or_default();
        let desired = status("desiredNumberScheduled");
        self.desired += desired;
        self.updated += status("updatedNumberScheduled").min(desired);
        self.available += status("numberAvailable").min(desired);
        self.unobserved |= status("observedGeneration") < daemon_set["metadata"]["generation"].as_i64().unwrap_or(1);
    }

    fn are_all_there(&self) -> bool {
        self.updated == self.desired && self.available == self.desired
    }

    fn judge(&self, wanted: i64) -> Progress {
        let here = shown::progress(self.updated.min(self.available).min(wanted), wanted, MANY);
        if self.unobserved {
            Progress::Waiting("its DaemonSet was not looked at by Kubernetes yet".into())
        } else if self.desired < wanted && self.available == self.desired {
            let missing = wanted - self.desired;
            Progress::Waiting(format!(
                "{here}; {missing} of the nodes that should have it cannot run it: look at their taints, and at \
                 spec.daemonsets.tolerations"
            ))
        } else if self.updated < wanted || self.available < wanted {
            Progress::Waiting(here)
        } else {
            Progress::Ready(here)
        }
    }
}

/// The status with that state and verdict.
fn show(
    cx: &Cx<'_>,
    state: ClusterPolicyState,
    verdict: Result<(&str, &str), (&str, String)>,
    progress: &[(&Operand, Progress)],
) -> Plan<ClusterPolicyStatus> {
    let before = cx.policy.status.clone();
    let old = before.as_ref().and_then(|status| status.conditions.clone());
    let mut list = old.clone().unwrap_or_default();
    let said = |list: &[Condition]| list.iter().find(|one| one.type_ == "Error").map(|one| one.message.clone());
    let told = said(&list);
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
    let causes = causes::notes(&cx.cluster.troubles, &cx.facts.live, old.as_ref(), &list);
    shown::remarks(&mut list, "ClusterPolicy", cx.spec(), cx.facts, generation);
    let event = match &verdict {
        Ok((reason, message)) if before.is_none_or(|status| status.state != state) => {
            Some(Note { severity: Severity::Normal, reason: ready_reason(reason), message: (*message).into() })
        }
        Err((reason, message)) if *reason != "OperandNotReady" && told.as_deref() != Some(message) => {
            Some(Note { severity: Severity::Warning, reason: "ReconcileFailed", message: message.clone() })
        }
        _ => None,
    };
    let transient = upgrade::is_under_way(&list);
    Plan {
        objects: None,
        status: ClusterPolicyStatus { state, namespace: Some(cx.namespace().into()), conditions: Some(list) },
        events: event.into_iter().chain(upgrade).chain(causes).collect(),
        requeue: cx.cluster.troubles.again,
        questions: Vec::new(),
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
