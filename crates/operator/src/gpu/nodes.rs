//! The controller of nodes: labels and annotations that say what runs where, in one patch per node and change; and, where
//! that is asked for, whether their GPUs work.

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

/// Nodes that are patched at once.
const CONCURRENCY: usize = 16;

/// What the custom resources want of nodes, kept until one of them changes: to read them for each node would cost too
/// much.
#[derive(Clone)]
struct Memo {
    cache: Cache,
    wanted: Arc<Mutex<Option<Arc<Wanted>>>>,
    faults: Arc<Mutex<Option<Arc<Faults>>>>,
}

/// Why operands cannot be decided, by the type of their condition.
type Faults = BTreeMap<String, String>;

impl Memo {
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

    /// Every node; before the cache is complete none, as all are reconciled then.
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
    let memo = Memo { cache: cx.runtime.cache.clone(), wanted: Arc::default(), faults: Arc::default() };
    let affected = memo.clone();
    let mut controller = Controller::of::<Node>("gpu-node", &cx.runtime)
        .watching(move |change| Requeue::all(reassigned(&affected, change), Duration::ZERO))
        .concurrency(CONCURRENCY);
    if cx.settings.readiness.is_on() {
        let affected = memo.clone();
        controller = controller.watching(move |change| Requeue::all(progressed(&affected, change), Duration::ZERO));
    }
    let cx = cx.clone();
    launch.run(controller, move |key| reconcile(cx.clone(), memo.clone(), key));
}

/// Nodes for which something else may be wanted, or possible.
fn reassigned(memo: &Memo, change: &Change<'_>) -> Vec<Key> {
    if change.is::<ResourceClaim>() {
        // Who waits for the last claim of its node is reconciled when that goes.
        let nodes = [change.old, change.new].into_iter().flatten().flat_map(|live| claims::nodes_of(live));
        return nodes.map(|node| Key::new("", node)).collect();
    }
    let ours = change.is::<ClusterPolicy>() || change.is::<GpuCluster>() || change.is::<NvidiaDriver>();
    let generation = |live: Option<&Live>| live.map(|live| live["metadata"]["generation"].clone());
    let going = |live: Option<&Live>| live.map(|live| live["metadata"]["deletionTimestamp"].is_null());
    let changed = || generation(change.old) != generation(change.new) || going(change.old) != going(change.new);
    if ours && changed() {
        memo.forget();
        return memo.all_nodes();
    }
    // Which driver owns a node depends on the labels of all of them, if there are several.
    let labels = |live: Option<&Live>| live.map(|live| live["metadata"]["labels"].clone());
    let drivers = || !memo.cache.keys(&Gvk::of::<NvidiaDriver>()).is_empty();
    if change.is::<Node>() && drivers() && labels(change.old) != labels(change.new) {
        memo.forget();
    }
    // Whose driver runs on a node decides whether the node may change hands.
    let owner = |live: Option<&Live>| live.map(|live| live["metadata"]["ownerReferences"][0]["uid"].clone());
    let moved = change.kind.slice == DRIVERS && owner(change.old) != owner(change.new) && drivers();
    if moved { node_of(change).into_iter().collect() } else { Vec::new() }
}

/// Nodes that may be further, or less far, than before: by the pods that tell, and by why there are none.
fn progressed(memo: &Memo, change: &Change<'_>) -> Vec<Key> {
    if [DRIVERS, VALIDATORS].contains(&change.kind.slice) {
        return node_of(change).into_iter().collect();
    }
    let told = |live: Option<&Live>| live.map(|live| faults(live)).unwrap_or_default();
    let ours = change.is::<ClusterPolicy>() || change.is::<GpuCluster>();
    if !ours || told(change.old) == told(change.new) {
        return Vec::new();
    }
    memo.forget_faults();
    memo.all_nodes()
}

/// The node of a pod.
fn node_of(change: &Change<'_>) -> Option<Key> {
    change.last()["spec"]["nodeName"].as_str().map(|node| Key::new("", node))
}

/// Labels one node, and says how its GPUs do.
async fn reconcile(cx: Arc<Cx>, memo: Memo, key: Key) -> Result<Action, Error> {
    let runtime = &cx.runtime;
    let reference = Ref::of::<Node>("", &key.name);
    let Some(live) = runtime.cache.get(&reference) else { return Ok(Action::Wait) };
    if !live["metadata"]["deletionTimestamp"].is_null() {
        return Ok(Action::Wait);
    }
    let wanted = memo.wanted();
    let node = View::of(&*live);
    let claims_in_use = needs_claims(&wanted, &node).then(|| claims_in_use(&runtime.cache, node.name));
    let facts =
        NodeFacts { claims_in_use, ..if wanted.assigns() { drivers(&cx, node.name) } else { NodeFacts::default() } };
    let Decision { mut patch, requeue, mut notes } = decide(&wanted, &node, &facts);
    let pods = Pods::on(&cx, &memo, node.name);
    let evidence = pods.evidence();
    cx.settings.readiness.taint(&wanted, &live, &evidence, &mut patch);
    if !patch.is_empty() {
        let version = live["metadata"]["resourceVersion"].as_str().filter(|_| patch.needs_lock());
        runtime.writer.merge(&reference, patch.to_json(version)).await?;
    }
    let Some(live) = runtime.cache.get(&reference) else { return Ok(Action::Wait) };
    let condition_update = cx.settings.readiness.condition_update(&wanted, &live, &evidence, runtime.clock.now());
    let told = match condition_update.patch {
        Some(body) => runtime.writer.merge_status(&reference, body).await? == Sent::Yes,
        None => true,
    };
    notes.extend(condition_update.note.filter(|_| told));
    let uid = live["metadata"]["uid"].as_str().unwrap_or_default();
    runtime.events.record_all(&reference, uid, &notes);
    Ok(requeue.into_iter().chain(condition_update.requeue).min().map_or(Action::Wait, Action::Again))
}

