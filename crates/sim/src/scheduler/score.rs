//! Scoring: ranks feasible nodes by free resources, balance, preferences of the pod, and spreading.

use super::counts::PerNode;
use super::cycle::Cycle;
use super::state::{NodeId, NodeState};
use super::topology::{Domains, HOSTNAME, Spread, domains, matching_pods};
use capstan_semantics::taints::count_intolerable_prefer_no_schedule;

/// Maximum score of a plugin.
const MAX_SCORE: i64 = 100;

/// Scores of nodes, in the same order; higher is better.
pub fn scores(cycle: &Cycle<'_>, soft: &[Spread], nodes: &[NodeId]) -> Vec<i64> {
    let states: Vec<&NodeState> = nodes.iter().map(|id| cycle.state.node(*id)).collect();
    let mut total: Vec<i64> =
        states.iter().map(|node| least_allocated(cycle, node) + balanced_allocation(cycle, node)).collect();
    let mut add = |weight: i64, scores: Vec<i64>| {
        for (sum, score) in total.iter_mut().zip(scores) {
            *sum += weight * score;
        }
    };
    if let Some(scores) = taints(cycle, &states) {
        add(3, scores);
    }
    if !cycle.affinity.preferred.is_empty() {
        let preferred = states.iter().map(|node| node.node.as_ref().map_or(0, |node| cycle.affinity.score(node)));
        add(2, normalize(preferred.collect(), false));
    }
    if !soft.is_empty() {
        add(2, spread(cycle, soft, nodes, &states));
    }
    if let Some(scores) = pod_affinity(cycle, &states) {
        add(2, scores);
    }
    total
}

/// Free resources after placement, in percent of allocatable.
fn least_allocated(cycle: &Cycle<'_>, node: &NodeState) -> i64 {
    let requests = &cycle.pod.requests;
    let parts = [
        (node.assumed_milli_cpu + requests.assumed_milli_cpu, node.allocatable.milli_cpu),
        (node.assumed_memory + requests.assumed_memory, node.allocatable.memory),
    ];
    let known = parts.iter().filter(|(_, capacity)| *capacity > 0);
    let left =
        known.clone().map(|(used, capacity)| ((capacity - used).max(0) as i128 * 100 / *capacity as i128) as i64);
    let count = known.count() as i64;
    if count == 0 { 0 } else { left.sum::<i64>() / count }
}

/// How evenly CPU and memory would be used, compared to before.
fn balanced_allocation(cycle: &Cycle<'_>, node: &NodeState) -> i64 {
    let requests = &cycle.pod.requests.exact;
    if requests.milli_cpu == 0 && requests.memory == 0 {
        return 0;
    }
    let balance = |cpu: i64, memory: i64| {
        let fraction = |used: i64, capacity: i64| (used as f64 / capacity as f64).min(1.0);
        if node.allocatable.milli_cpu == 0 || node.allocatable.memory == 0 {
            return MAX_SCORE;
        }
        let difference = fraction(cpu, node.allocatable.milli_cpu) - fraction(memory, node.allocatable.memory);
        ((1.0 - (difference / 2.0).abs()) * MAX_SCORE as f64) as i64
    };
    let before = balance(node.requested.milli_cpu, node.requested.memory);
    let after = balance(node.requested.milli_cpu + requests.milli_cpu, node.requested.memory + requests.memory);
    MAX_SCORE / 2 + (MAX_SCORE / 2 + after - before) / 2
}

fn taints(cycle: &Cycle<'_>, nodes: &[&NodeState]) -> Option<Vec<i64>> {
    let tolerations = cycle.pod.spec().tolerations.as_ref();
    let counts: Vec<i64> = nodes
        .iter()
        .map(|node| {
            let spec = node.node.as_ref().and_then(|node| node.spec.as_ref());
            count_intolerable_prefer_no_schedule(spec.and_then(|spec| spec.taints.as_ref()), tolerations)
        })
        .collect();
    counts.iter().any(|count| *count > 0).then(|| normalize(counts, true))
}

/// Normalizes scores to 0..=100. Reversed: the lowest is best.
fn normalize(mut scores: Vec<i64>, reverse: bool) -> Vec<i64> {
    let most = scores.iter().copied().max().unwrap_or(0);
    for score in &mut scores {
        let scaled = if most == 0 { 0 } else { MAX_SCORE * *score / most };
        *score = if reverse { MAX_SCORE - scaled } else { scaled };
    }
    scores
}

