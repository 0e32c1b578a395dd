//! The node controller: deploy labels and annotations, one patch per node and change; and, where enabled, GPU
//! readiness.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use capstan_api::gpu::{ClusterPolicy, GpuCluster, NvidiaDriver};
use capstan_operands::gpu::nodes::{
    Decision, Evidence, FINALIZER, Node as View, NodeFacts, Wanted, claims, decide, faults, needs_claims,
};
use capstan_operands::gpu::nvidia_driver;
use capstan_operands::gpu::upgrade::{GoverningPolicies, Requestor};
use capstan_plan::{Gvk, Live, Ref};
use capstan_runtime::kinds::{DRIVERS, VALIDATORS};
use capstan_runtime::writer::Sent;
use capstan_runtime::{Action, Cache, Change, Controller, Error, Key, Requeue};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceClaim;

use super::Cx;
use crate::product::Launch;

/// Concurrent node reconciles.
const CONCURRENCY: usize = 16;

/// Desired node labels of all custom resources, cached until one of them changes: decoding them per node would cost too
/// much.
#[derive(Clone)]
struct WantedCache {
    cache: Cache,
    wanted: Arc<Mutex<Option<Arc<Wanted>>>>,
    faults: Arc<Mutex<Option<Arc<Faults>>>>,
}

/// Why operands cannot be planned, by condition type.
type Faults = BTreeMap<String, String>;

impl WantedCache {
    fn wanted(&self) -> Arc<Wanted> {
        let mut known = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        known.get_or_insert_with(|| Arc::new(wanted(&self.cache))).clone()
    }

    fn faults(&self) -> Arc<Faults> {
        let mut known = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let kinds = || [Gvk::of::<ClusterPolicy>(), Gvk::of::<GpuCluster>()].into_iter();
        let read = || kinds().flat_map(|kind| self.cache.all(&kind)).flat_map(|live| faults(&live)).collect();
        known.get_or_insert_with(|| Arc::new(read())).clone()
    }

    /// Every node; none before the initial sync, which reconciles all.
    fn all_nodes(&self) -> Vec<Key> {
        if self.cache.is_synced() { self.cache.keys(&Gvk::of::<Node>()) } else { Vec::new() }
    }

