//! The controller of NVIDIADrivers.

use std::time::Duration;

use capstan_api::gpu::{ClusterPolicy, NvidiaDriver};
use capstan_operands::gpu::nodes::{FINALIZER, Node as View, OWNER, outlives_its_deletion};
use capstan_operands::gpu::nvidia_driver::{self, Surroundings};
use capstan_operands::gpu::upgrade;
use capstan_plan::{Gvk, Note, Ref, Severity};
use capstan_runtime::queue::Queue;
use capstan_runtime::{Action, Cache, Change, Error, Key};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use super::{CROWD, Cx, cluster, nodes, troubles};
use crate::settle::settle;

/// Makes the drivers of some nodes what the custom resource says, and says how far they are.
pub(super) async fn reconcile(cx: Cx, key: Key) -> Result<Action, Error> {
    let runtime = &cx.runtime;
    let Some(one) = runtime.cache.typed::<NvidiaDriver>(&key)? else { return Ok(Action::Wait) };
    let uid = one.uid().unwrap_or_default();
    let reference = Ref::of::<NvidiaDriver>("", &key.name);
    let going = one.metadata.deletion_timestamp.is_some();
    if going && !one.finalizers().iter().any(|one| one == FINALIZER) {
        return Ok(Action::Wait);
    }
    let mut view = runtime.cache.view().owned_by(&uid);
    for named in nvidia_driver::references(&one, &cx.settings.namespace) {
        view = view.object(&named);
    }
    for revision in upgrade::kept_revisions(&runtime.cache.owned_by(&uid)) {
        view = view.object(&revision);
    }
    let mut facts = view.facts(runtime.clock.now());
    facts.skew = cx.schemas.skew(&reference);
    let mut cluster = cluster::cluster(&cx);
    if one.spec.use_precompiled == Some(true) {
        cluster.unsupported = cluster::unsupported(&runtime.cache);
    }
    let around = surroundings(&runtime.cache, cluster.active());
    let mut plan = nvidia_driver::plan(&one, &facts, &cluster, &around);
    if going {
        let left = nodes_of(&runtime.cache, &key.name);
        if left == 0 {
            runtime.writer.remove_finalizer(&reference, FINALIZER).await?;
            return Ok(Action::Wait);
        }
        // What runs stays until the last node has moved; the status goes on to say how far that is.
        plan.objects = None;
        let message = format!("is deleted once its driver is gone from {left} nodes, as an upgrade of each");
        plan.events.push(Note { severity: Severity::Normal, reason: upgrade::EVENT, message });
    } else if !around.disabled && outlives_its_deletion(&one, &nodes::all(&runtime.cache)) {
        runtime.writer.add_finalizer(&reference, FINALIZER).await?;
    } else {
        runtime.writer.remove_finalizer(&reference, FINALIZER).await?;
    }
    let blocked =
        |reason: &str, message: &str| nvidia_driver::blocked(&one, &facts, &cluster, &around, reason, message);
    settle(runtime, &reference, &uid, &facts, plan, blocked).await
}

/// How many nodes have their driver from that NVIDIADriver.
fn nodes_of(cache: &Cache, driver: &str) -> usize {
    let nodes = cache.packed(&Gvk::of::<Node>());
    nodes.iter().filter(|node| View::of(*node).labels.is(OWNER, driver)).count()
}

/// What the others say that matters for every driver.
fn surroundings(cache: &Cache, active: Option<&str>) -> Surroundings {
    let policy = active.and_then(|name| cache.typed::<ClusterPolicy>(&Key::new("", name)).ok().flatten());
    let paths = policy.as_ref().map(|policy| policy.spec.host_paths.clone().unwrap_or_default());
    Surroundings {
        disabled: policy.is_some_and(|policy| policy.spec.driver.use_nvidia_driver_crd != Some(true)),
        root: paths.map_or("/".into(), |paths| paths.root_fs.unwrap_or_default()),
        refusal: nodes::wanted(cache).refusal.map(|refusal| (refusal.reason, refusal.message)),
    }
}

/// Looks at the drivers again when something changed that they depend on and do not own.
pub(super) fn concern(cache: &Cache, queue: &Queue<Key>, namespace: &str, change: &Change<'_>) {
    let all = |delay: Duration| {
        cache.keys(&Gvk::of::<NvidiaDriver>()).into_iter().for_each(|key| queue.add_after(key, delay));
    };
    if let Some(delay) = troubles::urgency(change, namespace) {
        all(delay);
    }
    match change.kind.kind {
        _ if cluster::is_about_kernels(change) => all(CROWD),
        "Node" if cluster::counted(change.old) != cluster::counted(change.new) => all(CROWD),
        "ClusterPolicy" | "GPUCluster" | "NVIDIADriver" if !change.ours => all(Duration::ZERO),
        "ConfigMap" | "Secret" if &*change.key.namespace == namespace => all(Duration::ZERO),
        kind if cluster::OPENSHIFT.contains(&kind) => all(Duration::ZERO),
        _ => {}
    }
}
