//! Scheduling cycle of one pod: constraints are computed once, then checked node by node.
//!
//! Pure: the same state, view and pod give the same result. The checks have the order of kube-scheduler, as the first
//! one that fails determines the reason.

use std::borrow::Cow;
use std::sync::Arc;

use super::devices::{Allocation, Devices, Ledger};
use super::pod::PodInfo;
use super::resources::Resources;
use super::state::{NodeId, NodeState, State};
use super::topology::{
    AffinityFailure, HardAffinity, HardSpread, Spread, SpreadFailure, matching_pods, required_affinity_pods,
};
use super::view::View;
use super::volumes::{Choice, VolumeFailure, Volumes};
use capstan_semantics::node_selector::NodeAffinity;
use capstan_semantics::taints::{tolerates, untolerated};

/// A filter plugin, named as in kube-scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Rule {
    NodeName,
    NodeUnschedulable,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    VolumeRestrictions,
    VolumeBinding,
    VolumeZone,
    PodTopologySpread,
    InterPodAffinity,
    DynamicResources,
}

/// A set of rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rules(u16);

impl Rules {
    /// Every rule.
    pub const ALL: Self = Self(u16::MAX);

    /// These rules.
    pub const fn of(rules: &[Rule]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < rules.len() {
            bits |= 1 << rules[at] as u16;
            at += 1;
        }
        Self(bits)
    }

    /// Adds a rule.
    pub fn insert(&mut self, rule: Rule) {
        self.0 |= 1 << rule as u16;
    }

    /// Whether both have a rule in common.
    pub fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Why a node is filtered out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The rule.
    pub rule: Rule,
    /// Reasons, as in events.
    pub reasons: Vec<Cow<'static, str>>,
    /// Whether preemption could help.
    pub resolvable: bool,
}

impl Rejection {
    fn new(rule: Rule, reason: impl Into<Cow<'static, str>>, resolvable: bool) -> Self {
        Self { rule, reasons: vec![reason.into()], resolvable }
    }
}

/// Why a pod cannot run on any node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The rule.
    pub rule: Rule,
    /// Reason, as in events.
    pub reason: String,
}

/// What a pod gets on a node besides resources.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// Volumes of unbound claims.
    pub volumes: Vec<(Arc<str>, Choice)>,
    /// Devices of unallocated claims.
    pub devices: Vec<Allocation>,
}

/// Constraints of a pod.
#[derive(Clone, Debug)]
pub struct Cycle<'a> {
    /// The pod.
    pub pod: &'a PodInfo,
    /// The cluster.
    pub state: &'a State,
    /// Required and preferred node affinity.
    pub affinity: NodeAffinity,
    spread: HardSpread<'a>,
    others: HardAffinity<'a>,
    volumes: Volumes,
    devices: Option<Arc<Devices<'a>>>,
}

/// Ensures the counters that a cycle of the pod reads.
pub fn prepare(state: &mut State, pod: &PodInfo, soft: &[Spread]) {
    let mut wanted: Vec<_> = Spread::hard(pod).into_iter().map(|spread| spread.counted).collect();
    wanted.extend(soft.iter().map(|spread| spread.counted.clone()));
    if let Some(affinity) = &pod.affinity {
        wanted.extend(required_affinity_pods(pod, state));
        let terms = affinity.anti.iter().chain(affinity.preferred.iter().map(|(_, term)| term));
        wanted.extend(terms.filter_map(|term| matching_pods(term, state)));
    }
    for counted in wanted {
        let mut counters = std::mem::take(&mut state.counters);
        counters.ensure(&counted, state.pods());
        state.counters = counters;
    }
}

impl<'a> Cycle<'a> {
    /// Computes the constraints. Call [`prepare`] first.
    pub fn new(pod: &'a PodInfo, state: &'a State, view: &impl View, ledger: &'a Ledger) -> Result<Self, Blocked> {
        let affinity = NodeAffinity::of(pod.spec());
        let volumes = Volumes::new(pod, state, view).map_err(|reason| Blocked { rule: Rule::VolumeBinding, reason })?;
        let devices =
            Devices::new(pod, view, ledger).map_err(|reason| Blocked { rule: Rule::DynamicResources, reason })?;
        let spread = HardSpread::new(Spread::hard(pod), state, pod, &affinity);
        let others = HardAffinity::new(pod, state, &affinity);
        Ok(Self { pod, state, affinity, spread, others, volumes, devices: devices.map(Arc::new) })
    }

