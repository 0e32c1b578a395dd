//! What serves models: services with their endpoints, caches, pipelines, builds.

use serde::Serialize;
use serde_json::Value;

use super::tree::{conditions, said, text};
use crate::snapshot::{Snapshot, named};

const GROUP: &str = "apps.nvidia.com";

/// A custom resource that has to do with models.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Model {
    pub(crate) kind: &'static str,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// As its status says; empty as long as the operator has not looked at it.
    pub(crate) state: String,
    pub(crate) ready: bool,
    /// Why it is not ready, in the words of its condition.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
    /// Where a service answers within the cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) endpoint: String,
    /// Where it answers from outside.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) external: String,
    /// Which model it serves.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) model: String,
    /// Replicas of a service that serve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) replicas: Option<i64>,
}

pub(super) fn of(snapshot: &Snapshot) -> Vec<Model> {
    let kinds = ["NIMCache", "NIMBuild", "NIMPipeline", "NIMService"].into_iter();
    let mut all: Vec<Model> =
        kinds.flat_map(|kind| snapshot.of(GROUP, kind).iter().map(move |object| model(kind, object))).collect();
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

/// Why it is not ready: the condition that says so, or the one that changed last.
fn reason(object: &Value) -> String {
    let failed = said(object, "Failed", "True").or_else(|| said(object, "Ready", "False"));
    let told = conditions(object)
        .filter(|one| one["status"] == "True" && one["message"].as_str().is_some_and(|text| !text.is_empty()));
    // Times are whole seconds: among equals the one that was added last tells most.
    let last = || told.max_by_key(|one| text(&one["lastTransitionTime"])).map(|one| text(&one["message"]));
    failed.or_else(last).unwrap_or_else(|| {
        if object["status"]["state"].is_string() { String::new() } else { "the operator has not looked at it".into() }
    })
}
