//! Status of models: services with their endpoints, caches, pipelines, builds.

use serde::Serialize;
use serde_json::Value;

use super::Section;
use super::text::{Line, Tone, branches, plain, state};
use super::tree::{Tree, condition_message, conditions, text};
use crate::snapshot::{Snapshot, named};

const GROUP: &str = "apps.nvidia.com";
/// Kinds, and the verb for ready ones.
const KINDS: [(&str, &str); 4] = [
    ("NIMService", "services serve"),
    ("NIMCache", "caches are filled"),
    ("NIMBuild", "builds are done"),
    ("NIMPipeline", "pipelines are ready"),
];

/// Section of models.
pub(crate) const SECTION: Section =
    Section { fill: |snapshot, tree| tree.models = of(snapshot), counts, problem, lines };

/// A model custom resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Model {
    /// `NIMService`, `NIMCache`, `NIMPipeline` or `NIMBuild`.
    pub kind: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `status.state`; empty before the first reconcile.
    pub state: String,
    /// Whether it is ready.
    pub ready: bool,
    /// Why it is not ready: the message of its condition.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Endpoint of a service within the cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
    /// External endpoint.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub external: String,
    /// The model that it serves.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// Ready replicas of a service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
}

fn of(snapshot: &Snapshot) -> Vec<Model> {
    let kinds = KINDS.into_iter();
    let mut all: Vec<Model> =
        kinds.flat_map(|(kind, _)| snapshot.of(GROUP, kind).iter().map(move |object| model(kind, object))).collect();
    all.sort_by(|one, other| (&one.namespace, one.kind, &one.name).cmp(&(&other.namespace, other.kind, &other.name)));
    all
}

fn model(kind: &'static str, object: &Value) -> Model {
    let (namespace, name) = named(object);
    let status = &object["status"];
    let state = text(&status["state"]);
    let ready = state == "Ready";
    Model {
        kind,
        namespace: namespace.into(),
        name: name.into(),
        message: if ready { String::new() } else { reason(object) },
        endpoint: text(&status["model"]["clusterEndpoint"]),
        external: text(&status["model"]["externalEndpoint"]),
        model: text(&status["model"]["name"]),
        replicas: status["availableReplicas"].as_i64(),
        state,
        ready,
    }
}

/// Why it is not ready: the message of the false condition, or of the one that changed last.
fn reason(object: &Value) -> String {
    let failed = condition_message(object, "Failed", "True").or_else(|| condition_message(object, "Ready", "False"));
    let with_message = conditions(object)
        .filter(|one| one["status"] == "True" && one["message"].as_str().is_some_and(|text| !text.is_empty()));
    // Times are whole seconds: among equals the last in the list wins.
    let last = || with_message.max_by_key(|one| text(&one["lastTransitionTime"])).map(|one| text(&one["message"]));
    failed.or_else(last).unwrap_or_else(|| {
        if object["status"]["state"].is_string() { String::new() } else { "the operator has not looked at it".into() }
    })
}

fn counts(tree: &Tree) -> Vec<String> {
    let counts = KINDS.into_iter().filter_map(|(kind, what)| {
        let all = tree.models.iter().filter(|model| model.kind == kind);
        let (ready, total) = all.fold((0, 0), |(ready, total), one| (ready + usize::from(one.ready), total + 1));
        (total > 0).then(|| format!("{ready} of {total} {what}"))
    });
    counts.collect()
}

fn problem(tree: &Tree) -> Option<String> {
    let one = tree.models.iter().find(|one| !one.ready)?;
    let why = if one.message.is_empty() { &one.state } else { &one.message };
    Some(format!("{} {}/{}: {why}", one.kind, one.namespace, one.name))
}

fn lines(tree: &Tree) -> Vec<Line> {
    if tree.models.is_empty() {
        return Vec::new();
    }
    let title = vec![(Tone::Strong, "models".into())];
    [vec![title], branches(tree.models.iter().map(line).collect())].concat()
}

fn line(one: &Model) -> Line {
    let mut line = vec![plain(&format!("{} {}/{}  ", one.kind, one.namespace, one.name)), state(one.ready, &one.state)];
    let place = if one.external.is_empty() { &one.endpoint } else { &one.external };
    if one.ready && !place.is_empty() {
        let served = if one.model.is_empty() { String::new() } else { format!("{} ", one.model) };
        line.push(plain(&format!("  {served}at {place}")));
    }
    if !one.message.is_empty() {
        line.push(plain(&format!("  {}", one.message)));
    }
    line
}
