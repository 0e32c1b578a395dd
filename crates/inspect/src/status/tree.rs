//! What a status consists of, and the verdict over all of it.

use serde::Serialize;
use serde_json::Value;

use super::gpu::{Nodes, Resource};
use super::nemo::NemoService;
use super::nim::Model;
use super::operator::{self, Operator};
use super::sections;
use crate::snapshot::Snapshot;

/// The whole cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tree {
    /// Whether all is well, in one line.
    pub verdict: Verdict,
    /// Who looks after it.
    pub operator: Operator,
    /// Custom resources that make GPUs usable.
    pub resources: Vec<Resource>,
    /// GPU nodes, by how far they are.
    pub nodes: Nodes,
    /// Custom resources that serve models.
    pub models: Vec<Model>,
    /// NeMo services.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nemo: Vec<NemoService>,
    /// Kinds that could not be read: what is missing here may be there all the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
}

/// Whether all is well.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Whether everything that was asked for works.
    pub ready: bool,
    /// The same in words, with the first reason if not.
    pub text: String,
}

/// The status of what a snapshot shows.
pub fn tree(snapshot: &Snapshot) -> Tree {
    let unread = snapshot.unread.iter().map(|(kind, why)| format!("{kind}: {why}")).collect();
    let mut tree = Tree { operator: operator::of(snapshot), unread, ..Tree::default() };
    for section in sections() {
        (section.fill)(snapshot, &mut tree);
    }
    tree.verdict = verdict(&tree, snapshot);
    tree
}

fn verdict(tree: &Tree, snapshot: &Snapshot) -> Verdict {
    let counts: Vec<String> = sections().flat_map(|section| (section.counts)(tree)).collect();
    match trouble(tree, snapshot) {
        Some(why) if counts.is_empty() => Verdict { ready: false, text: format!("not ready: {why}") },
        Some(why) => Verdict { ready: false, text: format!("not ready: {why} ({})", counts.join(", ")) },
        None if counts.is_empty() => {
            let text = "ready: nothing is asked for, there is no ClusterPolicy, GPUCluster, NVIDIADriver, NIM or NeMo resource";
            Verdict { ready: true, text: text.into() }
        }
        None => Verdict { ready: true, text: format!("ready: {}", counts.join(", ")) },
    }
}

/// The first reason why not all is well: who looks after the cluster, then what others depend on.
fn trouble(tree: &Tree, snapshot: &Snapshot) -> Option<String> {
    let crds = snapshot.of("apiextensions.k8s.io", "CustomResourceDefinition");
    let unread = snapshot.unread.contains_key("CustomResourceDefinition.apiextensions.k8s.io");
    let ours = |crd: &Value| capstan_api::kinds().any(|kind| crd["metadata"]["name"] == kind.crd_name());
    if !unread && !crds.iter().any(ours) {
        return Some("Capstan is not installed: the cluster has none of its CRDs; see `capstan crds --apply`".into());
    }
    tree.operator.trouble.clone().or_else(|| sections().find_map(|section| (section.trouble)(tree)))
}

/// Text at a field of an object; empty if there is none.
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

/// What the condition says, if it has that status.
pub(super) fn said(object: &Value, type_: &str, status: &str) -> Option<String> {
    let found = condition(object, type_).filter(|one| one["status"] == status)?;
    Some(text(&found["message"])).filter(|message| !message.is_empty())
}
