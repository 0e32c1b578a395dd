//! Progress of a component, from its DaemonSets.

use capstan_plan::{Object, is_current};
use serde_json::Value;

use super::{Cx, Outcome, node_agent};
use crate::common_conditions;

/// Above this, node counts are rounded, so that a large rollout does not write its status for each node.
const MANY: i64 = 20;

/// Progress of one operand.
pub(crate) enum Progress {
    /// Ready on all desired nodes.
    Ready(String),
    /// Rolling out.
    Waiting(String),
    /// It cannot be planned.
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

/// Progress of an operand, with diagnoses of its pods. `deploy` is the label of its nodes.
pub(crate) fn judge(cx: &Cx<'_>, deploy: Option<&str>, part: &Outcome<Vec<Object>>) -> Progress {
    match (count(cx, deploy, part), part) {
        (Progress::Waiting(message), Ok(objects)) => {
            let there = objects.iter().filter_map(|object| cx.facts.live.get(&object.reference));
            let owners: Vec<&str> = there.filter_map(|live| live["metadata"]["uid"].as_str()).collect();
            Progress::Waiting(cx.cluster.diagnoses.add_to(message, &owners))
        }
        (progress, _) => progress,
    }
}

/// Progress of an operand from its DaemonSets.
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
        // The node agent pod also runs where only another of its operands is deployed.
        Some(set) if set.reference.name == node_agent::NAME && counts.are_all_there() => counts.judge(wanted),
        Some(_) => counts.judge(wanted.max(counts.desired)),
        None => Progress::Ready(String::new()),
    }
}

/// Status counts of the DaemonSets of an operand.
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
        let here = common_conditions::progress(self.updated.min(self.available).min(wanted), wanted, MANY);
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
