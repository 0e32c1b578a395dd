//! Label selectors, node selectors and tolerations, compiled from what pods say.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Labels, as objects carry them.
pub type Labels = BTreeMap<String, String>;

/// What a label must be.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Operator {
    In,
    NotIn,
    Exists,
    Absent,
    Greater,
    Less,
    /// Not an operator: nothing is selected.
    Unknown,
}

impl Operator {
    fn parse(text: &str) -> Self {
        match text {
            "In" => Self::In,
            "NotIn" => Self::NotIn,
            "Exists" => Self::Exists,
            "DoesNotExist" => Self::Absent,
            "Gt" => Self::Greater,
            "Lt" => Self::Less,
            _ => Self::Unknown,
        }
    }
}

impl Requirement {
    fn holds(&self, value: Option<&str>) -> bool {
        let listed = |value: &str| self.values.iter().any(|mine| mine == value);
        match self.operator {
            Operator::In => value.is_some_and(listed),
            Operator::NotIn => !value.is_some_and(listed),
            Operator::Exists => value.is_some(),
            Operator::Absent => value.is_none(),
            Operator::Greater => self.compare(value).is_some_and(|(have, bound)| have > bound),
            Operator::Less => self.compare(value).is_some_and(|(have, bound)| have < bound),
            Operator::Unknown => false,
        }
    }

    fn compare(&self, value: Option<&str>) -> Option<(i64, i64)> {
        Some((value?.parse().ok()?, self.values.first()?.parse().ok()?))
    }
}

/// A label selector. The default selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Selector(Vec<Requirement>);

impl Selector {
    /// Compiles a selector as objects carry it. An empty one selects everything.
    pub fn new(selector: &LabelSelector) -> Self {
        let equal = selector.match_labels.iter().flatten().map(|(key, value)| Self::requirement(key, value));
        let others = selector.match_expressions.iter().flatten().map(|expression| Requirement {
            key: expression.key.clone(),
            operator: Operator::parse(&expression.operator),
            values: expression.values.clone().unwrap_or_default(),
        });
        Self(equal.chain(others).collect()).ordered()
    }

    /// Selects objects that have all these labels.
    pub fn of_labels<'a>(labels: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        Self(labels.into_iter().map(|(key, value)| Self::requirement(key, value)).collect()).ordered()
    }

    /// Selects what both select.
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self.ordered()
    }

    /// Does not select objects with this label.
    pub fn except(mut self, key: &str, value: &str) -> Self {
        self.0.push(Requirement { operator: Operator::NotIn, ..Self::requirement(key, value) });
        self.ordered()
    }

    /// Whether everything is selected.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: Option<&Labels>) -> bool {
        self.0.iter().all(|requirement| {
            requirement.holds(labels.and_then(|labels| labels.get(&requirement.key)).map(String::as_str))
        })
    }

    /// A label that every selected object has.
    pub fn required_label(&self) -> Option<(&str, &str)> {
        let single = self.0.iter().find(|r| r.operator == Operator::In && r.values.len() == 1)?;
        Some((&single.key, &single.values[0]))
    }

    fn requirement(key: &str, value: &str) -> Requirement {
        Requirement { key: key.to_owned(), operator: Operator::In, values: vec![value.to_owned()] }
    }

    /// Equal selectors are to compare equal, in whatever order they were written.
    fn ordered(mut self) -> Self {
        for requirement in &mut self.0 {
            requirement.values.sort_unstable();
        }
        self.0.sort_unstable();
        self.0.dedup();
        self
    }
}

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
                operator: Operator::parse(&expression.operator),
                values: expression.values.clone().unwrap_or_default(),
            };
            expressions.iter().flatten().map(compile).collect()
        };
        Self { labels: compile(&term.match_expressions), fields: compile(&term.match_fields) }
    }

    /// Whether a node is selected. A term that says nothing selects nothing.
    pub fn matches(&self, name: &str, labels: Option<&Labels>) -> bool {
        let label = |key: &str| labels.and_then(|labels| labels.get(key)).map(String::as_str);
        let field = |key: &str| (key == "metadata.name").then_some(name);
        !(self.labels.is_empty() && self.fields.is_empty())
            && self.labels.iter().all(|requirement| requirement.holds(label(&requirement.key)))
            && self.fields.iter().all(|requirement| requirement.holds(field(&requirement.key)))
    }

    /// The only nodes that can be selected, if the term names them.
    fn names(&self) -> Option<&[String]> {
        let named = self.fields.iter().find(|r| r.key == "metadata.name" && r.operator == Operator::In)?;
        Some(&named.values)
    }
}

/// A node selector: one of its terms must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTerms(Vec<NodeTerm>);

impl NodeTerms {
    /// Compiles a node selector.
    pub fn new(selector: &NodeSelector) -> Self {
        Self(selector.node_selector_terms.iter().map(NodeTerm::new).collect())
    }

    /// Whether a node is selected.
    pub fn matches(&self, name: &str, labels: Option<&Labels>) -> bool {
        self.0.iter().any(|term| term.matches(name, labels))
    }
}

/// Where a pod must and would like to be, by the labels and names of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeAffinity {
    labels: Selector,
    required: Option<NodeTerms>,
    /// With weights.
    pub preferred: Vec<(i32, NodeTerm)>,
}

