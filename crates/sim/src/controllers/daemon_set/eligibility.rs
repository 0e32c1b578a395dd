//! Node eligibility for DaemonSet pods, and the node affinity that pins a pod to its node.

use std::borrow::Cow;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    Affinity, Node, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration,
};

use super::super::common::{annotation, name_of, set_in};
use super::super::pods::{self, from_template};
use super::super::revision::REVISION_HASH;
use super::TEMPLATE_GENERATION;
use crate::Pod;
use capstan_semantics::node_selector::NodeAffinity as Requirements;
use capstan_semantics::taints::tolerated;

/// Eligibility of a node for a DaemonSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Eligibility {
    /// The pod should run there.
    ShouldRun,
    /// No new pod is scheduled there, but a running pod continues.
    MayContinue,
    /// No pod may run there; a running one is deleted.
    Ineligible,
}

/// Decides the eligibility of nodes for one DaemonSet.
pub(super) struct EligibilityRules<'a> {
    spec: Cow<'a, PodSpec>,
    requirements: Requirements,
    tolerations: Vec<Toleration>,
}

impl<'a> EligibilityRules<'a> {
    /// The eligibility rules of a set.
    pub(super) fn of(set: &'a DaemonSet) -> Self {
        let spec = set.spec.template.spec.as_ref().map_or_else(|| Cow::Owned(PodSpec::default()), Cow::Borrowed);
        let tolerations = tolerations(&spec);
        Self { requirements: Requirements::of(&spec), spec, tolerations }
    }

    /// Eligibility of a node.
    pub(super) fn evaluate(&self, node: &Node) -> Eligibility {
        let elsewhere = self.spec.node_name.as_deref().is_some_and(|name| !name.is_empty() && name != name_of(node));
        if elsewhere || !self.requirements.allows(node) {
            return Eligibility::Ineligible;
        }
        let repels = |effect: &str| {
            taints(node).iter().any(|taint| taint.effect == effect && !tolerated(taint, Some(&self.tolerations)))
        };
        match (repels("NoExecute"), repels("NoSchedule")) {
            (true, _) => Eligibility::Ineligible,
            (false, true) => Eligibility::MayContinue,
            (false, false) => Eligibility::ShouldRun,
        }
    }
}

/// The taints of a node.
pub(super) fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

/// The pod of a DaemonSet for a node, pinned by node affinity so that the scheduler still binds it.
pub(super) fn pod_for(set: &DaemonSet, node: &str, hash: &str) -> Pod {
    let mut pod = from_template(&set.spec.template, set);
    set_in(&mut pod.metadata.labels, REVISION_HASH, hash);
    if let Some(generation) = annotation(&set.metadata, TEMPLATE_GENERATION) {
        set_in(&mut pod.metadata.labels, "pod-template-generation", generation);
    }
    let spec = pod.spec_mut();
    spec.tolerations = Some(tolerations(spec));
    bind(&mut spec.affinity, node);
    pod
}

/// Node affinity of the DaemonSet pod for a node.
pub(super) fn affinity_for(set: &DaemonSet, node: &str) -> Option<Affinity> {
    let mut affinity = set.spec.template.spec.as_ref().and_then(|spec| spec.affinity.clone());
    bind(&mut affinity, node);
    affinity
}

/// Tolerations of the template and the defaults of every daemon pod: it stays on unhealthy nodes.
fn tolerations(spec: &PodSpec) -> Vec<Toleration> {
    let mut all = spec.tolerations.clone().unwrap_or_default();
    let mut add = |key: &str, effect: &str| {
        let toleration = Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        };
        if !all.contains(&toleration) {
            all.push(toleration);
        }
    };
    add("node.kubernetes.io/not-ready", "NoExecute");
    add("node.kubernetes.io/unreachable", "NoExecute");
    for condition in ["disk-pressure", "memory-pressure", "pid-pressure", "unschedulable"] {
        add(&format!("node.kubernetes.io/{condition}"), "NoSchedule");
    }
    if spec.host_network == Some(true) {
        add("node.kubernetes.io/network-unavailable", "NoSchedule");
    }
    all
}

fn bind(affinity: &mut Option<Affinity>, node: &str) {
    let field = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_fields: Some(vec![field.clone()]), match_expressions: None };
    let affinity: &mut Affinity = affinity.get_or_insert_default();
    let affinity: &mut NodeAffinity = affinity.node_affinity.get_or_insert_default();
    match &mut affinity.required_during_scheduling_ignored_during_execution {
        // Terms are ORed; each gets the node as well, so that its own requirements still hold.
        Some(required) if !required.node_selector_terms.is_empty() => {
            for term in &mut required.node_selector_terms {
                term.match_fields = Some(vec![field.clone()]);
            }
        }
        required => *required = Some(NodeSelector { node_selector_terms: vec![term] }),
    }
}

/// The node that a daemon pod is bound to or pinned to.
pub(super) fn target_node(pod: &Pod) -> Option<&str> {
    if !pods::node_name(pod).is_empty() {
        return Some(pods::node_name(pod));
    }
    let affinity = pods::spec(pod).affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    let mut fields = terms.iter().filter_map(|term| term.match_fields.as_ref()).flatten();
    let field = fields.find(|field| field.key == "metadata.name" && field.operator == "In")?;
    match field.values.as_deref()? {
        [node] => Some(node),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(spec: serde_json::Value) -> DaemonSet {
        let value = json!({
            "metadata": {"name": "agent", "namespace": "ns", "uid": "u"},
            "spec": {"selector": {}, "template": {"metadata": {"labels": {"app": "agent"}}, "spec": spec}},
        });
        serde_json::from_value(value).unwrap()
    }

    fn node(taints: serde_json::Value) -> Node {
        let value = json!({"metadata": {"name": "n", "labels": {"zone": "a"}}, "spec": {"taints": taints}});
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn rules() {
        let plain = json!({"containers": []});
        for (spec, taints, eligibility) in [
            (plain.clone(), json!([]), Eligibility::ShouldRun),
            (json!({"containers": [], "nodeSelector": {"zone": "b"}}), json!([]), Eligibility::Ineligible),
            (json!({"containers": [], "nodeName": "other"}), json!([]), Eligibility::Ineligible),
            (plain.clone(), json!([{"key": "k", "effect": "NoSchedule"}]), Eligibility::MayContinue),
            (plain.clone(), json!([{"key": "k", "effect": "NoExecute"}]), Eligibility::Ineligible),
            (plain.clone(), json!([{"key": "k", "effect": "PreferNoSchedule"}]), Eligibility::ShouldRun),
            (
                plain.clone(),
                json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]),
                Eligibility::ShouldRun,
            ),
            (plain, json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]), Eligibility::ShouldRun),
        ] {
            assert_eq!(
                EligibilityRules::of(&set(spec.clone())).evaluate(&node(taints.clone())),
                eligibility,
                "{spec} {taints}"
            );
        }
    }

    #[test]
    fn a_pod_names_its_node_and_keeps_what_else_was_required() {
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "Exists"}]},
        ]}}});
        for spec in [json!({"containers": []}), json!({"containers": [], "affinity": affinity})] {
            let pod = pod_for(&set(spec), "n", "h");
            assert_eq!(target_node(&pod), Some("n"));
            assert!(Requirements::of(pod.spec.as_ref().unwrap()).allows(&node(json!([]))));
        }
    }
}