    /// Whether the pod fits on a node, also with the pods that are nominated to it.
    pub fn check(&self, id: NodeId) -> Result<Extras, Rejection> {
        let node = self.state.node(id);
        if self.state.has_nominated() {
            let nominated = self.state.nominated(&node.name).iter();
            let coming = nominated.filter(|p| p.priority >= self.pod.priority && p.key != self.pod.key);
            if coming.clone().next().is_some() {
                let mut crowded = node.clone();
                let mut cycle = self.clone();
                for pod in coming {
                    crowded.add(pod.clone());
                    cycle.adjust(pod, node, 1);
                }
                cycle.check_on(&crowded)?;
            }
        }
        self.check_on(node)
    }

    /// Whether the pod fits on a node in the given state.
    pub fn check_on(&self, node: &NodeState) -> Result<Extras, Rejection> {
        self.check_node(node)?;
        self.check_resources(node)?;
        let volumes = self.check_volumes(node)?;
        self.check_pod_constraints(node)?;
        let devices = match &self.devices {
            None => Vec::new(),
            Some(devices) => {
                devices.allocate(node).map_err(|reason| Rejection::new(Rule::DynamicResources, reason, false))?
            }
        };
        Ok(Extras { volumes, devices })
    }

    /// Checks that depend on the node alone.
    fn check_node(&self, node: &NodeState) -> Result<(), Rejection> {
        let spec = self.pod.spec();
        if spec.node_name.as_deref().is_some_and(|name| !name.is_empty() && name != &*node.name) {
            return Err(Rejection::new(Rule::NodeName, "node(s) didn't match the requested node name", false));
        }
        let Some(object) = &node.node else {
            return Err(Rejection::new(Rule::NodeName, "node(s) didn't match the requested node name", false));
        };
        let node_spec = object.spec.as_ref();
        if node_spec.is_some_and(|spec| spec.unschedulable == Some(true)) && !tolerates_unschedulable(self.pod) {
            return Err(Rejection::new(Rule::NodeUnschedulable, "node(s) were unschedulable", false));
        }
        let taints = node_spec.and_then(|spec| spec.taints.as_ref());
        if untolerated(taints, spec.tolerations.as_ref()).is_some() {
            return Err(Rejection::new(Rule::TaintToleration, "node(s) had untolerated taint(s)", false));
        }
        if !self.affinity.is_empty() && !self.affinity.allows(object) {
            let reason = "node(s) didn't match Pod's node affinity/selector";
            return Err(Rejection::new(Rule::NodeAffinity, reason, false));
        }
        Ok(())
    }

    fn check_resources(&self, node: &NodeState) -> Result<(), Rejection> {
        if !self.pod.ports.is_empty() && node.has_ports(&self.pod.ports) {
            let reason = "node(s) didn't have free ports for the requested pod ports";
            return Err(Rejection::new(Rule::NodePorts, reason, true));
        }
        let insufficient = insufficient(&self.pod.requests.exact, node);
        if insufficient.is_empty() {
            return Ok(());
        }
        let resolvable = insufficient.iter().all(|lack| lack.requested <= lack.capacity || &*lack.name == "pods");
        Err(Rejection {
            rule: Rule::NodeResourcesFit,
            reasons: insufficient.iter().map(InsufficientResource::reason).collect(),
            resolvable,
        })
    }

    fn check_volumes(&self, node: &NodeState) -> Result<Vec<(Arc<str>, Choice)>, Rejection> {
        if self.volumes.is_empty() {
            return Ok(Vec::new());
        }
        if self.volumes.in_use() {
            return Err(Rejection::new(Rule::VolumeRestrictions, VolumeFailure::InUse.message(), true));
        }
        self.volumes.choose(node).map_err(|failures| {
            let zone = failures.iter().all(|failure| *failure == VolumeFailure::Zone);
            let rule = if zone { Rule::VolumeZone } else { Rule::VolumeBinding };
            let failures = failures.iter().filter(|failure| zone || **failure != VolumeFailure::Zone);
            Rejection { rule, reasons: failures.map(|f| f.message().into()).collect(), resolvable: false }
        })
    }

