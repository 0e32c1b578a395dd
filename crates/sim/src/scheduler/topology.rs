//! Inter-pod constraints: topology spread, pod affinity and anti-affinity.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::TopologySpreadConstraint;

use super::counts::{Counted, PerNode};
use super::pod::{PodInfo, Term};
use super::state::{NodeId, NodeState, State};
use capstan_semantics::LabelSelector;
use capstan_semantics::node_selector::NodeAffinity;
use capstan_semantics::taints::untolerated;

/// Topology key with one domain per node.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// Topology key of zones.
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// Number of pods in each topology domain.
pub type Domains<'a> = HashMap<&'a str, i64>;

/// A topology spread constraint.
#[derive(Clone, Debug)]
pub struct Spread {
    /// `maxSkew`.
    pub max_skew: i64,
    /// Topology key.
    pub key: String,
    /// The pods to spread.
    pub counted: Counted,
    /// `minDomains`: with fewer domains, the global minimum is 0.
    pub min_domains: i64,
    /// Whether the pod matches its own selector.
    own: bool,
    honor_affinity: bool,
    honor_taints: bool,
}

impl Spread {
    fn new(constraint: &TopologySpreadConstraint, pod: &PodInfo) -> Self {
        let mut selector = constraint.label_selector.as_ref().map(LabelSelector::new);
        for key in constraint.match_label_keys.iter().flatten() {
            if let (Some(mine), Some(value)) = (&mut selector, pod.labels().and_then(|labels| labels.get(key))) {
                *mine = std::mem::take(mine).and(LabelSelector::of_labels([(key, value)]));
            }
        }
        let policy = |policy: &Option<String>, default: bool| policy.as_deref().map_or(default, |p| p == "Honor");
        Self {
            max_skew: i64::from(constraint.max_skew),
            key: constraint.topology_key.clone(),
            own: selector.as_ref().is_some_and(|selector| selector.matches_labels(pod.labels())),
            counted: Self::counted(pod, selector.unwrap_or_default()),
            min_domains: i64::from(constraint.min_domains.unwrap_or(1)),
            honor_affinity: policy(&constraint.node_affinity_policy, true),
            honor_taints: policy(&constraint.node_taints_policy, false),
        }
    }

    fn counted(pod: &PodInfo, selector: LabelSelector) -> Counted {
        Counted { namespaces: Some(vec![pod.namespace().to_owned()]), selector, terminating: false }
    }

    /// The `DoNotSchedule` constraints of a pod.
    pub fn hard(pod: &PodInfo) -> Vec<Self> {
        Self::with_action(pod, "DoNotSchedule")
    }

    /// The `ScheduleAnyway` constraints of a pod; without any constraints, the defaults spread its siblings.
    pub fn soft(pod: &PodInfo, siblings: impl FnOnce() -> Option<LabelSelector>) -> Vec<Self> {
        if pod.spec().topology_spread_constraints.as_ref().is_some_and(|all| !all.is_empty()) {
            return Self::with_action(pod, "ScheduleAnyway");
        }
        let Some(selector) = siblings() else { return Vec::new() };
        let default = |key: &str, max_skew| Self {
            max_skew,
            key: key.to_owned(),
            counted: Self::counted(pod, selector.clone()),
            min_domains: 1,
            own: true,
            honor_affinity: true,
            honor_taints: false,
        };
        vec![default(HOSTNAME, 3), default(ZONE, 5)]
    }

    fn with_action(pod: &PodInfo, action: &str) -> Vec<Self> {
        let all = pod.spec().topology_spread_constraints.iter().flatten();
        all.filter(|constraint| constraint.when_unsatisfiable == action).map(|c| Self::new(c, pod)).collect()
    }

    /// Whether the pods of a node count.
    pub fn includes(&self, node: &NodeState, pod: &PodInfo, affinity: &NodeAffinity) -> bool {
        let Some(object) = &node.node else { return false };
        let taints = object.spec.as_ref().and_then(|spec| spec.taints.as_ref());
        (!self.honor_affinity || affinity.is_empty() || affinity.allows(object))
            && (!self.honor_taints || untolerated(taints, pod.spec().tolerations.as_ref()).is_none())
    }

    /// Whether a pod matches. As in Kubernetes, a constraint without selector matches none.
    pub fn covers(&self, pod: &PodInfo) -> bool {
        !self.counted.selector.is_empty() && !pod.is_terminating() && self.counted.selector.matches_labels(pod.labels())
    }
}

/// The hard constraints of a pod, with counts.
#[derive(Clone, Debug, Default)]
pub struct HardSpread<'a> {
    constraints: Vec<(Spread, Domains<'a>, i64)>,
}