/// Topology spread score: fewer matching pods are better.
fn spread(cycle: &Cycle<'_>, soft: &[Spread], ids: &[NodeId], nodes: &[&NodeState]) -> Vec<i64> {
    // Nodes without a topology key of the pod's own constraints are not scored; the default constraints score every
    // node.
    let own = cycle.pod.spec().topology_spread_constraints.as_ref().is_some_and(|all| !all.is_empty());
    let labelled = |node: &NodeState| !own || soft.iter().all(|constraint| node.label(&constraint.key).is_some());
    let scored: Vec<bool> = nodes.iter().map(|node| labelled(node)).collect();
    let mut sums = vec![0.0; nodes.len()];
    for constraint in soft {
        let counts = cycle.state.counters.get(&constraint.counted);
        let counts = counts.filter(|_| !constraint.counted.selector.is_empty());
        if constraint.key == HOSTNAME {
            let size = scored.iter().filter(|scored| **scored).count();
            let weight = ((size + 2) as f64).ln();
            for (at, id) in ids.iter().enumerate().filter(|(at, _)| scored[*at]) {
                let count = counts.and_then(|counts| counts.get(id)).copied().unwrap_or(0);
                sums[at] += f64::from(count) * weight + (constraint.max_skew - 1) as f64;
            }
            continue;
        }
        let domains = counted_domains(cycle, constraint, counts, &labelled);
        let mut topology_values: Vec<&str> = nodes.iter().filter_map(|node| node.label(&constraint.key)).collect();
        topology_values.sort_unstable();
        topology_values.dedup();
        let weight = ((topology_values.len() + 2) as f64).ln();
        for (at, node) in nodes.iter().enumerate().filter(|(at, _)| scored[*at]) {
            if let Some(value) = node.label(&constraint.key) {
                let count = domains.get(value).copied().unwrap_or(0);
                sums[at] += count as f64 * weight + (constraint.max_skew - 1) as f64;
            }
        }
    }
    let rounded: Vec<i64> = sums.iter().map(|sum| sum.round() as i64).collect();
    let of_scored = || rounded.iter().zip(&scored).filter(|(_, scored)| **scored).map(|(sum, _)| *sum);
    let (least, most) = (of_scored().min().unwrap_or(0), of_scored().max().unwrap_or(0));
    let score = |sum: i64| if most == 0 { MAX_SCORE } else { MAX_SCORE * (most + least - sum) / most };
    rounded.iter().zip(&scored).map(|(sum, scored)| if *scored { score(*sum) } else { 0 }).collect()
}

fn counted_domains<'a>(
    cycle: &Cycle<'a>,
    constraint: &Spread,
    counts: Option<&PerNode>,
    labelled: &impl Fn(&NodeState) -> bool,
) -> Domains<'a> {
    let mut domains = Domains::new();
    for (id, count) in counts.into_iter().flatten() {
        let node = cycle.state.node(*id);
        if let Some(value) = node.label(&constraint.key)
            && labelled(node)
            && constraint.includes(node, cycle.pod, &cycle.affinity)
        {
            *domains.entry(value).or_default() += i64::from(*count);
        }
    }
    domains
}

/// Score of preferred pod affinity, in both directions. `None` if no term applies.
fn pod_affinity(cycle: &Cycle<'_>, nodes: &[&NodeState]) -> Option<Vec<i64>> {
    let (pod, state) = (cycle.pod, cycle.state);
    let mut sums = vec![0; nodes.len()];
    let mut any = false;
    let mut add = |weight: i64, key: &str, domains: Domains<'_>| {
        any |= !domains.is_empty();
        for (sum, node) in sums.iter_mut().zip(nodes) {
            if let Some(count) = node.label(key).and_then(|value| domains.get(value)) {
                *sum += weight * count;
            }
        }
    };
    for (weight, term) in pod.affinity.iter().flat_map(|affinity| &affinity.preferred) {
        let counted = matching_pods(term, state);
        let counts = counted.as_ref().and_then(|counted| state.counters.get(counted));
        add(*weight, &term.topology_key, domains(counts, &term.topology_key, state));
    }
    let labels = state.namespace_labels(pod.namespace());
    for ((weight, term), counts) in &state.terms.preferred {
        if term.matches(pod.namespace(), labels, pod.labels()) {
            add(*weight, &term.topology_key, domains(Some(counts), &term.topology_key, state));
        }
    }
    if !any {
        return None;
    }
    let (least, most) = (sums.iter().copied().min()?, sums.iter().copied().max()?);
    let scale = |sum: i64| {
        if most > least { (MAX_SCORE as f64 * (sum - least) as f64 / (most - least) as f64) as i64 } else { 0 }
    };
    Some(sums.into_iter().map(scale).collect())
}
