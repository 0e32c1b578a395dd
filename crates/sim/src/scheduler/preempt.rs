//! Preemption: selects lower-priority pods whose deletion makes a pod fit.

use std::cmp::Reverse;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use super::cycle::{Cycle, Rejection};
use super::message::{Histogram, unavailable};
use super::pod::PodInfo;
use super::state::NodeId;
use super::view::View;
use capstan_semantics::LabelSelector;

/// A node and the victims on it.
#[derive(Clone, Debug)]
pub struct Preemption {
    /// The node.
    pub node: NodeId,
    /// The victims, highest priority first.
    pub victims: Vec<Arc<PodInfo>>,
    violations: usize,
}

/// Selects the node with the least costly victims. The error is the reason why there is none.
pub fn preempt(cycle: &Cycle<'_>, rejected: &[(NodeId, Rejection)], view: &impl View) -> Result<Preemption, String> {
    eligible(cycle, rejected)?;
    let candidates: Vec<NodeId> = rejected.iter().filter(|(_, why)| why.resolvable).map(|(id, _)| *id).collect();
    let enough = (candidates.len() / 10).max(100).min(candidates.len());
    let mut found: Vec<Preemption> = Vec::new();
    let mut refused = Histogram::default();
    let mut checked = 0;
    for id in candidates {
        match on_node(cycle, id, view) {
            Ok(preemption) => {
                found.push(preemption);
                if found.len() >= enough && found.iter().any(|preemption| preemption.violations == 0) {
                    break;
                }
            }
            Err(reasons) => {
                refused.add(reasons);
                checked += 1;
            }
        }
    }
    let best = found.into_iter().min_by_key(|preemption| {
        let priorities = preemption.victims.iter().map(|pod| i64::from(pod.priority));
        let highest = priorities.clone().max().unwrap_or(i64::MIN);
        let sum: i64 = priorities.map(|priority| priority + i64::from(i32::MAX) + 1).sum();
        let first =
            preemption.victims.iter().filter(|pod| i64::from(pod.priority) == highest).map(|p| started(p)).min();
        (preemption.violations, highest, sum, preemption.victims.len(), Reverse(first))
    });
    best.ok_or_else(|| {
        let all = cycle.state.order().len();
        refused.add_many("Preemption is not helpful for scheduling", all - checked);
        unavailable(all, &refused)
    })
}

/// A pod that preempted others waits until they have terminated.
fn eligible(cycle: &Cycle<'_>, rejected: &[(NodeId, Rejection)]) -> Result<(), String> {
    let pod = cycle.pod;
    if pod.spec().preemption_policy.as_deref() == Some("Never") {
        return Err("not eligible due to preemptionPolicy=Never.".to_owned());
    }
    let nominated = pod.nominated_node().and_then(|name| cycle.state.find(name));
    if let Some(id) = nominated
        && rejected.iter().all(|(other, why)| *other != id || why.resolvable)
    {
        let terminating = |other: &Arc<PodInfo>| other.is_terminating() && other.priority < pod.priority;
        if cycle.state.node(id).pods.iter().any(terminating) {
            return Err("not eligible due to a terminating pod on the nominated node.".to_owned());
        }
    }
    Ok(())
}

/// Selects the victims on a node.
fn on_node(cycle: &Cycle<'_>, id: NodeId, view: &impl View) -> Result<Preemption, Vec<std::borrow::Cow<'static, str>>> {
    let state = cycle.state.node(id);
    let mut victims: Vec<&Arc<PodInfo>> = state.pods.iter().filter(|pod| pod.priority < cycle.pod.priority).collect();
    if victims.is_empty() {
        return Err(vec!["No preemption victims found for incoming pod".into()]);
    }
    let (mut node, mut cycle) = (state.clone(), cycle.clone());
    for nominated in cycle.state.nominated(&state.name) {
        if nominated.priority >= cycle.pod.priority && nominated.key != cycle.pod.key {
            node.add(nominated.clone());
            cycle.adjust(nominated, state, 1);
        }
    }
    for victim in &victims {
        node.remove(&victim.key);
        cycle.adjust(victim, state, -1);
    }
    cycle.check_on(&node).map_err(|rejection| rejection.reasons)?;
    victims.sort_by_key(|pod| (Reverse(pod.priority), started(pod)));
    let (protected, others): (Vec<_>, Vec<_>) = protect(&victims, view);
    let mut preemption = Preemption { node: id, victims: Vec::new(), violations: 0 };
    // Reprieves as many victims as possible, highest priority first.
    for (victim, violates) in protected.into_iter().map(|pod| (pod, 1)).chain(others.into_iter().map(|pod| (pod, 0))) {
        node.add(victim.clone());
        cycle.adjust(victim, state, 1);
        if cycle.check_on(&node).is_err() {
            node.remove(&victim.key);
            cycle.adjust(victim, state, -1);
            preemption.victims.push(victim.clone());
            preemption.violations += violates;
        }
    }
    preemption.victims.sort_by_key(|pod| (Reverse(pod.priority), started(pod)));
    Ok(preemption)
}

/// Splits pods by whether their eviction would violate a PodDisruptionBudget.
fn protect<'a>(pods: &[&'a Arc<PodInfo>], view: &impl View) -> (Vec<&'a Arc<PodInfo>>, Vec<&'a Arc<PodInfo>>) {
    let mut budgets: Vec<(String, Vec<Budget>)> = Vec::new();
    pods.iter().partition(|pod| {
        let namespace = pod.namespace();
        let known = budgets.iter().position(|(name, _)| name == namespace);
        let at = known.unwrap_or_else(|| {
            let all = view.disruption_budgets(namespace).iter().filter_map(|budget| Budget::new(budget)).collect();
            budgets.push((namespace.to_owned(), all));
            budgets.len() - 1
        });
        let mut violated = false;
        for budget in budgets[at].1.iter_mut().filter(|budget| budget.covers(pod)) {
            budget.left -= 1;
            violated |= budget.left < 0;
        }
        violated
    })
}

struct Budget {
    selector: LabelSelector,
    left: i32,
    disrupted: Vec<String>,
}

impl Budget {
    fn new(budget: &PodDisruptionBudget) -> Option<Self> {
        let selector = LabelSelector::new(budget.spec.as_ref()?.selector.as_ref()?);
        let status = budget.status.as_ref();
        let disrupted = status.and_then(|status| status.disrupted_pods.as_ref());
        (!selector.is_empty()).then(|| Self {
            selector,
            left: status.and_then(|status| status.disruptions_allowed).unwrap_or(0),
            disrupted: disrupted.into_iter().flatten().map(|(name, _)| name.clone()).collect(),
        })
    }

    fn covers(&self, pod: &PodInfo) -> bool {
        self.selector.matches_labels(pod.labels()) && !self.disrupted.iter().any(|name| name == pod.name())
    }
}

/// Start time of a pod; one without counts as new.
fn started(pod: &PodInfo) -> Timestamp {
    let time = pod.pod.status.as_ref().and_then(|status| status.start_time.as_ref());
    time.map_or(Timestamp::MAX, |time| time.0)
}
