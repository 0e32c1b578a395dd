//! GPU nodes by progress, computed by the operator's own code.

use std::collections::BTreeMap;

use capstan_api::gpu::{ClusterPolicy, GpuCluster, NvidiaDriver};
use capstan_operands::gpu::nodes::ready::{Phase, Progress};
use capstan_operands::gpu::nodes::{Evidence, FINALIZER, Node, Wanted, faults, has_gpu, keys, progress};
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::snapshot::Snapshot;

/// Number of example nodes that are not ready.
const EXAMPLES: usize = 5;
/// Labels of driver pods and of validator pods.
const DRIVERS: (&str, &[&str]) = ("app.kubernetes.io/component", &["nvidia-driver", "nvidia-vgpu-host-manager"]);
const VALIDATORS: (&str, &[&str]) =
    ("app", &["nvidia-operator-validator", "nvidia-sandbox-validator", "nvidia-dra-validator"]);

/// GPU nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Nodes {
    /// All GPU nodes that are not excluded.
    pub total: usize,
    /// Nodes with usable GPUs.
    pub working: usize,
    /// Number of nodes waiting in each phase, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseCount>,
    /// Examples of waiting nodes, those furthest behind first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingNode>,
    /// Phase durations of ready nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub times: Vec<PhaseDuration>,
    /// Allocatable GPUs, by resource.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub offered: BTreeMap<String, u64>,
}

/// Number of nodes waiting in a phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PhaseCount {
    /// The phase.
    pub phase: &'static str,
    /// Number of nodes.
    pub nodes: usize,
}

/// A waiting node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WaitingNode {
    /// The name of the node.
    pub name: String,
    /// The phase that it waits in.
    pub phase: &'static str,
    /// Waiting time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<i64>,
    /// The reason.
    pub why: String,
}

/// Duration of a phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PhaseDuration {
    /// The phase.
    pub phase: &'static str,
    /// Median.
    pub median_seconds: i64,
    /// Maximum.
    pub longest_seconds: i64,
}

pub(super) fn of(snapshot: &Snapshot) -> Nodes {
    // Without these custom resources, GPUs are not managed by this operator.
    if ["ClusterPolicy", "GPUCluster"].iter().all(|kind| snapshot.of("nvidia.com", kind).is_empty()) {
        return Nodes::default();
    }
    let wanted = wanted(snapshot);
    let kinds = ["ClusterPolicy", "GPUCluster"].into_iter();
    let faults: BTreeMap<_, _> = kinds.flat_map(|kind| snapshot.of("nvidia.com", kind)).flat_map(faults).collect();
    let (drivers, validators) = (pods(snapshot, DRIVERS), pods(snapshot, VALIDATORS));
    let mut nodes = Nodes::default();
    let mut waiting = Vec::new();
    let mut durations: BTreeMap<Phase, Vec<i64>> = BTreeMap::new();
    for node in snapshot.of("", "Node").iter().filter(|node| counts(node)) {
        let name = Node::of(node).name;
        let on = |pods: &BTreeMap<&str, Vec<_>>| pods.get(name).cloned().unwrap_or_default();
        let evidence = Evidence { drivers: on(&drivers), validators: on(&validators), faults: Some(&faults) };
        nodes.total += 1;
        match progress_of(&wanted, node, &evidence) {
            NodeProgress::Works(progress) => {
                nodes.working += 1;
                phases(&progress).for_each(|(phase, seconds)| durations.entry(phase).or_default().push(seconds));
                for (resource, count) in offered(node) {
                    *nodes.offered.entry(resource).or_default() += count;
                }
            }
            NodeProgress::Waiting(phase, since, why) => {
                let seconds =
                    since.zip(snapshot.taken).map(|(since, now)| (now.as_second() - since.as_second()).max(0));
                waiting.push((phase, WaitingNode { name: name.into(), phase: phase.name(), seconds, why }));
            }
        }
    }
    waiting.sort_by(|(one, a), (other, b)| (one, b.seconds, &a.name).cmp(&(other, a.seconds, &b.name)));
    for phase in Phase::ALL {
        let count = waiting.iter().filter(|(one, _)| *one == phase).count();
        if count > 0 {
            nodes.phases.push(PhaseCount { phase: phase.name(), nodes: count });
        }
    }
    nodes.waiting = waiting.into_iter().take(EXAMPLES).map(|(_, one)| one).collect();
    nodes.times = durations.into_iter().filter_map(|(phase, seconds)| times(phase, seconds)).collect();
    nodes
}