/// What tells how far a node is; nothing if nobody asks.
#[derive(Default)]
struct Pods {
    drivers: Vec<Live>,
    validators: Vec<Live>,
    faults: Arc<Faults>,
}

impl Pods {
    fn on(cx: &Cx, memo: &Memo, node: &str) -> Self {
        if !cx.settings.readiness.is_on() {
            return Self::default();
        }
        let here = |slice: &str| {
            let mut pods = cx.runtime.cache.on_node(slice, node);
            pods.retain(|pod| pod["metadata"]["namespace"] == *cx.settings.namespace);
            pods
        };
        Self { drivers: here(DRIVERS), validators: here(VALIDATORS), faults: memo.faults() }
    }

    fn evidence(&self) -> Evidence<'_> {
        Evidence {
            drivers: self.drivers.iter().map(|pod| &**pod).collect(),
            validators: self.validators.iter().map(|pod| &**pod).collect(),
            faults: Some(&self.faults),
        }
    }
}

/// Whether somebody holds GPUs of the node through a claim.
fn claims_in_use(cache: &Cache, node: &str) -> bool {
    let all = cache.all(&Gvk::of::<ResourceClaim>());
    claims::in_use(node, all.iter().map(|claim| &**claim))
}

/// Whose drivers run on a node.
fn drivers(cx: &Cx, node: &str) -> NodeFacts {
    let mut facts = NodeFacts::default();
    for pod in cx.runtime.cache.on_node(DRIVERS, node) {
        let meta = &pod["metadata"];
        let staying = meta["namespace"] == *cx.settings.namespace && meta["deletionTimestamp"].is_null();
        let owned = meta["ownerReferences"].is_array();
        facts.orphaned_driver |= staying && !owned;
        facts.owned_driver |= staying && owned && nvidia_driver::is_own_pod(&pod);
    }
    facts
}

/// Whose policy rules the upgrades of which nodes.
pub(super) fn governing_policies(cache: &Cache, requestor: Option<&Requestor>) -> GoverningPolicies {
    let policies: Vec<ClusterPolicy> = staying(cache);
    let clusters: Vec<GpuCluster> = staying(cache);
    GoverningPolicies::of(active(&policies), clusters.first(), &drivers_that_count(cache), requestor)
}

/// What the custom resources of the cluster want.
pub(super) fn wanted(cache: &Cache) -> Wanted {
    let policies: Vec<ClusterPolicy> = staying(cache);
    // One that is going keeps its driver until the last claim is given back.
    let clusters: Vec<GpuCluster> = all(cache);
    let drivers = drivers_that_count(cache);
    let mut wanted = Wanted::of(active(&policies), clusters.first(), &drivers);
    if !drivers.is_empty() {
        let nodes = cache.packed(&Gvk::of::<Node>());
        wanted.check(nodes.iter().map(View::of));
    }
    wanted
}

/// NVIDIADrivers, and of those that are going the ones that keep their nodes until these have moved.
fn drivers_that_count(cache: &Cache) -> Vec<NvidiaDriver> {
    let mut drivers: Vec<NvidiaDriver> = all(cache);
    let kept = |one: &NvidiaDriver| one.metadata.finalizers.iter().flatten().any(|one| one == FINALIZER);
    drivers.retain(|one| one.metadata.deletion_timestamp.is_none() || kept(one));
    drivers
}

/// Every custom resource of a kind. One that cannot be read counts for nothing, as everywhere.
pub(super) fn all<K>(cache: &Cache) -> Vec<K>
where
    K: kube::Resource<DynamicType = ()> + serde::de::DeserializeOwned,
{
    cache.all(&Gvk::of::<K>()).iter().filter_map(|one| K::deserialize(&**one).ok()).collect()
}

/// Those that are not being deleted.
pub(super) fn staying<K>(cache: &Cache) -> Vec<K>
where
    K: kube::Resource<DynamicType = ()> + serde::de::DeserializeOwned,
{
    let mut all: Vec<K> = all(cache);
    all.retain(|one| one.meta().deletion_timestamp.is_none());
    all
}

/// The policy that counts: the oldest.
pub(super) fn active(policies: &[ClusterPolicy]) -> Option<&ClusterPolicy> {
    let age = |policy: &&ClusterPolicy| {
        (policy.metadata.creation_timestamp.clone(), policy.metadata.name.clone().unwrap_or_default())
    };
    policies.iter().min_by_key(age)
}
