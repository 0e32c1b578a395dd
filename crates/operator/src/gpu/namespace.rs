//! The controller of the namespace of operands: its labels.

use capstan_api::gpu::{ClusterPolicy, GpuCluster};
use capstan_operands::gpu::namespace;
use capstan_plan::Ref;
use capstan_runtime::{Action, Controller, Error, Key};
use k8s_openapi::api::core::v1::Namespace;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::cluster::{OPENSHIFT, openshift};
use super::{Cx, nodes};

/// Runs the controller until `stop`.
pub(super) fn start(tasks: &mut JoinSet<()>, cx: &Cx, stop: &CancellationToken) {
    let own = Key::new("", &cx.settings.namespace);
    let (cx, key) = (cx.clone(), own.clone());
    let concerned = move |change: &capstan_runtime::Change<'_>| {
        let kinds = ["ClusterPolicy", "GPUCluster"];
        let concerns = kinds.contains(&change.kind.kind) && !change.ours || OPENSHIFT.contains(&change.kind.kind);
        if concerns { vec![own.clone()] } else { Vec::new() }
    };
    let controller = Controller::of::<Namespace>("gpu-namespace", &cx.runtime).watching(concerned).concurrency(1);
    tasks.spawn(controller.run(stop.clone(), move |one| reconcile(cx.clone(), one == key)));
}

/// Labels the namespace, if it is ours.
async fn reconcile(cx: Cx, ours: bool) -> Result<Action, Error> {
    let cache = &cx.runtime.cache;
    let reference = Ref::of::<Namespace>("", &cx.settings.namespace);
    let Some(live) = cache.get(&reference).filter(|_| ours) else { return Ok(Action::Wait) };
    if !live["metadata"]["deletionTimestamp"].is_null() {
        return Ok(Action::Wait);
    }
    let policies: Vec<ClusterPolicy> = nodes::staying(cache);
    // A GPUCluster that goes needs its claims until it is gone.
    let clusters: Vec<GpuCluster> = nodes::all(cache);
    let on_openshift = openshift(cache).is_some();
    let wanted = namespace::wanted(nodes::active(&policies), clusters.first(), on_openshift, &cx.settings.namespace);
    if let Some(patch) = namespace::patch(&live, &wanted) {
        cx.runtime.writer.merge(&reference, patch).await?;
    }
    Ok(Action::Wait)
}
