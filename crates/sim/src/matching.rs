//! Who matches whom: labels and selectors, nodes and node selectors, taints and tolerations.
//!
//! Pure functions, shared by controllers and the scheduler.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Labels of an object, as its metadata has them.
pub type Labels = BTreeMap<String, String>;

/// Whether a selector selects labels. An empty selector selects everything.
pub fn selects(selector: &LabelSelector, labels: Option<&Labels>) -> bool {
    let value = |key: &str| labels.and_then(|labels| labels.get(key)).map(String::as_str);
    let exact = selector.match_labels.iter().flatten().all(|(key, wanted)| value(key) == Some(wanted.as_str()));
    exact
        && selector.match_expressions.iter().flatten().all(|term| {
            let values = term.values.as_deref().unwrap_or_default();
            test(&term.operator, value(&term.key), values)
        })
}

/// Whether a selector selects everything.
pub fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.iter().flatten().next().is_none()
        && selector.match_expressions.iter().flatten().next().is_none()
}

/// Whether labels are all there, as in the selector of a service.
pub fn contains(labels: Option<&Labels>, wanted: &Labels) -> bool {
    wanted.iter().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
}

fn test(operator: &str, value: Option<&str>, values: &[String]) -> bool {
    match operator {
        "In" => value.is_some_and(|value| values.iter().any(|one| one == value)),
        "NotIn" => value.is_none_or(|value| values.iter().all(|one| one != value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" | "Lt" => {
            let number = |text: &str| text.parse::<i64>().ok();
            let (Some(mine), Some(bound)) = (value.and_then(number), values.first().and_then(|text| number(text)))
            else {
                return false;
            };
            if operator == "Gt" { mine > bound } else { mine < bound }
        }
        _ => false,
    }
}

/// Whether a node selector, whose terms are alternatives, selects a node.
pub fn node_selected(selector: &NodeSelector, node: &Node) -> bool {
    selector.node_selector_terms.iter().any(|term| node_matches(term, node))
}

/// Whether a term selects a node. A term without requirements selects none.
pub fn node_matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let holds = |requirement: &NodeSelectorRequirement, value: Option<&str>| {
        test(&requirement.operator, value, requirement.values.as_deref().unwrap_or_default())
    };
    let labels = node.metadata.labels.as_ref();
    expressions.iter().all(|one| holds(one, labels.and_then(|labels| labels.get(&one.key)).map(String::as_str)))
        && fields.iter().all(|one| one.key == "metadata.name" && holds(one, node.metadata.name.as_deref()))
}

/// Whether a pod may run on a node as far as `nodeSelector` and required node affinity say.
pub fn node_affinity_fits(pod: &PodSpec, node: &Node) -> bool {
    let wanted = pod.node_selector.as_ref().is_none_or(|wanted| contains(node.metadata.labels.as_ref(), wanted));
    let affinity = pod.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    wanted && required.is_none_or(|required| node_selected(required, node))
}

/// Whether a toleration tolerates a taint.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    fn text(value: &Option<String>) -> &str {
        value.as_deref().unwrap_or_default()
    }
    let (key, effect) = (text(&toleration.key), text(&toleration.effect));
    if (!effect.is_empty() && effect != taint.effect) || (!key.is_empty() && key != taint.key) {
        return false;
    }
    let (mine, theirs) = (text(&toleration.value), text(&taint.value));
    match toleration.operator.as_deref().unwrap_or_default() {
        "" | "Equal" => !key.is_empty() && mine == theirs,
        "Exists" => true,
        operator @ ("Gt" | "Lt") => match (theirs.parse::<i64>(), mine.parse::<i64>()) {
            (Ok(taint), Ok(bound)) => (operator == "Gt" && taint > bound) || (operator == "Lt" && taint < bound),
            _ => false,
        },
        _ => false,
    }
}

/// Whether any of the tolerations tolerates a taint.
pub fn tolerated(taint: &Taint, tolerations: Option<&[Toleration]>) -> bool {
    tolerations.unwrap_or_default().iter().any(|toleration| tolerates(toleration, taint))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn from<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn label_selectors() {
        let labels: Labels = from(json!({"app": "web", "tier": "a"}));
        for (selector, selected) in [
            (json!({}), true),
            (json!({"matchLabels": {"app": "web"}}), true),
            (json!({"matchLabels": {"app": "db"}}), false),
            (json!({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}]}), true),
            (json!({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["a"]}]}), false),
            (json!({"matchExpressions": [{"key": "none", "operator": "NotIn", "values": ["a"]}]}), true),
            (json!({"matchExpressions": [{"key": "none", "operator": "Exists"}]}), false),
            (json!({"matchExpressions": [{"key": "none", "operator": "DoesNotExist"}]}), true),
        ] {
            assert_eq!(selects(&from(selector.clone()), Some(&labels)), selected, "{selector}");
        }
    }

    #[test]
    fn node_selectors() {
        let node: Node = from(json!({"metadata": {"name": "n", "labels": {"zone": "a", "cores": "8"}}}));
        for (term, selected) in [
            (json!({}), false),
            (json!({"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["4"]}]}), true),
            (json!({"matchExpressions": [{"key": "cores", "operator": "Lt", "values": ["4"]}]}), false),
            (json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}), true),
            (json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["m"]}]}), false),
        ] {
            assert_eq!(node_matches(&from(term.clone()), &node), selected, "{term}");
        }
    }

    #[test]
    fn tolerations() {
        let taint: Taint = from(json!({"key": "k", "value": "v", "effect": "NoSchedule"}));
        for (toleration, enough) in [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "k", "operator": "Exists"}), true),
            (json!({"key": "k", "value": "v"}), true),
            (json!({"key": "k", "value": "w"}), false),
            (json!({"key": "k", "value": "v", "effect": "NoExecute"}), false),
            (json!({"key": "other", "operator": "Exists"}), false),
        ] {
            assert_eq!(tolerates(&from(toleration.clone()), &taint), enough, "{toleration}");
        }
    }
}
