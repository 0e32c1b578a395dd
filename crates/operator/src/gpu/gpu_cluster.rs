//! The controller of GPUClusters.

use std::time::Duration;

use capstan_api::gpu::GpuCluster;
use capstan_operands::gpu::gpu_cluster;
use capstan_plan::{Facts, Gvk, Ref, diff};
use capstan_runtime::queue::Queue;
use capstan_runtime::{Action, Cache, Change, Error, Key};
use kube::ResourceExt;

use super::{CROWD, Cx, cluster};
use crate::settle::settle;

/// Makes the DRA stack what the custom resource says, and says how far it is.
pub(super) async fn reconcile(cx: Cx, key: Key) -> Result<Action, Error> {
    let runtime = &cx.runtime;
    let Some(one) = runtime.cache.typed::<GpuCluster>(&key)? else { return Ok(Action::Wait) };
    let uid = one.uid().unwrap_or_default();
    let reference = Ref::of::<GpuCluster>("", &key.name);
    if one.metadata.deletion_timestamp.is_some() {
        let facts = runtime.cache.view().owned_by(&uid).facts(runtime.clock.now());
        return teardown(&cx, &reference, &uid, &facts).await;
    }
    runtime.writer.add_finalizer(&reference, gpu_cluster::FINALIZER).await?;
    let mut view = runtime.cache.view().owned_by(&uid);
    for named in gpu_cluster::references(&one, &cx.settings.namespace) {
        view = view.object(&named);
    }
    let mut facts = view.facts(runtime.clock.now());
    facts.skew = cx.schemas.skew(&reference);
    let around = cluster::cluster(&cx);
    let plan = gpu_cluster::plan(&one, &facts, &around);
    let blocked = |reason: &str, message: &str| gpu_cluster::blocked(&one, &facts, &around, reason, message);
    settle(runtime, &reference, &uid, &facts, plan, blocked).await
}

/// Lets it go once nobody holds a claim of its driver. The rest is owned and goes with it.
async fn teardown(cx: &Cx, reference: &Ref, uid: &str, facts: &Facts) -> Result<Action, Error> {
    let writer = &cx.runtime.writer;
    let teardown = gpu_cluster::teardown(facts);
    if teardown.draining.is_empty() {
        writer.remove_finalizer(reference, gpu_cluster::FINALIZER).await?;
        return Ok(Action::Wait);
    }
    cx.runtime.events.record_all(reference, uid, teardown.event.as_slice());
    writer.apply(diff(uid, &teardown.objects, &facts.live)).await.result()?;
    Ok(Action::Wait)
}

/// Looks at the GPUCluster again when something changed that it depends on and does not own.
pub(super) fn concern(cache: &Cache, queue: &Queue<Key>, namespace: &str, change: &Change<'_>) {
    let all = |delay: Duration| {
        cache.keys(&Gvk::of::<GpuCluster>()).into_iter().for_each(|key| queue.add_after(key, delay));
    };
    match change.kind.kind {
        "Node" if cluster::counted(change.old) != cluster::counted(change.new) => all(CROWD),
        "ClusterPolicy" if !change.ours => all(Duration::ZERO),
        "Namespace" if &*change.key.name == namespace => all(Duration::ZERO),
        "ConfigMap" if &*change.key.namespace == namespace => all(Duration::ZERO),
        kind if cluster::OPENSHIFT.contains(&kind) => all(Duration::ZERO),
        _ => {}
    }
}
