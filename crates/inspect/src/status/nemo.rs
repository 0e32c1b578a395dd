//! The status of NeMo services: state, reason, and where each is reached.

use serde::Serialize;
use serde_json::Value;

use super::Section;
use super::text::{Line, Tone, branches, plain, state};
use super::tree::{Tree, condition_message, text};
use crate::snapshot::{Snapshot, named};

const GROUP: &str = "apps.nvidia.com";
/// Kinds, in the order in which they need each other.
const KINDS: [&str; 5] = ["NemoDatastore", "NemoEntitystore", "NemoCustomizer", "NemoEvaluator", "NemoGuardrail"];
/// Port of a Service when the spec names none.
const PORT: i64 = 8000;

/// NeMo services.
pub(crate) const SECTION: Section = Section { fill: |snapshot, tree| tree.nemo = of(snapshot), counts, problem, lines };

/// A NeMo service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NemoService {
    /// Its kind.
    pub kind: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// As its status says; empty as long as the operator has not reconciled it.
    pub state: String,
    /// Whether it works.
    pub ready: bool,
    /// Why it is not ready, or what it lacks around it, in the words of its conditions.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Where it answers within the cluster.
    pub endpoint: String,
    /// Replicas that serve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
}

fn of(snapshot: &Snapshot) -> Vec<NemoService> {
    let all = KINDS.into_iter().flat_map(|kind| snapshot.of(GROUP, kind).iter().map(move |one| service(kind, one)));
    let mut all: Vec<NemoService> = all.collect();
    all.sort_by(|one, other| one.namespace.cmp(&other.namespace));
    all
}

fn service(kind: &'static str, object: &Value) -> NemoService {
    let (namespace, name) = named(object);
    let state = text(&object["status"]["state"]);
    let ready = state == "Ready";
    let port = object["spec"]["expose"]["service"]["port"].as_i64().unwrap_or(PORT);
    NemoService {
        kind,
        namespace: namespace.into(),
        name: name.into(),
        message: message(object, ready),
        endpoint: format!("http://{name}.{namespace}:{port}"),
        replicas: object["status"]["availableReplicas"].as_i64(),
        state,
        ready,
    }
}

/// Why it is not ready; of one that is, what its jobs will miss.
fn message(object: &Value, ready: bool) -> String {
    if ready {
        let lacks =
            ["MissingAPI", "MissingReferences"].iter().filter_map(|type_| condition_message(object, type_, "True"));
        return lacks.collect::<Vec<_>>().join("; ");
    }
    condition_message(object, "Failed", "True").or_else(|| condition_message(object, "Ready", "False")).unwrap_or_else(
        || {
            if object["status"]["state"].is_string() {
                String::new()
            } else {
                "the operator has not reconciled it".into()
            }
        },
    )
}

fn counts(tree: &Tree) -> Vec<String> {
    let ready = tree.nemo.iter().filter(|one| one.ready).count();
    let all = tree.nemo.len();
    (all > 0).then(|| format!("{ready} of {all} NeMo services are ready")).into_iter().collect()
}

fn problem(tree: &Tree) -> Option<String> {
    let one = tree.nemo.iter().find(|one| !one.ready)?;
    let why = if one.message.is_empty() { &one.state } else { &one.message };
    Some(format!("{} {}/{}: {why}", one.kind, one.namespace, one.name))
}

fn lines(tree: &Tree) -> Vec<Line> {
    if tree.nemo.is_empty() {
        return Vec::new();
    }
    let title = vec![(Tone::Strong, "nemo".into())];
    [vec![title], branches(tree.nemo.iter().map(line).collect())].concat()
}

fn line(one: &NemoService) -> Line {
    let mut line = vec![plain(&format!("{} {}/{}  ", one.kind, one.namespace, one.name)), state(one.ready, &one.state)];
    if one.ready {
        line.push(plain(&format!("  at {}", one.endpoint)));
    }
    if !one.message.is_empty() {
        line.push(plain(&format!("  {}", one.message)));
    }
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn snapshot(objects: Vec<Value>) -> Snapshot {
        let mut snapshot = Snapshot::default();
        objects.into_iter().for_each(|object| snapshot.add(object));
        snapshot
    }

    fn object(kind: &str, name: &str, status: Value) -> Value {
        json!({
            "apiVersion": "apps.nvidia.com/v1alpha1", "kind": kind, "metadata": {"name": name, "namespace": "nemo"},
            "spec": {"expose": {"service": {"port": 7331}}}, "status": status,
        })
    }

    #[test]
    fn services_are_shown_with_endpoint_or_reason() {
        let waits = json!([{"type": "Ready", "status": "False", "reason": "SecretNotFound", "message": "Secret nemo/pg is missing"}]);
        let lacks = json!([{"type": "MissingAPI", "status": "True", "message": "needs CRD workflows.argoproj.io"}]);
        let snapshot = snapshot(vec![
            object("NemoGuardrail", "rails", json!({"state": "NotReady", "conditions": waits})),
            object("NemoEvaluator", "scores", json!({"state": "Ready", "availableReplicas": 1, "conditions": lacks})),
        ]);
        let mut tree = Tree::default();
        (SECTION.fill)(&snapshot, &mut tree);
        let shown: Vec<String> =
            lines(&tree).iter().map(|line| line.iter().map(|(_, text)| text.as_str()).collect()).collect();
        assert_eq!(shown[0], "nemo");
        assert!(
            shown[1].contains("NemoEvaluator nemo/scores  Ready  at http://scores.nemo:7331  needs CRD"),
            "{shown:?}"
        );
        assert!(shown[2].contains("NemoGuardrail nemo/rails  NotReady  Secret nemo/pg is missing"), "{shown:?}");
        assert_eq!(counts(&tree), ["1 of 2 NeMo services are ready"]);
        assert_eq!(problem(&tree).unwrap(), "NemoGuardrail nemo/rails: Secret nemo/pg is missing");
    }
}
