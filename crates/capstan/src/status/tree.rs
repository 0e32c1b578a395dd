//! What a status consists of, and the verdict over all of it.

use serde::Serialize;
use serde_json::Value;

use super::models::{self, Model};
use super::nodes::{self, Nodes};
use super::operator::{self, Operator};
use super::resources::{self, Resource};
use crate::snapshot::Snapshot;

/// The whole cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Tree {
    /// Whether all is well, in one line.
    pub(crate) verdict: Verdict,
    /// Who looks after it.
    pub(crate) operator: Operator,
    /// Custom resources that make GPUs usable.
    pub(crate) resources: Vec<Resource>,
    /// GPU nodes, by how far they are.
    pub(crate) nodes: Nodes,
    /// Custom resources that serve models.
    pub(crate) models: Vec<Model>,
    /// Kinds that could not be read: what is missing here may be there all the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) unread: Vec<String>,
}

/// Whether all is well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Verdict {
    /// Whether everything that was asked for works.
    pub(crate) ready: bool,
    /// The same in words, with the first reason if not.
    pub(crate) text: String,
}

/// The status of what a snapshot shows.
pub(crate) fn tree(snapshot: &Snapshot) -> Tree {
    let operator = operator::of(snapshot);
    let resources = resources::of(snapshot);
    let nodes = nodes::of(snapshot);
    let models = models::of(snapshot);
    let unread = snapshot.unread.iter().map(|(kind, why)| format!("{kind}: {why}")).collect();
    let mut tree =
        Tree { verdict: Verdict { ready: false, text: String::new() }, operator, resources, nodes, models, unread };
    tree.verdict = verdict(&tree, snapshot);
    tree
}

fn verdict(tree: &Tree, snapshot: &Snapshot) -> Verdict {
    let counts = counts(tree);
    match trouble(tree, snapshot) {
        Some(why) if counts.is_empty() => Verdict { ready: false, text: format!("not ready: {why}") },
        Some(why) => Verdict { ready: false, text: format!("not ready: {why} ({})", counts.join(", ")) },
        None if counts.is_empty() => {
            let text =
                "ready: nothing is asked for, there is no ClusterPolicy, GPUCluster, NVIDIADriver or NIM resource";
            Verdict { ready: true, text: text.into() }
        }
        None => Verdict { ready: true, text: format!("ready: {}", counts.join(", ")) },
    }
}

/// `2 of 2 GPU nodes work`, and the same of models.
fn counts(tree: &Tree) -> Vec<String> {
    let mut counts = Vec::new();
    if tree.nodes.total > 0 {
        counts.push(format!("{} of {} GPU nodes work", tree.nodes.working, tree.nodes.total));
    } else if !tree.resources.is_empty() {
        counts.push("there are no GPU nodes".into());
    }
    for (kind, what) in [
        ("NIMService", "services serve"),
        ("NIMCache", "caches are filled"),
        ("NIMBuild", "builds are done"),
        ("NIMPipeline", "pipelines are ready"),
    ] {
        let all = tree.models.iter().filter(|model| model.kind == kind);
        let (ready, total) = all.fold((0, 0), |(ready, total), one| (ready + usize::from(one.ready), total + 1));
        if total > 0 {
            counts.push(format!("{ready} of {total} {what}"));
        }
    }
    counts
}

/// The first reason why not all is well: who looks after the cluster, then what others depend on.
fn trouble(tree: &Tree, snapshot: &Snapshot) -> Option<String> {
    let crds = snapshot.of("apiextensions.k8s.io", "CustomResourceDefinition");
    let unread = snapshot.unread.contains_key("CustomResourceDefinition.apiextensions.k8s.io");
    let ours = |crd: &Value| capstan_api::kinds().any(|kind| crd["metadata"]["name"] == kind.crd_name());
    if !unread && !crds.iter().any(ours) {
        return Some("Capstan is not installed: the cluster has none of its CRDs; see `capstan crds --apply`".into());
    }
    let resource = tree.resources.iter().find(|one| !one.ready && !one.message.is_empty());
    let waiting = tree.nodes.waiting.first();
    let model = tree.models.iter().find(|one| !one.ready);
    tree.operator
        .trouble
        .clone()
        .or_else(|| resource.map(|one| format!("{} {}: {}", one.kind, one.name, one.message)))
        .or_else(|| {
            tree.resources
                .iter()
                .find(|one| !one.ready)
                .map(|one| format!("{} {} is {}", one.kind, one.name, one.state))
        })
        .or_else(|| waiting.map(|one| format!("node {} waits for {}: {}", one.name, one.phase, one.why)))
        .or_else(|| {
            model.map(|one| {
                let why = if one.message.is_empty() { &one.state } else { &one.message };
                format!("{} {}/{}: {why}", one.kind, one.namespace, one.name)
            })
        })
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