impl<'a> HardSpread<'a> {
    /// Counts the pods of each domain.
    pub fn new(constraints: Vec<Spread>, state: &'a State, pod: &PodInfo, affinity: &NodeAffinity) -> Self {
        let mut domains: Vec<Domains<'a>> = vec![Domains::new(); constraints.len()];
        let counts: Vec<Option<&PerNode>> = constraints.iter().map(|c| state.counters.get(&c.counted)).collect();
        if !constraints.is_empty() {
            for id in state.order() {
                let node = state.node(*id);
                if constraints.iter().any(|constraint| node.label(&constraint.key).is_none()) {
                    continue;
                }
                for (at, constraint) in constraints.iter().enumerate() {
                    let value = node.label(&constraint.key).unwrap_or_default();
                    if constraint.includes(node, pod, affinity) {
                        let empty = constraint.counted.selector.is_empty();
                        let count = counts[at].and_then(|nodes| nodes.get(id)).filter(|_| !empty).copied().unwrap_or(0);
                        *domains[at].entry(value).or_default() += i64::from(count);
                    }
                }
            }
        }
        let constraints = constraints.into_iter().zip(domains).map(|(constraint, domains)| {
            let least = least(&constraint, &domains);
            (constraint, domains, least)
        });
        Self { constraints: constraints.collect() }
    }

    /// Whether there are no constraints.
    pub fn is_empty(&self) -> bool {
        self.constraints.is_empty()
    }

    /// Whether the pod may run on a node.
    pub fn check(&self, node: &NodeState) -> Result<(), SpreadFailure> {
        for (constraint, domains, least) in &self.constraints {
            let Some(value) = node.label(&constraint.key) else { return Err(SpreadFailure::Label) };
            let count = domains.get(value).copied().unwrap_or(0);
            if count + i64::from(constraint.own) - least > constraint.max_skew {
                return Err(SpreadFailure::Skew);
            }
        }
        Ok(())
    }

    /// Simulates that a pod was added to a node (1) or removed from it (-1).
    pub fn adjust(&mut self, other: &PodInfo, node: &'a NodeState, pod: &PodInfo, affinity: &NodeAffinity, by: i64) {
        let labelled = self.constraints.iter().all(|(constraint, ..)| node.label(&constraint.key).is_some());
        if other.namespace() != pod.namespace() || !labelled {
            return;
        }
        for (constraint, domains, smallest) in &mut self.constraints {
            if let Some(value) = node.label(&constraint.key)
                && constraint.covers(other)
                && constraint.includes(node, pod, affinity)
            {
                *domains.entry(value).or_default() += by;
                *smallest = least(constraint, domains);
            }
        }
    }
}

fn least(constraint: &Spread, domains: &Domains<'_>) -> i64 {
    if (domains.len() as i64) < constraint.min_domains {
        return 0;
    }
    domains.values().copied().min().unwrap_or(i64::MAX)
}

/// Why topology spread rejects a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpreadFailure {
    /// The node lacks the topology key.
    Label,
    /// `maxSkew` would be exceeded.
    Skew,
}

/// Why inter-pod affinity rejects a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AffinityFailure {
    /// The pod's required affinity is not met.
    Required,
    /// The pod's anti-affinity is violated.
    Anti,
    /// The anti-affinity of a scheduled pod is violated.
    Existing,
}

