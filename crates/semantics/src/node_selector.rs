//! Node selectors and pod node affinity, compiled from pods and volumes.

use k8s_openapi::api::core::v1::{Affinity, Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec};

use crate::label_selector::{LabelSelector, Labels, value_of};
use crate::requirement::{Operator, Requirement};

/// One term of a node selector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTerm {
    labels: Vec<Requirement>,
    fields: Vec<Requirement>,
}

impl NodeTerm {
    /// Compiles a term.
    pub fn new(term: &NodeSelectorTerm) -> Self {
        let compile = |expressions: &Option<Vec<NodeSelectorRequirement>>| {
            let compile = |expression: &NodeSelectorRequirement| Requirement {
                key: expression.key.clone(),
                operator: Operator::of(&expression.operator),
                values: expression.values.clone().unwrap_or_default(),
            };
            expressions.iter().flatten().map(compile).collect()
        };
        Self { labels: compile(&term.match_expressions), fields: compile(&term.match_fields) }
    }

    /// Whether a node matches. An empty term matches no node.
    pub fn matches(&self, name: &str, labels: Option<&Labels>) -> bool {
        let field = |key: &str| (key == "metadata.name").then_some(name);
        !(self.labels.is_empty() && self.fields.is_empty())
            && self.labels.iter().all(|requirement| requirement.matches(value_of(labels, &requirement.key)))
            && self.fields.iter().all(|requirement| requirement.matches(field(&requirement.key)))
    }

    /// The only node names that can match, if the term has `matchFields` on `metadata.name`.
    fn names(&self) -> Option<&[String]> {
        let named = self.fields.iter().find(|r| r.key == "metadata.name" && r.operator == Operator::In)?;
        Some(&named.values)
    }
}

/// A compiled node selector: its terms are ORed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTerms(Vec<NodeTerm>);

impl NodeTerms {
    /// Compiles a node selector.
    pub fn new(selector: &NodeSelector) -> Self {
        Self(selector.node_selector_terms.iter().map(NodeTerm::new).collect())
    }

    /// Whether a node matches.
    pub fn matches(&self, name: &str, labels: Option<&Labels>) -> bool {
        self.0.iter().any(|term| term.matches(name, labels))
    }
}

/// Required and preferred node affinity of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeAffinity {
    labels: LabelSelector,
    required: Option<NodeTerms>,
    /// Preferred terms with their weights.
    pub preferred: Vec<(i32, NodeTerm)>,
}

impl NodeAffinity {
    /// Reads `nodeSelector` and `affinity.nodeAffinity`.
    pub fn of(spec: &PodSpec) -> Self {
        let affinity = spec.affinity.as_ref().and_then(|Affinity { node_affinity, .. }| node_affinity.as_ref());
        let preferred = affinity.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref());
        Self {
            labels: LabelSelector::of_labels(spec.node_selector.iter().flatten()),
            required: affinity
                .and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref())
                .map(NodeTerms::new),
            preferred: preferred.into_iter().flatten().map(|p| (p.weight, NodeTerm::new(&p.preference))).collect(),
        }
    }

    /// Whether every node is allowed.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.required.is_none()
    }

    /// Whether the pod may run on a node.
    pub fn allows(&self, node: &Node) -> bool {
        let labels = node.metadata.labels.as_ref();
        let name = node.metadata.name.as_deref().unwrap_or_default();
        self.labels.matches_labels(labels)
            && self.required.as_ref().is_none_or(|required| required.matches(name, labels))
    }

    /// The only nodes where the pod may run, if each term names some, as in pods of a DaemonSet.
    pub fn names(&self) -> Option<Vec<&str>> {
        let mut names = Vec::new();
        for term in &self.required.as_ref()?.0 {
            names.extend(term.names()?.iter().map(String::as_str));
        }
        names.sort_unstable();
        names.dedup();
        Some(names)
    }

    /// Sum of the weights of the preferred terms that match.
    pub fn score(&self, node: &Node) -> i64 {
        let labels = node.metadata.labels.as_ref();
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let liked = self.preferred.iter().filter(|(_, term)| term.matches(name, labels));
        liked.map(|(weight, _)| i64::from(*weight)).sum()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn nodes_are_selected_by_labels_and_name() {
        let node: Node = read(json!({"metadata": {"name": "n1", "labels": {"zone": "a", "cores": "8"}}}));
        let required = |terms: Value| {
            json!({"containers": [], "affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
        };
        let cases = [
            (json!({"containers": []}), true),
            (json!({"containers": [], "nodeSelector": {"zone": "a"}}), true),
            (json!({"containers": [], "nodeSelector": {"zone": "b"}}), false),
            (required(json!([{"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["4"]}]}])), true),
            (required(json!([{"matchExpressions": [{"key": "cores", "operator": "Lt", "values": ["4"]}]}])), false),
            (required(json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}])), true),
            (required(json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}])), false),
            (required(json!([{}, {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}])), true),
            (required(json!([{}])), false),
        ];
        for (spec, allowed) in cases {
            assert_eq!(NodeAffinity::of(&read(spec.clone())).allows(&node), allowed, "{spec}");
        }
    }
}