    fn forget(&self) {
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn forget_faults(&self) {
        *self.faults.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Starts the controller.
pub(super) fn start(launch: &mut Launch<'_>, cx: &Arc<Cx>) {
    let wanted_cache = WantedCache { cache: cx.runtime.cache.clone(), wanted: Arc::default(), faults: Arc::default() };
    let affected = wanted_cache.clone();
    let mut controller = Controller::of::<Node>("gpu-node", &cx.runtime)
        .watching(move |change| Requeue::all(reassigned(&affected, change), Duration::ZERO))
        .concurrency(CONCURRENCY);
    if cx.settings.readiness.is_on() {
        let affected = wanted_cache.clone();
        controller =
            controller.watching(move |change| Requeue::all(readiness_changed(&affected, change), Duration::ZERO));
    }
    let cx = cx.clone();
    launch.run(controller, move |key| reconcile(cx.clone(), wanted_cache.clone(), key));
}

/// Nodes whose desired labels may have changed.
fn reassigned(wanted_cache: &WantedCache, change: &Change<'_>) -> Vec<Key> {
    if change.is::<ResourceClaim>() {
        // A node that waits for its last claim is reconciled when that is released.
        let nodes = [change.old, change.new].into_iter().flatten().flat_map(|live| claims::nodes_of(live));
        return nodes.map(|node| Key::new("", node)).collect();
    }
    let ours = change.is::<ClusterPolicy>() || change.is::<GpuCluster>() || change.is::<NvidiaDriver>();
    let generation = |live: Option<&Live>| live.map(|live| live["metadata"]["generation"].clone());
    let not_terminating = |live: Option<&Live>| live.map(|live| live["metadata"]["deletionTimestamp"].is_null());
    let changed = || {
        generation(change.old) != generation(change.new) || not_terminating(change.old) != not_terminating(change.new)
    };
    if ours && changed() {
        wanted_cache.forget();
        return wanted_cache.all_nodes();
    }
    // Which NVIDIADriver owns a node depends on the labels of all nodes, if there are several drivers.
    let labels = |live: Option<&Live>| live.map(|live| live["metadata"]["labels"].clone());
    let drivers = || !wanted_cache.cache.keys(&Gvk::of::<NvidiaDriver>()).is_empty();
    if change.is::<Node>() && drivers() && labels(change.old) != labels(change.new) {
        wanted_cache.forget();
    }
    // The owner of the running driver decides whether the node may be reassigned.
    let owner = |live: Option<&Live>| live.map(|live| live["metadata"]["ownerReferences"][0]["uid"].clone());
    let moved = change.kind.slice == DRIVERS && owner(change.old) != owner(change.new) && drivers();
    if moved { node_of(change).into_iter().collect() } else { Vec::new() }
}

/// Nodes whose readiness may have changed: by their pods, or by operands that cannot be planned.
fn readiness_changed(wanted_cache: &WantedCache, change: &Change<'_>) -> Vec<Key> {
    if [DRIVERS, VALIDATORS].contains(&change.kind.slice) {
        return node_of(change).into_iter().collect();
    }
    let faults_of = |live: Option<&Live>| live.map(|live| faults(live)).unwrap_or_default();
    let ours = change.is::<ClusterPolicy>() || change.is::<GpuCluster>();
    if !ours || faults_of(change.old) == faults_of(change.new) {
        return Vec::new();
    }
    wanted_cache.forget_faults();
    wanted_cache.all_nodes()
}

/// The node of a pod.
fn node_of(change: &Change<'_>) -> Option<Key> {
    change.last()["spec"]["nodeName"].as_str().map(|node| Key::new("", node))
}

/// Labels one node, and updates its readiness condition.
async fn reconcile(cx: Arc<Cx>, wanted_cache: WantedCache, key: Key) -> Result<Action, Error> {
    let runtime = &cx.runtime;
    let reference = Ref::of::<Node>("", &key.name);
    let Some(live) = runtime.cache.get(&reference) else { return Ok(Action::AwaitChange) };
    if !live["metadata"]["deletionTimestamp"].is_null() {
        return Ok(Action::AwaitChange);
    }
    let wanted = wanted_cache.wanted();
    let node = View::of(&*live);
    let claims_in_use = needs_claims(&wanted, &node).then(|| claims_in_use(&runtime.cache, node.name));
    let facts =
        NodeFacts { claims_in_use, ..if wanted.assigns() { drivers(&cx, node.name) } else { NodeFacts::default() } };
    let Decision { mut patch, requeue, mut events } = decide(&wanted, &node, &facts);
    let pods = Pods::on(&cx, &wanted_cache, node.name);
    let evidence = pods.evidence();
    cx.settings.readiness.taint(&wanted, &live, &evidence, &mut patch);
    if !patch.is_empty() {
        let version = live["metadata"]["resourceVersion"].as_str().filter(|_| patch.needs_lock());
        runtime.writer.merge(&reference, patch.to_json(version)).await?;
    }
    let Some(live) = runtime.cache.get(&reference) else { return Ok(Action::AwaitChange) };
    let condition_update = cx.settings.readiness.condition_update(&wanted, &live, &evidence, runtime.clock.now());
    let updated = match condition_update.patch {
        Some(body) => runtime.writer.merge_status(&reference, body).await? == Sent::Yes,
        None => true,
    };
    events.extend(condition_update.note.filter(|_| updated));
    let uid = live["metadata"]["uid"].as_str().unwrap_or_default();
    runtime.events.record_all(&reference, uid, &events);
    Ok(requeue.into_iter().chain(condition_update.requeue).min().map_or(Action::AwaitChange, Action::Requeue))
}

/// Pods that readiness is computed from; empty if it is disabled.
#[derive(Default)]
struct Pods {
    drivers: Vec<Live>,
    validators: Vec<Live>,
    faults: Arc<Faults>,
}

impl Pods {
    fn on(cx: &Cx, wanted_cache: &WantedCache, node: &str) -> Self {
        if !cx.settings.readiness.is_on() {
            return Self::default();
        }
        let here = |slice: &str| {
            let mut pods = cx.runtime.cache.on_node(slice, node);
            pods.retain(|pod| pod["metadata"]["namespace"] == *cx.settings.namespace);
            pods
        };
        Self { drivers: here(DRIVERS), validators: here(VALIDATORS), faults: wanted_cache.faults() }
    }

    fn evidence(&self) -> Evidence<'_> {
        Evidence {
            drivers: self.drivers.iter().map(|pod| &**pod).collect(),
            validators: self.validators.iter().map(|pod| &**pod).collect(),
            faults: Some(&self.faults),
        }
    }
}

/// Whether GPUs of the node are allocated by a ResourceClaim.
fn claims_in_use(cache: &Cache, node: &str) -> bool {
    let all = cache.all(&Gvk::of::<ResourceClaim>());
    claims::in_use(node, all.iter().map(|claim| &**claim))
}

/// Ownership of the driver pods on a node.
fn drivers(cx: &Cx, node: &str) -> NodeFacts {
    let mut facts = NodeFacts::default();
    for pod in cx.runtime.cache.on_node(DRIVERS, node) {
        let meta = &pod["metadata"];
        let not_terminating = meta["namespace"] == *cx.settings.namespace && meta["deletionTimestamp"].is_null();
        let owned = meta["ownerReferences"].is_array();
        facts.orphaned_driver |= not_terminating && !owned;
        facts.owned_driver |= not_terminating && owned && nvidia_driver::is_own_pod(&pod);
    }
    facts
}

/// Which custom resource governs the upgrades of which nodes.
pub(super) fn governing_policies(cache: &Cache, requestor: Option<&Requestor>) -> GoverningPolicies {
    let policies: Vec<ClusterPolicy> = not_terminating(cache);
    let clusters: Vec<GpuCluster> = not_terminating(cache);
    GoverningPolicies::of(active(&policies), clusters.first(), &effective_drivers(cache), requestor)
}

/// The desired node labels of all custom resources.
pub(super) fn wanted(cache: &Cache) -> Wanted {
    let policies: Vec<ClusterPolicy> = not_terminating(cache);
    // A terminating one keeps its driver until the last claim is released.
    let clusters: Vec<GpuCluster> = all(cache);
    let drivers = effective_drivers(cache);
    let mut wanted = Wanted::of(active(&policies), clusters.first(), &drivers);
    if !drivers.is_empty() {
        let nodes = cache.packed(&Gvk::of::<Node>());
        wanted.check(nodes.iter().map(View::of));
    }
    wanted
}

/// NVIDIADrivers that are not terminating, or that keep their nodes by a finalizer until these have moved.
fn effective_drivers(cache: &Cache) -> Vec<NvidiaDriver> {
    let mut drivers: Vec<NvidiaDriver> = all(cache);
    let kept = |one: &NvidiaDriver| one.metadata.finalizers.iter().flatten().any(|one| one == FINALIZER);
    drivers.retain(|one| one.metadata.deletion_timestamp.is_none() || kept(one));
    drivers
}

/// All custom resources of a kind. Undecodable ones are skipped.
pub(super) fn all<K>(cache: &Cache) -> Vec<K>
where
    K: kube::Resource<DynamicType = ()> + serde::de::DeserializeOwned,
{
    cache.all(&Gvk::of::<K>()).iter().filter_map(|one| K::deserialize(&**one).ok()).collect()
}

/// Those that are not terminating.
pub(super) fn not_terminating<K>(cache: &Cache) -> Vec<K>
where
    K: kube::Resource<DynamicType = ()> + serde::de::DeserializeOwned,
{
    let mut all: Vec<K> = all(cache);
    all.retain(|one| one.meta().deletion_timestamp.is_none());
    all
}

/// The active policy: the oldest.
pub(super) fn active(policies: &[ClusterPolicy]) -> Option<&ClusterPolicy> {
    let age = |policy: &&ClusterPolicy| {
        (policy.metadata.creation_timestamp.clone(), policy.metadata.name.clone().unwrap_or_default())
    };
    policies.iter().min_by_key(age)
}
