//! GPU readiness of a node, from its driver and validator pods and its allocatable resources.
//!
//! The validator's init containers check one phase after another, so their end times are the ends of phases.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodStatus;
use serde::Deserialize;
use serde_json::Value;

use super::ready::{Phase, Progress};
use super::taint::{self, StartupTaint};
use super::wanted::{Stack, Wanted, has_gpu};
use super::{Node, NodePatch, keys, ready};
use crate::causes;
use crate::pods;

/// Readiness reporting on nodes; off by default, as it costs requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Whether the node condition `GPUReady` is set.
    pub condition: bool,
    /// The startup taint of new nodes.
    pub taint: Option<StartupTaint>,
}

/// Evidence about a node.
#[derive(Clone, Debug, Default)]
pub struct Evidence<'a> {
    /// Driver pods on it.
    pub drivers: Vec<&'a Value>,
    /// Validator pods on it.
    pub validators: Vec<&'a Value>,
    /// Operands that cannot be planned, by condition type, and why: see [`faults`].
    pub faults: Option<&'a BTreeMap<String, String>>,
}

/// Readiness of a node.
enum NodeReadiness {
    /// Not applicable: no condition.
    NotApplicable,
    /// Undetermined: the condition is left unchanged.
    Undetermined,
    /// Known progress.
    Known(Progress),
}

impl Readiness {
    /// Whether readiness is reported.
    pub fn is_on(&self) -> bool {
        self.condition || self.taint.is_some()
    }

    /// Adds the change of the startup taint to `patch`.
    pub fn taint(&self, wanted: &Wanted, node: &Value, evidence: &Evidence<'_>, patch: &mut NodePatch) {
        let labelled = patch.labels.get(keys::PRESENT).is_some_and(|value| value.as_deref() == Some("true"));
        let stage = match readiness(wanted, node, evidence) {
            NodeReadiness::NotApplicable => taint::Stage::Free,
            NodeReadiness::Known(progress) if progress.is_ready() => taint::Stage::Works,
            _ if labelled => taint::Stage::New,
            _ => taint::Stage::Waiting,
        };
        if wanted.stack != Stack::Frozen {
            taint::settle(self.taint.as_ref(), node, stage, patch);
        }
    }

    /// The change of the node condition, after labelling.
    pub fn condition_update(
        &self,
        wanted: &Wanted,
        node: &Value,
        evidence: &Evidence<'_>,
        now: Timestamp,
    ) -> ready::ConditionUpdate {
        match readiness(wanted, node, evidence) {
            NodeReadiness::Known(progress) if self.condition => progress.condition_update(node, now),
            NodeReadiness::Undetermined if self.condition => ready::ConditionUpdate::default(),
            _ => ready::ConditionUpdate { patch: ready::forget(node), ..ready::ConditionUpdate::default() },
        }
    }
}

/// Why operands cannot be planned, by condition type: from a ClusterPolicy or GPUCluster.
pub fn faults(resource: &Value) -> BTreeMap<String, String> {
    let conditions = resource["status"]["conditions"].as_array().into_iter().flatten();
    let failed = conditions.filter(|one| one["status"] == "False" && one["reason"] == "Failed");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    failed.map(|one| (text(&one["type"]), text(&one["message"]))).collect()
}

/// Progress of a node, for read-only callers; `None` if not applicable or undetermined.
pub fn progress(wanted: &Wanted, node: &Value, evidence: &Evidence<'_>) -> Option<Progress> {
    match readiness(wanted, node, evidence) {
        NodeReadiness::Known(progress) => Some(progress),
        NodeReadiness::NotApplicable | NodeReadiness::Undetermined => None,
    }
}

fn readiness(wanted: &Wanted, node: &Value, evidence: &Evidence<'_>) -> NodeReadiness {
    let view = Node::of(node);
    match wanted.stack {
        Stack::Frozen => return NodeReadiness::Undetermined,
        Stack::Nothing => return NodeReadiness::NotApplicable,
        _ if !has_gpu(view.labels) || view.labels.is(keys::OPERANDS, "false") => return NodeReadiness::NotApplicable,
        Stack::DevicePlugin { .. } | Stack::Dra => {}
    }
    let began = wanted.since.into_iter().chain(time(&node["metadata"]["creationTimestamp"])).max();
    let mut progress = Progress { open: None, began: began.unwrap_or_default(), over: Vec::new() };
    let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    if !conditions.any(|one| one["type"] == "Ready" && one["status"] == "True") {
        // The status of a NotReady node is stale.
        if ready::has_condition(node) {
            return NodeReadiness::Undetermined;
        }
        progress.open = Some((Phase::Kubelet, "the node is not Ready".into()));
        return NodeReadiness::Known(progress);
    }
    judge_pods(wanted, node, evidence, &mut progress);
    if let (Some((phase, why)), Some(faults)) = (&mut progress.open, evidence.faults)
        && let Some(fault) = faults.get(phase.condition())
    {
        why.clone_from(fault);
    }
    NodeReadiness::Known(progress)
}

