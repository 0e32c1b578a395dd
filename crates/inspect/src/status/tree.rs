//! Data of a status, and its summary.

use serde::Serialize;
use serde_json::Value;

use super::gpu::{Nodes, Resource};
use super::nemo::NemoService;
use super::nim::Model;
use super::operator::{self, Operator};
use super::sections;
use crate::snapshot::Snapshot;

/// Status of the whole cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tree {
    /// Summary.
    pub verdict: Summary,
    /// The operator.
    pub operator: Operator,
    /// GPU custom resources.
    pub resources: Vec<Resource>,
    /// GPU nodes by progress.
    pub nodes: Nodes,
    /// Model custom resources.
    pub models: Vec<Model>,
    /// NeMo services.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nemo: Vec<NemoService>,
    /// Kinds that could not be read: their objects are missing here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
}

/// Summary of a status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Whether everything is ready.
    pub ready: bool,
    /// Summary line, with the first problem if not ready.
    pub text: String,
}

/// Computes the status of a snapshot.
pub fn tree(snapshot: &Snapshot) -> Tree {
    let unread = snapshot.unread.iter().map(|(kind, why)| format!("{kind}: {why}")).collect();
    let mut tree = Tree { operator: operator::of(snapshot), unread, ..Tree::default() };
    for section in sections() {
        (section.fill)(snapshot, &mut tree);
    }
    tree.verdict = verdict(&tree, snapshot);
    tree
}

fn verdict(tree: &Tree, snapshot: &Snapshot) -> Summary {
    let counts: Vec<String> = sections().flat_map(|section| (section.counts)(tree)).collect();
    match problem(tree, snapshot) {
        Some(why) if counts.is_empty() => Summary { ready: false, text: format!("not ready: {why}") },
        Some(why) => Summary { ready: false, text: format!("not ready: {why} ({})", counts.join(", ")) },
        None if counts.is_empty() => {
            let text = "ready: nothing is asked for, there is no ClusterPolicy, GPUCluster, NVIDIADriver, NIM or NeMo resource";
            Summary { ready: true, text: text.into() }
        }
        None => Summary { ready: true, text: format!("ready: {}", counts.join(", ")) },
    }
}

/// The first problem: the operator's, then by dependency.
fn problem(tree: &Tree, snapshot: &Snapshot) -> Option<String> {
    let crds = snapshot.of("apiextensions.k8s.io", "CustomResourceDefinition");
    let unread = snapshot.unread.contains_key("CustomResourceDefinition.apiextensions.k8s.io");
    let ours = |crd: &Value| capstan_api::kinds().any(|kind| crd["metadata"]["name"] == kind.crd_name());
    if !unread && !crds.iter().any(ours) {
        return Some("Capstan is not installed: the cluster has none of its CRDs; see `capstan crds --apply`".into());
    }
    tree.operator.trouble.clone().or_else(|| sections().find_map(|section| (section.problem)(tree)))
}

/// The text of a field; empty if absent.
pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Conditions of an object.
pub(super) fn conditions(object: &Value) -> impl DoubleEndedIterator<Item = &Value> {
    object["status"]["conditions"].as_array().into_iter().flatten()
}

/// The condition of a type.
pub(super) fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    conditions(object).find(|one| one["type"] == type_)
}

/// The message of a condition, if it has that status.
pub(super) fn condition_message(object: &Value, type_: &str, status: &str) -> Option<String> {
    let found = condition(object, type_).filter(|one| one["status"] == status)?;
    Some(text(&found["message"])).filter(|message| !message.is_empty())
}
