//! The controller of nodes: labels and annotations that say what runs where. One patch per node and change.

use std::sync::{Arc, Mutex, PoisonError};

use capstan_api::gpu::{ClusterPolicy, GpuCluster, NvidiaDriver};
use capstan_operands::gpu::nodes::{Node as View, NodeFacts, Wanted, decide, needs_claims};
use capstan_plan::{Gvk, Live, Ref};
use capstan_runtime::{Action, Cache, Controller, Error, Key, Runtime};
use k8s_openapi::api::core::v1::Node;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Nodes that are patched at once.
const WINDOW: usize = 16;

/// What the custom resources want of nodes, kept until one of them changes: to read them for each node would cost too
/// much.
#[derive(Clone)]
struct Memo {
    cache: Cache,
    wanted: Arc<Mutex<Option<Arc<Wanted>>>>,
}

impl Memo {
    fn get(&self) -> Arc<Wanted> {
        let mut known = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        known.get_or_insert_with(|| Arc::new(wanted(&self.cache))).clone()
    }

    fn forget(&self) {
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Runs the controller until `stop`.
pub(super) fn start(tasks: &mut JoinSet<()>, runtime: &Runtime, stop: &CancellationToken) {
    let memo = Memo { cache: runtime.cache.clone(), wanted: Arc::default() };
    let (forgetful, cache) = (memo.clone(), runtime.cache.clone());
    let all = move |change: &capstan_runtime::Change<'_>| {
        let ours = ["ClusterPolicy", "GPUCluster", "NVIDIADriver"].contains(&change.kind.kind);
        let generation = |live: Option<&Live>| live.map(|live| live["metadata"]["generation"].clone());
        let going = |live: Option<&Live>| live.map(|live| live["metadata"]["deletionTimestamp"].is_null());
        let changed = generation(change.old) != generation(change.new) || going(change.old) != going(change.new);
        if !(ours && changed) {
            // Which driver owns a node depends on the labels of all of them, if there are several.
            let labels = |live: Option<&Live>| live.map(|live| live["metadata"]["labels"].clone());
            let drivers = || !cache.keys(&Gvk::of::<NvidiaDriver>()).is_empty();
            if change.kind.kind == "Node" && drivers() && labels(change.old) != labels(change.new) {
                forgetful.forget();
            }
            return Vec::new();
        }
        forgetful.forget();
        if cache.is_synced() { cache.keys(&Gvk::of::<Node>()) } else { Vec::new() }
    };
    let controller = Controller::of::<Node>("gpu-node", runtime).watching(all).concurrency(WINDOW);
    let runtime = runtime.clone();
    tasks.spawn(controller.run(stop.clone(), move |key| reconcile(runtime.clone(), memo.clone(), key)));
}

/// Labels one node.
async fn reconcile(runtime: Runtime, memo: Memo, key: Key) -> Result<Action, Error> {
    let reference = Ref::of::<Node>("", &key.name);
    let Some(live) = runtime.cache.get(&reference) else { return Ok(Action::Wait) };
    if !live["metadata"]["deletionTimestamp"].is_null() {
        return Ok(Action::Wait);
    }
    let wanted = memo.get();
    let node = View::of(&live);
    let facts = NodeFacts { claims_in_use: needs_claims(&wanted, &node).then_some(true), ..NodeFacts::default() };
    let decision = decide(&wanted, &node, &facts);
    if !decision.patch.is_empty() {
        let version = live["metadata"]["resourceVersion"].as_str().filter(|_| decision.patch.needs_lock());
        runtime.writer.merge(&reference, decision.patch.to_json(version)).await?;
    }
    let uid = live["metadata"]["uid"].as_str().unwrap_or_default();
    runtime.events.record_all(&reference, uid, &decision.notes);
    Ok(decision.requeue.map_or(Action::Wait, Action::Again))
}

/// What the custom resources of the cluster want.
pub(super) fn wanted(cache: &Cache) -> Wanted {
    fn all<K>(cache: &Cache) -> Vec<K>
    where
        K: kube::Resource<DynamicType = ()> + serde::de::DeserializeOwned,
    {
        // One that cannot be read counts for nothing, as everywhere.
        let live = cache.all(&Gvk::of::<K>());
        let staying = live.iter().filter(|one| one["metadata"]["deletionTimestamp"].is_null());
        staying.filter_map(|one| K::deserialize(&**one).ok()).collect()
    }
    let age = |policy: &ClusterPolicy| {
        (policy.metadata.creation_timestamp.clone(), policy.metadata.name.clone().unwrap_or_default())
    };
    let policies: Vec<ClusterPolicy> = all(cache);
    let active = policies.iter().min_by_key(|policy| age(policy));
    let clusters: Vec<GpuCluster> = all(cache);
    let drivers: Vec<NvidiaDriver> = all(cache);
    let mut wanted = Wanted::of(active, clusters.first(), &drivers);
    if !drivers.is_empty() {
        let nodes = cache.all(&Gvk::of::<Node>());
        wanted.check(nodes.iter().map(|node| View::of(node)));
    }
    wanted
}