    fn check_pod_constraints(&self, node: &NodeState) -> Result<(), Rejection> {
        if !self.spread.is_empty() {
            self.spread.check(node).map_err(|failure| {
                let (reason, resolvable) = match failure {
                    SpreadFailure::Label => {
                        ("node(s) didn't match pod topology spread constraints (missing required label)", false)
                    }
                    SpreadFailure::Skew => ("node(s) didn't match pod topology spread constraints", true),
                };
                Rejection::new(Rule::PodTopologySpread, reason, resolvable)
            })?;
        }
        if !self.others.is_empty() {
            self.others.check(node).map_err(|failure| {
                let (reason, resolvable) = match failure {
                    AffinityFailure::Required => ("node(s) didn't match pod affinity rules", false),
                    AffinityFailure::Anti => ("node(s) didn't match pod anti-affinity rules", true),
                    AffinityFailure::Existing => ("node(s) didn't satisfy existing pods anti-affinity rules", true),
                };
                Rejection::new(Rule::InterPodAffinity, reason, resolvable)
            })?;
        }
        Ok(())
    }

    /// Simulates that a pod was added to a node (1) or removed from it (-1), for everything except resources.
    pub fn adjust(&mut self, other: &'a PodInfo, node: &'a NodeState, by: i64) {
        if !self.spread.is_empty() {
            self.spread.adjust(other, node, self.pod, &self.affinity, by);
        }
        self.others.adjust(other, node, self.pod, self.state, by);
    }
}

/// A resource that is insufficient on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InsufficientResource {
    /// The resource.
    pub name: Arc<str>,
    /// Request of the pod.
    pub requested: i64,
    /// Used by other pods.
    pub used: i64,
    /// Allocatable.
    pub capacity: i64,
}

impl InsufficientResource {
    fn reason(&self) -> Cow<'static, str> {
        match &*self.name {
            "pods" => "Too many pods".into(),
            "cpu" => "Insufficient cpu".into(),
            "memory" => "Insufficient memory".into(),
            "ephemeral-storage" => "Insufficient ephemeral-storage".into(),
            name => format!("Insufficient {name}").into(),
        }
    }
}

/// Resources that are insufficient on a node for a pod.
pub fn insufficient(requests: &Resources, node: &NodeState) -> Vec<InsufficientResource> {
    let pods = (node.pods.len() as i64, node.max_pods);
    insufficient_of(requests, &node.requested, &node.allocatable, pods)
}

/// Insufficient resources; `pods` has the number of pods and its maximum.
pub fn insufficient_of(
    requests: &Resources,
    used: &Resources,
    have: &Resources,
    pods: (i64, i64),
) -> Vec<InsufficientResource> {
    let mut insufficient = Vec::new();
    let mut check = |name: &dyn Fn() -> Arc<str>, requested: i64, used: i64, capacity: i64| {
        if requested > 0 && requested > capacity - used {
            insufficient.push(InsufficientResource { name: name(), requested, used, capacity });
        }
    };
    check(&|| "pods".into(), 1, pods.0, pods.1);
    check(&|| "cpu".into(), requests.milli_cpu, used.milli_cpu, have.milli_cpu);
    check(&|| "memory".into(), requests.memory, used.memory, have.memory);
    let storage = |amounts: &Resources| amounts.ephemeral_storage;
    check(&|| "ephemeral-storage".into(), storage(requests), storage(used), storage(have));
    for (name, amount) in &requests.others {
        check(&|| name.clone(), *amount, used.get(name), have.get(name));
    }
    insufficient
}

fn tolerates_unschedulable(pod: &PodInfo) -> bool {
    let taint = k8s_openapi::api::core::v1::Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Default::default()
    };
    pod.spec().tolerations.iter().flatten().any(|toleration| tolerates(toleration, &taint))
}
