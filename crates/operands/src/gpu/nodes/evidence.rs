//! How far a node is, from the pods of its driver and of its validator and from what its kubelet offers.
//!
//! The validator's init containers check one phase after the other, so their ends are the ends of phases.

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

/// What nodes are told about themselves; nothing unless asked for, as it costs requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Whether nodes get the condition `GPUReady`.
    pub condition: bool,
    /// The taint of new nodes, until they work.
    pub taint: Option<StartupTaint>,
}

/// What is known of a node, besides itself.
#[derive(Clone, Debug, Default)]
pub struct Evidence<'a> {
    /// Driver pods on it.
    pub drivers: Vec<&'a Value>,
    /// Pods on it that check whether its GPUs can be used.
    pub validators: Vec<&'a Value>,
    /// Operands that cannot be decided, by their condition, and why: see [`faults`].
    pub faults: Option<&'a BTreeMap<String, String>>,
}

/// What to say about a node.
enum Standing {
    /// Nothing.
    Silent,
    /// What is said already, for it cannot be told now.
    AsBefore,
    /// How far it is.
    Told(Progress),
}

impl Readiness {
    /// Whether pods have to be looked at.
    pub fn is_on(&self) -> bool {
        self.condition || self.taint.is_some()
    }

    /// Adds to `patch`, which labels the node, what makes its taint what it should be.
    pub fn taint(&self, wanted: &Wanted, node: &Value, evidence: &Evidence<'_>, patch: &mut NodePatch) {
        let labelled = patch.labels.get(keys::PRESENT).is_some_and(|value| value.as_deref() == Some("true"));
        let stage = match standing(wanted, node, evidence) {
            Standing::Silent => taint::Stage::Free,
            Standing::Told(progress) if progress.is_ready() => taint::Stage::Works,
            _ if labelled => taint::Stage::New,
            _ => taint::Stage::Waiting,
        };
        if wanted.stack != Stack::Frozen {
            taint::settle(self.taint.as_ref(), node, stage, patch);
        }
    }

    /// What makes the condition of a node that is labelled what it should be.
    pub fn condition_update(
        &self,
        wanted: &Wanted,
        node: &Value,
        evidence: &Evidence<'_>,
        now: Timestamp,
    ) -> ready::ConditionUpdate {
        match standing(wanted, node, evidence) {
            Standing::Told(progress) if self.condition => progress.condition_update(node, now),
            Standing::AsBefore if self.condition => ready::ConditionUpdate::default(),
            _ => ready::ConditionUpdate { patch: ready::forget(node), ..ready::ConditionUpdate::default() },
        }
    }
}

/// Why operands cannot be decided, by the type of their condition: from a ClusterPolicy or GPUCluster.
pub fn faults(resource: &Value) -> BTreeMap<String, String> {
    let conditions = resource["status"]["conditions"].as_array().into_iter().flatten();
    let failed = conditions.filter(|one| one["status"] == "False" && one["reason"] == "Failed");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    failed.map(|one| (text(&one["type"]), text(&one["message"]))).collect()
}

/// How far a node is, for those who only look; `None` where there is nothing to tell, or it cannot be told now.
pub fn progress(wanted: &Wanted, node: &Value, evidence: &Evidence<'_>) -> Option<Progress> {
    match standing(wanted, node, evidence) {
        Standing::Told(progress) => Some(progress),
        Standing::Silent | Standing::AsBefore => None,
    }
}

fn standing(wanted: &Wanted, node: &Value, evidence: &Evidence<'_>) -> Standing {
    let view = Node::of(node);
    match wanted.stack {
        Stack::Frozen => return Standing::AsBefore,
        Stack::Nothing => return Standing::Silent,
        _ if !has_gpu(view.labels) || view.labels.is(keys::OPERANDS, "false") => return Standing::Silent,
        Stack::DevicePlugin { .. } | Stack::Dra => {}
    }
    let began = wanted.since.into_iter().chain(time(&node["metadata"]["creationTimestamp"])).max();
    let mut progress = Progress { open: None, began: began.unwrap_or_default(), over: Vec::new() };
    let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    if !conditions.any(|one| one["type"] == "Ready" && one["status"] == "True") {
        // Of a kubelet that is silent for a while nothing new is known.
        if ready::is_told(node) {
            return Standing::AsBefore;
        }
        progress.open = Some((Phase::Kubelet, "the node is not Ready".into()));
        return Standing::Told(progress);
    }
    judge_pods(wanted, node, evidence, &mut progress);
    if let (Some((phase, why)), Some(faults)) = (&mut progress.open, evidence.faults)
        && let Some(fault) = faults.get(phase.condition())
    {
        why.clone_from(fault);
    }
    Standing::Told(progress)
}

fn judge_pods(wanted: &Wanted, node: &Value, evidence: &Evidence<'_>, progress: &mut Progress) {
    let labels = Node::of(node).labels;
    let missing = || "no pod on this node yet".to_owned();
    let (driver, validator) = (pick(node, &evidence.drivers), pick(node, &evidence.validators));
    let owned = !wanted.assigns() || labels.get(keys::OWNER).is_some_and(|owner| !owner.is_empty());
    if wanted.installs_drivers && owned && labels.is(keys::DRIVER, "true") && !driver.is_some_and(is_well) {
        progress.open = Some((Phase::Driver, driver.map_or_else(missing, holds_up)));
        return;
    }
    let Some(validator) = validator else {
        progress.open = Some((Phase::Validation, missing()));
        return;
    };
    if !is_well(validator) {
        let phase = checks(validator).find(|(_, end)| end.is_none()).map_or(Phase::Validation, |(phase, _)| phase);
        progress.open = Some((phase, holds_up(validator)));
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

/// The pod that tells most. One that goes tells nothing, nor does one of a node of the same name that went before.
fn pick<'a>(node: &Value, pods: &[&'a Value]) -> Option<&'a Value> {
    let born = time(&node["metadata"]["creationTimestamp"]);
    let counts = |pod: &&Value| {
        let meta = &pod["metadata"];
        meta["deletionTimestamp"].is_null() && time(&meta["creationTimestamp"]) >= born
    };
    pods.iter().copied().filter(counts).max_by_key(|pod| is_well(pod))
}

/// Whether it runs and all of its containers are ready.
fn is_well(pod: &Value) -> bool {
    let containers = pod["status"]["containerStatuses"].as_array();
    let ready = containers.is_some_and(|all| !all.is_empty() && all.iter().all(|one| one["ready"] == true));
    pod["status"]["phase"] == "Running" && ready
}

/// What a pod waits for, in its own words.
fn holds_up(pod: &Value) -> String {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let trouble = PodStatus::deserialize(&pod["status"]).ok().and_then(|status| pods::reason(&status));
    let check = || init(pod).find(|one| !is_over(one)).and_then(|one| one["name"].as_str());
    match (trouble, check()) {
        (Some(trouble), _) => format!("pod {name} {trouble}"),
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

/// The checks of a validator, and when each one ended.
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
