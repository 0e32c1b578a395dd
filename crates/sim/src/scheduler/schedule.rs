//! Scheduling decision: a node for a pod, or why there is none. Pure.

use super::cycle::{Cycle, Extras, Rejection, Rule, Rules, prepare};
use super::devices::Ledger;
use super::message::{Histogram, blocked, unavailable};
use super::pod::PodInfo;
use super::preempt::{Preemption, preempt};
use super::score::scores;
use super::state::{NodeId, State};
use super::topology::Spread;
use super::view::View;

/// With fewer nodes than this, all are checked.
const MIN_FEASIBLE_NODES: usize = 100;

/// Result of a scheduling cycle.
#[derive(Debug)]
pub enum Decision {
    /// The pod is assigned to a node.
    Place(NodeId, Extras),
    /// The pod is unschedulable.
    Unschedulable(Unschedulable),
}

/// Why a pod is unschedulable.
#[derive(Debug)]
pub struct Unschedulable {
    /// Message, as in events.
    pub message: String,
    /// The rules that rejected nodes; empty if there are no nodes.
    pub rules: Rules,
    /// The preemption that would make it fit.
    pub preemption: Option<Preemption>,
    /// Whether the nominated node, if any, remains.
    pub keep_nomination: bool,
}

/// Schedules a pod.
pub fn schedule(state: &mut State, ledger: &Ledger, view: &impl View, pod: &PodInfo) -> Decision {
    let soft = Spread::soft(pod, || view.siblings(pod));
    prepare(state, pod, &soft);
    let mut next = state.next;
    let decision = decide(state, ledger, view, pod, &soft, &mut next);
    state.next = next;
    decision
}

fn decide(
    state: &State,
    ledger: &Ledger,
    view: &impl View,
    pod: &PodInfo,
    soft: &[Spread],
    next: &mut usize,
) -> Decision {
    let all = state.order().len();
    if all == 0 {
        let message = "no nodes available to schedule pods".to_owned();
        return wait(message, Rules::default(), None, false);
    }
    let cycle = match Cycle::new(pod, state, view, ledger) {
        Ok(cycle) => cycle,
        Err(block) => {
            let mut unhelpful = Histogram::default();
            unhelpful.add_many("Preemption is not helpful for scheduling", all);
            let message = format!("{} preemption: {}", blocked(all, &block.reason), unavailable(all, &unhelpful));
            return wait(message, Rules::of(&[block.rule]), None, false);
        }
    };
    if let Some(id) = pod.nominated_node().and_then(|name| state.find(name))
        && let Ok(extras) = cycle.check(id)
    {
        return Decision::Place(id, extras);
    }
    let found = find(&cycle, next);
    match found.feasible.len() {
        0 => refuse(&cycle, found, view),
        1 => take(found, 0),
        _ => {
            let ids: Vec<NodeId> = found.feasible.iter().map(|(id, _)| *id).collect();
            let scores = scores(&cycle, soft, &ids);
            let best = scores.iter().copied().max().unwrap_or(0);
            take(found, scores.iter().position(|score| *score == best).unwrap_or(0))
        }
    }
}

#[derive(Default)]
struct Found {
    feasible: Vec<(NodeId, Extras)>,
    rejected: Vec<(NodeId, Rejection)>,
    /// Whether only the nodes that the pod names were checked.
    named: bool,
}

/// Filters nodes, from where the last cycle ended, until enough are feasible.
fn find(cycle: &Cycle<'_>, next: &mut usize) -> Found {
    let state = cycle.state;
    let mut found = Found::default();
    let check_node = |id: NodeId, found: &mut Found| match cycle.check(id) {
        Ok(extras) => found.feasible.push((id, extras)),
        Err(rejection) => found.rejected.push((id, rejection)),
    };
    if let Some(names) = cycle.affinity.names() {
        found.named = true;
        for id in names.into_iter().filter_map(|name| state.find(name)) {
            check_node(id, &mut found);
        }
        return found;
    }
    let order = state.order();
    let feasible_nodes_to_find = feasible_nodes_to_find(order.len());
    let start = *next % order.len();
    for at in 0..order.len() {
        check_node(order[(start + at) % order.len()], &mut found);
        if found.feasible.len() >= feasible_nodes_to_find {
            break;
        }
    }
    *next = (start + found.feasible.len() + found.rejected.len()) % order.len();
    found
}

/// Number of feasible nodes after which the search stops.
fn feasible_nodes_to_find(nodes: usize) -> usize {
    if nodes < MIN_FEASIBLE_NODES {
        return nodes;
    }
    let percent = 50_usize.saturating_sub(nodes / 125).max(5);
    (nodes * percent / 100).max(MIN_FEASIBLE_NODES)
}

fn take(mut found: Found, at: usize) -> Decision {
    let (id, extras) = found.feasible.swap_remove(at);
    Decision::Place(id, extras)
}

fn refuse(cycle: &Cycle<'_>, found: Found, view: &impl View) -> Decision {
    let all = cycle.state.order().len();
    let (mut reasons, mut rules) = (Histogram::default(), Rules::default());
    for (_, rejection) in &found.rejected {
        rules.insert(rejection.rule);
        reasons.add(rejection.reasons.iter().cloned());
    }
    if found.named {
        rules.insert(Rule::NodeAffinity);
        reasons.add_many("node(s) didn't satisfy plugin(s) [NodeAffinity]", all - found.rejected.len());
    }
    let message = unavailable(all, &reasons);
    match preempt(cycle, &found.rejected, view) {
        Ok(preemption) => {
            let node = &cycle.state.node(preemption.node).name;
            let count = preemption.victims.len();
            let hope = format!("found a potential placement for pod on node {node}, preempting {count} victims");
            wait(format!("{message} preemption: {hope}"), rules, Some(preemption), false)
        }
        Err(why) => {
            let waiting = why.starts_with("not eligible");
            wait(format!("{message} preemption: {why}"), rules, None, waiting)
        }
    }
}

fn wait(message: String, rules: Rules, preemption: Option<Preemption>, keep_nomination: bool) -> Decision {
    Decision::Unschedulable(Unschedulable { message, rules, preemption, keep_nomination })
}
