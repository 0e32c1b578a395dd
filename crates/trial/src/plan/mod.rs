//! Plans: dry runs on a copy of a cluster.
//!
//! The cluster is copied into this process, and the real operator runs on the copy (`twin`). The snapshots before and
//! after are then compared (`changes`).

mod changes;
#[cfg(test)]
mod tests;
pub mod text;
mod twin;

use capstan_inspect::Snapshot;
use capstan_inspect::snapshot::{self, name_of, named};
use capstan_operator::Options;
use serde::Serialize;

pub use changes::{Action, Change, Field};
use twin::Written;
pub(crate) use twin::{PACE, containers, observed_client, restorable};

use crate::{Manifest, Result};

/// A plan.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// Objects that are created, changed or deleted.
    pub changes: Vec<Change>,
    /// Nodes whose labels, taints or pods change.
    pub nodes: Vec<String>,
    /// Running pods that would be replaced or deleted, in order, with the time in seconds.
    pub pods: Vec<DeletedPod>,
    /// Estimated duration in seconds, from assumed times for image pulls and driver builds.
    pub seconds: u64,
    /// Whether the cluster settled.
    pub settled: bool,
    /// Conditions of custom resources that do not become ready.
    pub waiting: Vec<String>,
    /// Caveats of the plan.
    pub notes: Vec<String>,
}

/// A pod that would be deleted.
#[derive(Clone, Debug, Serialize)]
pub struct DeletedPod {
    /// Seconds until its deletion.
    pub after: u64,
    /// Namespace, name and node.
    pub pod: String,
}

/// Plans these manifests, or the current state if there are none: runs the operator with these options on a copy of the
/// cluster. `notes` become part of the plan.
pub fn run(before: &Snapshot, wanted: &[Manifest], options: Options, mut notes: Vec<String>) -> Result<Plan> {
    let outcome = twin::run(before, wanted, options)?;
    notes.extend(caveats(before));
    Ok(plan(before, wanted, outcome, notes))
}

fn plan(before: &Snapshot, wanted: &[Manifest], outcome: twin::Outcome, notes: Vec<String>) -> Plan {
    let changes = ours(changes::between(before, &outcome.after), wanted, &outcome.written);
    let pods: Vec<DeletedPod> =
        outcome.deleted.into_iter().map(|(after, pod)| DeletedPod { after: after.as_secs(), pod }).collect();
    let on_node = |pod_deletion: &DeletedPod| pod_deletion.pod.rsplit_once(" on ").map(|(_, node)| node.to_owned());
    let changed = changes.iter().filter(|change| change.kind == "Node").map(|change| change.name.clone());
    let mut nodes: Vec<String> = changed.chain(pods.iter().filter_map(on_node)).collect();
    nodes.sort();
    nodes.dedup();
    // Without changes, the time would only be that of the copy's own start.
    let seconds = if changes.is_empty() { 0 } else { outcome.took.as_secs() };
    Plan { nodes, pods, seconds, settled: outcome.settled, waiting: waiting(&outcome.after, &changes), changes, notes }
}

/// The changes that the operator or the user makes. What Kubernetes adds by itself is dropped; garbage collected
/// dependents are kept.
fn ours(changes: Vec<Change>, wanted: &[Manifest], written: &Written) -> Vec<Change> {
    let is_in_manifests = |change: &Change| {
        let is = |manifest: &&Manifest| {
            let named_so = manifest.name() == change.name;
            named_so && change.kind == name_of(&manifest.kind.group, &manifest.kind.kind)
        };
        wanted.iter().any(|manifest| is(&manifest))
    };
    let wrote = |change: &Change| {
        let name = |name: &str| (snapshot::plural(&change.kind).to_owned(), change.namespace.clone(), name.to_owned());
        written.contains(&name(&change.name)) || (change.action == Action::Create && written.contains(&name("")))
    };
    changes
        .into_iter()
        .filter(|change| change.action == Action::Delete || is_in_manifests(change) || wrote(change))
        .collect()
}

/// Conditions of custom resources that would not become ready. Only those that the plan touches.
fn waiting(after: &Snapshot, changes: &[Change]) -> Vec<String> {
    let touched = changes.iter().filter(|change| change.action != Action::Delete);
    let waiting_messages = touched.filter_map(|change| {
        let objects = after.objects.get(&change.kind)?;
        let object = objects.iter().find(|object| named(object) == (&change.namespace, &change.name))?;
        // The reason why the driver of a node was not upgraded.
        if let Some(reason) = object["metadata"]["annotations"]["capstan.dev/upgrade-reason"].as_str() {
            return Some(format!("{} {}: {reason}", change.kind, change.name));
        }
        let state = object["status"]["state"].as_str()?;
        if state.eq_ignore_ascii_case("ready") {
            return None;
        }
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let messages = conditions.filter_map(|condition| condition["message"].as_str());
        let message = messages.into_iter().find(|message| !message.is_empty()).unwrap_or("no reason given");
        Some(format!("{} {}: {state}: {message}", change.kind, change.name))
    });
    waiting_messages.collect()
}

/// Caveats from the snapshot.
fn caveats(before: &Snapshot) -> Vec<String> {
    let mut caveats = Vec::new();
    if before.redacted {
        caveats.push("the snapshot holds no secrets: pods may seem to change because of their contents".to_owned());
    }
    caveats.extend(before.unread.iter().map(|(kind, why)| format!("{kind} could not be read: {why}")));
    caveats
}