/// Desired state of nodes by the custom resources, as the operator computes it.
fn wanted(snapshot: &Snapshot) -> Wanted {
    let mut policies: Vec<ClusterPolicy> = specs(snapshot);
    policies.retain(|one| one.metadata.deletion_timestamp.is_none());
    policies.sort_by_key(|one| (one.metadata.creation_timestamp.clone(), one.metadata.name.clone()));
    let clusters: Vec<GpuCluster> = specs(snapshot);
    let mut drivers: Vec<NvidiaDriver> = specs(snapshot);
    let kept = |one: &NvidiaDriver| one.meta().finalizers.iter().flatten().any(|one| one == FINALIZER);
    drivers.retain(|one| one.metadata.deletion_timestamp.is_none() || kept(one));
    let mut wanted = Wanted::of(policies.first(), clusters.first(), &drivers);
    if !drivers.is_empty() {
        wanted.check(snapshot.of("", "Node").iter().map(Node::of));
    }
    wanted
}

/// The custom resources without their status, which another operator may have written in a form that does not decode.
fn specs<K: Resource<DynamicType = ()> + DeserializeOwned>(snapshot: &Snapshot) -> Vec<K> {
    let all = snapshot.of(&K::group(&()), &K::kind(&())).iter().cloned();
    let bare = all.map(|mut object| {
        object.as_object_mut().map(|fields| fields.remove("status"));
        object
    });
    bare.filter_map(|object| serde_json::from_value(object).ok()).collect()
}

/// Whether a GPU node is not excluded.
fn counts(node: &Value) -> bool {
    let labels = Node::of(node).labels;
    has_gpu(labels) && !labels.is(keys::OPERANDS, "false")
}

/// Pods with one of these labels, by node.
fn pods<'a>(snapshot: &'a Snapshot, (label, values): (&str, &[&str])) -> BTreeMap<&'a str, Vec<&'a Value>> {
    let mut by_node: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for pod in snapshot.of("", "Pod") {
        let known = pod["metadata"]["labels"][label].as_str().is_some_and(|value| values.contains(&value));
        if let Some(node) = pod["spec"]["nodeName"].as_str().filter(|_| known) {
            by_node.entry(node).or_default().push(pod);
        }
    }
    by_node
}

/// Progress of a node.
enum NodeProgress {
    Works(Progress),
    /// Phase, start of the wait, and the reason.
    Waiting(Phase, Option<Timestamp>, String),
}

fn progress_of(wanted: &Wanted, node: &Value, evidence: &Evidence<'_>) -> NodeProgress {
    let labels = Node::of(node).labels;
    let progress_result = progress(wanted, node, evidence);
    let began = progress_result.as_ref().map(|progress| progress.began);
    let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let kubelet = conditions.find(|one| one["type"] == "Ready");
    if !kubelet.is_some_and(|one| one["status"] == "True") {
        let since = kubelet.and_then(|one| one["lastTransitionTime"].as_str()?.parse().ok());
        return NodeProgress::Waiting(Phase::Kubelet, since, "the node is not Ready".into());
    }
    match progress_result {
        None => {
            let why = wanted.refusal.as_ref().map(|refusal| refusal.message.clone());
            NodeProgress::Waiting(
                Phase::Labels,
                None,
                why.unwrap_or_else(|| "it cannot be told what is wanted of it".into()),
            )
        }
        Some(_) if !labels.is(keys::PRESENT, "true") => {
            NodeProgress::Waiting(Phase::Labels, began, "the operator has not labelled the node yet".into())
        }
        Some(progress) => match progress.open.clone() {
            None => NodeProgress::Works(progress),
            Some((phase, why)) => {
                NodeProgress::Waiting(phase, progress.over.last().map(|(_, end)| *end).or(began), why)
            }
        },
    }
}

/// Duration of each phase in seconds; parallel phases count from the end of the previous one.
fn phases(progress: &Progress) -> impl Iterator<Item = (Phase, i64)> {
    let mut before = progress.began;
    progress.over.iter().map(move |(phase, end)| {
        let end = (*end).max(before);
        let seconds = end.as_second() - before.as_second();
        before = end;
        (*phase, seconds)
    })
}

fn times(phase: Phase, mut seconds: Vec<i64>) -> Option<PhaseDuration> {
    seconds.sort_unstable();
    let median = *seconds.get((seconds.len().max(1) - 1) / 2)?;
    Some(PhaseDuration { phase: phase.name(), median_seconds: median, longest_seconds: *seconds.last()? })
}

/// Allocatable GPUs and MIG devices.
fn offered(node: &Value) -> impl Iterator<Item = (String, u64)> + '_ {
    let all = node["status"]["allocatable"].as_object().into_iter().flatten();
    let gpus = all.filter(|(name, _)| name.starts_with("nvidia.com/"));
    gpus.filter_map(|(name, count)| Some((name.clone(), count.as_str()?.parse().ok()?))).filter(|(_, count)| *count > 0)
}