impl NodeAffinity {
    /// Reads `nodeSelector` and `affinity.nodeAffinity`.
    pub fn of(spec: &PodSpec) -> Self {
        let affinity = spec.affinity.as_ref().and_then(|Affinity { node_affinity, .. }| node_affinity.as_ref());
        let preferred = affinity.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref());
        Self {
            labels: Selector::of_labels(spec.node_selector.iter().flatten()),
            required: affinity
                .and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref())
                .map(NodeTerms::new),
            preferred: preferred.into_iter().flatten().map(|p| (p.weight, NodeTerm::new(&p.preference))).collect(),
        }
    }

    /// Whether any node will do.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.required.is_none()
    }

    /// Whether the pod may be on a node.
    pub fn allows(&self, node: &Node) -> bool {
        let labels = node.metadata.labels.as_ref();
        let name = node.metadata.name.as_deref().unwrap_or_default();
        self.labels.matches(labels) && self.required.as_ref().is_none_or(|required| required.matches(name, labels))
    }

    /// The only nodes where the pod may be, if each term names some. A daemon set's pods are like this.
    pub fn names(&self) -> Option<Vec<&str>> {
        let mut names = Vec::new();
        for term in &self.required.as_ref()?.0 {
            names.extend(term.names()?.iter().map(String::as_str));
        }
        names.sort_unstable();
        names.dedup();
        Some(names)
    }

    /// The sum of the weights of what the pod would like.
    pub fn score(&self, node: &Node) -> i64 {
        let labels = node.metadata.labels.as_ref();
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let liked = self.preferred.iter().filter(|(_, term)| term.matches(name, labels));
        liked.map(|(weight, _)| i64::from(*weight)).sum()
    }
}

/// Whether a toleration is about a taint.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let some = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let effect = some(&toleration.effect).is_none_or(|effect| effect == taint.effect);
    let key = some(&toleration.key).is_none_or(|key| key == taint.key);
    let have = taint.value.as_deref().unwrap_or_default();
    let want = toleration.value.as_deref().unwrap_or_default();
    let value = match toleration.operator.as_deref().unwrap_or_default() {
        "" | "Equal" => have == want,
        "Exists" => true,
        "Gt" | "Lt" => match (have.parse::<i64>(), want.parse::<i64>()) {
            (Ok(have), Ok(want)) if toleration.operator.as_deref() == Some("Gt") => have > want,
            (Ok(have), Ok(want)) => have < want,
            _ => false,
        },
        _ => false,
    };
    effect && key && value
}

/// The first taint that keeps a pod from being scheduled or from staying.
pub fn untolerated<'a>(taints: Option<&'a Vec<Taint>>, tolerations: Option<&Vec<Toleration>>) -> Option<&'a Taint> {
    let hard = taints.into_iter().flatten().filter(|t| matches!(t.effect.as_str(), "NoSchedule" | "NoExecute"));
    hard.into_iter().find(|taint| !tolerations.into_iter().flatten().any(|t| tolerates(t, taint)))
}

/// How many taints of a node would rather not have a pod.
pub fn disliked(taints: Option<&Vec<Taint>>, tolerations: Option<&Vec<Toleration>>) -> i64 {
    let soft = taints.into_iter().flatten().filter(|t| t.effect == "PreferNoSchedule");
    let relevant = |t: &&Toleration| t.effect.as_deref().is_none_or(|e| e.is_empty() || e == "PreferNoSchedule");
    let tolerated = |taint: &Taint| tolerations.into_iter().flatten().filter(relevant).any(|t| tolerates(t, taint));
    soft.filter(|taint| !tolerated(taint)).count() as i64
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn selectors_select() {
        let have = labels(&[("app", "web"), ("tier", "2")]);
        let cases = [
            (json!({}), true),
            (json!({"matchLabels": {"app": "web"}}), true),
            (json!({"matchLabels": {"app": "db"}}), false),
            (json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["db", "web"]}]}), true),
            (json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]}), true),
            (json!({"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}), true),
            (json!({"matchExpressions": [{"key": "zone", "operator": "Exists"}]}), false),
            (json!({"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}), true),
            (json!({"matchExpressions": [{"key": "app", "operator": "Sometimes"}]}), false),
        ];
        for (selector, selected) in cases {
            assert_eq!(Selector::new(&read(selector.clone())).matches(Some(&have)), selected, "{selector}");
        }
    }

    #[test]
    fn selectors_that_say_the_same_are_equal() {
        let one = Selector::new(&read(json!({"matchLabels": {"a": "1", "b": "2"}})));
        let two = Selector::new(&read(json!({"matchExpressions": [
            {"key": "b", "operator": "In", "values": ["2"]}, {"key": "a", "operator": "In", "values": ["1"]},
        ]})));
        assert_eq!(one, two);
        assert_eq!(one.required_label(), Some(("a", "1")));
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

    #[test]
    fn tolerations_tolerate() {
        let taint: Taint = read(json!({"key": "gpu", "value": "yes", "effect": "NoSchedule"}));
        let cases = [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "gpu", "operator": "Exists"}), true),
            (json!({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}), false),
            (json!({"key": "gpu", "value": "yes"}), true),
            (json!({"key": "gpu", "value": "no"}), false),
            (json!({"key": "cpu", "operator": "Exists"}), false),
            (json!({"key": "gpu", "value": "yes", "effect": "NoSchedule", "operator": "Equal"}), true),
        ];
        for (toleration, tolerated) in cases {
            assert_eq!(tolerates(&read(toleration.clone()), &taint), tolerated, "{toleration}");
        }
    }
}