/// Required affinity and anti-affinity that apply to a pod, with counts.
#[derive(Clone, Debug, Default)]
pub struct HardAffinity<'a> {
    near: Vec<(String, Domains<'a>)>,
    far: Vec<(String, Domains<'a>)>,
    forbidden: HashMap<&'a str, Domains<'a>>,
    /// Whether the pod matches its own affinity terms.
    matches_itself: bool,
}

/// The pods that match all required affinity terms of a pod; `None` if there are no terms.
pub fn required_affinity_pods(pod: &PodInfo, state: &State) -> Option<Counted> {
    let terms = &pod.affinity.as_ref()?.required;
    let mut all: Option<Counted> = None;
    for term in terms {
        let next = matching_pods(term, state)?;
        all = Some(match all {
            None => next,
            Some(before) => Counted {
                namespaces: match (before.namespaces, next.namespaces) {
                    (Some(mine), Some(theirs)) => Some(mine.into_iter().filter(|n| theirs.contains(n)).collect()),
                    (one, other) => one.or(other),
                },
                selector: before.selector.and(next.selector),
                terminating: true,
            },
        });
    }
    all
}

/// The pods that match a term; `None` if it matches none.
pub fn matching_pods(term: &Term, state: &State) -> Option<Counted> {
    let selector = term.selector.clone()?;
    let namespaces = match &term.namespace_selector {
        Some(all) if all.is_empty() => None,
        _ => {
            let selected = state.namespaces().filter(|(name, labels)| term.in_namespace(name, Some(labels)));
            let mut names: Vec<String> = selected.map(|(name, _)| name.clone()).collect();
            names.extend(term.namespaces.iter().cloned());
            names.sort_unstable();
            names.dedup();
            Some(names)
        }
    };
    Some(Counted { namespaces, selector, terminating: true })
}

impl<'a> HardAffinity<'a> {
    /// Counts the pods of each domain. A pod that names its nodes, as DaemonSet pods do, needs no counts of others.
    pub fn new(pod: &PodInfo, state: &'a State, affinity: &NodeAffinity) -> Self {
        let named = affinity.names();
        let named: Option<Vec<NodeId>> = named.map(|names| names.into_iter().filter_map(|n| state.find(n)).collect());
        let domains_of = |nodes: Option<&PerNode>, key: &str| match &named {
            Some(named) if key == HOSTNAME => {
                let counts = named.iter().filter_map(|id| Some((*id, i64::from(*nodes?.get(id)?))));
                per_domain(counts, key, state)
            }
            _ => domains(nodes, key, state),
        };
        let labels = state.namespace_labels(pod.namespace());
        let mut all = Self::default();
        if let Some(affinity) = &pod.affinity {
            let near = required_affinity_pods(pod, state);
            let near = near.as_ref().and_then(|counted| state.counters.get(counted));
            for term in &affinity.required {
                all.near.push((term.topology_key.clone(), domains(near, &term.topology_key, state)));
            }
            all.matches_itself =
                affinity.required.iter().all(|term| term.matches(pod.namespace(), labels, pod.labels()));
            for term in &affinity.anti {
                let counted = matching_pods(term, state);
                let counts = counted.as_ref().and_then(|counted| state.counters.get(counted));
                all.far.push((term.topology_key.clone(), domains_of(counts, &term.topology_key)));
            }
        }
        for (term, nodes) in &state.terms.anti {
            if term.matches(pod.namespace(), labels, pod.labels()) {
                let forbidden = all.forbidden.entry(term.topology_key.as_str()).or_default();
                for (value, count) in domains_of(Some(nodes), &term.topology_key) {
                    *forbidden.entry(value).or_default() += count;
                }
            }
        }
        all
    }

    /// Whether there are no constraints.
    pub fn is_empty(&self) -> bool {
        self.near.is_empty() && self.far.is_empty() && self.forbidden.is_empty()
    }

    /// Whether the pod may run on a node.
    pub fn check(&self, node: &NodeState) -> Result<(), AffinityFailure> {
        let count = |key: &str, domains: &Domains<'_>| Some(domains.get(node.label(key)?).copied().unwrap_or(0));
        let mut company = true;
        for (key, domains) in &self.near {
            match count(key, domains) {
                None => return Err(AffinityFailure::Required),
                Some(count) => company &= count > 0,
            }
        }
        // The first pod of a group with affinity to itself has no match yet.
        let alone = self.near.iter().all(|(_, domains)| domains.values().all(|count| *count <= 0));
        if !(company || alone && self.matches_itself) {
            return Err(AffinityFailure::Required);
        }
        let near = |(key, domains): (&str, &Domains<'_>)| count(key, domains).is_some_and(|count| count > 0);
        if self.far.iter().any(|(key, domains)| near((key, domains))) {
            return Err(AffinityFailure::Anti);
        }
        if self.forbidden.iter().any(|(key, domains)| near((key, domains))) {
            return Err(AffinityFailure::Existing);
        }
        Ok(())
    }

    /// Simulates that a pod was added to a node (1) or removed from it (-1).
    pub fn adjust(&mut self, other: &'a PodInfo, node: &'a NodeState, pod: &PodInfo, state: &State, by: i64) {
        let other_labels = state.namespace_labels(other.namespace());
        let matching_pods = |term: &Term| term.matches(other.namespace(), other_labels, other.labels());
        if let Some(affinity) = &pod.affinity {
            if affinity.required.iter().all(|term| matching_pods(term)) {
                self.near.iter_mut().for_each(|(key, domains)| shift(domains, node.label(key), by));
            }
            for (term, (key, domains)) in affinity.anti.iter().zip(&mut self.far) {
                if matching_pods(term) {
                    shift(domains, node.label(key), by);
                }
            }
        }
        let labels = state.namespace_labels(pod.namespace());
        for term in other.affinity.iter().flat_map(|affinity| &affinity.anti) {
            if term.matches(pod.namespace(), labels, pod.labels()) {
                let domains = self.forbidden.entry(term.topology_key.as_str()).or_default();
                shift(domains, node.label(&term.topology_key), by);
            }
        }
    }
}

fn shift<'a>(domains: &mut Domains<'a>, value: Option<&'a str>, by: i64) {
    if let Some(value) = value {
        *domains.entry(value).or_default() += by;
    }
}

/// Sums counts per node to counts per domain.
pub fn domains<'a>(nodes: Option<&PerNode>, key: &str, state: &'a State) -> Domains<'a> {
    per_domain(nodes.into_iter().flatten().map(|(id, count)| (*id, i64::from(*count))), key, state)
}

fn per_domain<'a>(counts: impl Iterator<Item = (NodeId, i64)>, key: &str, state: &'a State) -> Domains<'a> {
    let mut domains = Domains::new();
    for (id, count) in counts {
        if let Some(value) = state.node(id).label(key) {
            *domains.entry(value).or_default() += count;
        }
    }
    domains
}