fn judge_pods(wanted: &Wanted, node: &Value, evidence: &Evidence<'_>, progress: &mut Progress) {
    let labels = Node::of(node).labels;
    let missing = || "no pod on this node yet".to_owned();
    let (driver, validator) = (pick(node, &evidence.drivers), pick(node, &evidence.validators));
    let owned = !wanted.assigns() || labels.get(keys::OWNER).is_some_and(|owner| !owner.is_empty());
    if wanted.installs_drivers && owned && labels.is(keys::DRIVER, "true") && !driver.is_some_and(is_healthy) {
        progress.open = Some((Phase::Driver, driver.map_or_else(missing, waiting_reason)));
        return;
    }
    let Some(validator) = validator else {
        progress.open = Some((Phase::Validation, missing()));
        return;
    };
    if !is_healthy(validator) {
        let phase = checks(validator).find(|(_, end)| end.is_none()).map_or(Phase::Validation, |(phase, _)| phase);
        progress.open = Some((phase, waiting_reason(validator)));
        return;
    }
    let plugged = wanted.plugs_in && labels.is(keys::DEVICE_PLUGIN, "true");
    if plugged && !causes::offers(node) {
        progress.open = Some((Phase::Plugin, "the kubelet offers no GPUs".into()));
        return;
    }
    let ends = checks(validator).filter(|(phase, _)| *phase != Phase::Validation);
    progress.over = ends.filter_map(|(phase, end)| Some((phase, end?))).collect();
    if let Some(end) = driver.filter(|_| progress.over.is_empty()).and_then(since_ready) {
        progress.over.push((Phase::Driver, end));
    }
    progress.over.extend(since_ready(validator).map(|end| (Phase::Validation, end)));
}

/// The most relevant pod. Terminating pods and pods of an earlier node of the same name are ignored.
fn pick<'a>(node: &Value, pods: &[&'a Value]) -> Option<&'a Value> {
    let born = time(&node["metadata"]["creationTimestamp"]);
    let counts = |pod: &&Value| {
        let meta = &pod["metadata"];
        meta["deletionTimestamp"].is_null() && time(&meta["creationTimestamp"]) >= born
    };
    pods.iter().copied().filter(counts).max_by_key(|pod| is_healthy(pod))
}

/// Whether it runs and all of its containers are ready.
fn is_healthy(pod: &Value) -> bool {
    let containers = pod["status"]["containerStatuses"].as_array();
    let ready = containers.is_some_and(|all| !all.is_empty() && all.iter().all(|one| one["ready"] == true));
    pod["status"]["phase"] == "Running" && ready
}

/// What a pod waits for, from its status.
fn waiting_reason(pod: &Value) -> String {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let reason = PodStatus::deserialize(&pod["status"]).ok().and_then(|status| pods::reason(&status));
    let check = || init(pod).find(|one| !is_over(one)).and_then(|one| one["name"].as_str());
    match (reason, check()) {
        (Some(reason), _) => format!("pod {name} {reason}"),
        (None, Some(check)) => format!("{check} of pod {name} is not over"),
        (None, None) => format!("pod {name} is not ready"),
    }
}

fn init(pod: &Value) -> impl Iterator<Item = &Value> {
    pod["status"]["initContainerStatuses"].as_array().into_iter().flatten()
}

fn is_over(container: &Value) -> bool {
    container["state"]["terminated"].is_object()
        && container["state"]["terminated"]["exitCode"].as_i64().unwrap_or(0) == 0
}

/// The checks of a validator with their end times.
fn checks(pod: &Value) -> impl Iterator<Item = (Phase, Option<Timestamp>)> {
    init(pod).map(|one| {
        let phase = match one["name"].as_str() {
            Some("driver-validation") => Phase::Driver,
            Some("toolkit-validation") => Phase::Toolkit,
            Some("plugin-validation") => Phase::Plugin,
            _ => Phase::Validation,
        };
        let end = Some(&one["state"]["terminated"]["finishedAt"]).filter(|_| is_over(one));
        (phase, end.and_then(time))
    })
}

fn since_ready(pod: &Value) -> Option<Timestamp> {
    let mut conditions = pod["status"]["conditions"].as_array()?.iter();
    time(&conditions.find(|one| one["type"] == "Ready")?["lastTransitionTime"])
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}
