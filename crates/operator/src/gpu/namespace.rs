//! The controller of the namespace of operands: its labels.

use std::sync::Arc;

use capstan_api::gpu::{ClusterPolicy, GpuCluster};
use capstan_operands::gpu::namespace;
use capstan_plan::Ref;
use capstan_runtime::{Action, Change, Controller, Error, Key, Requeue};
use k8s_openapi::api::core::v1::Namespace;

use super::cluster::{is_about_openshift, openshift};
use super::{Cx, nodes};
use crate::product::Launch;

/// Starts the controller.
pub(super) fn start(launch: &mut Launch<'_>, cx: &Arc<Cx>) {
    let own = Key::new("", &cx.settings.namespace);
    let (cx, key) = (cx.clone(), own.clone());
    let affected = move |change: &Change<'_>| {
        let ours = change.is::<ClusterPolicy>() || change.is::<GpuCluster>();
        let concerns = ours && !change.own_write || is_about_openshift(change);
        if concerns { vec![Requeue::now(own.clone())] } else { Vec::new() }
    };
    let controller = Controller::of::<Namespace>("gpu-namespace", &cx.runtime).watching(affected).concurrency(1);
    launch.run(controller, move |one| reconcile(cx.clone(), one == key));
}

/// Labels the namespace, if it is ours.
async fn reconcile(cx: Arc<Cx>, ours: bool) -> Result<Action, Error> {
    let cache = &cx.runtime.cache;
    let reference = Ref::of::<Namespace>("", &cx.settings.namespace);
    let Some(live) = cache.get(&reference).filter(|_| ours) else { return Ok(Action::AwaitChange) };
    if !live["metadata"]["deletionTimestamp"].is_null() {
        return Ok(Action::AwaitChange);
    }
    let policies: Vec<ClusterPolicy> = nodes::not_terminating(cache);
    // A terminating GPUCluster needs its claims until it is gone.
    let clusters: Vec<GpuCluster> = nodes::all(cache);
    let on_openshift = openshift(cache).is_some();
    let wanted = namespace::wanted(nodes::active(&policies), clusters.first(), on_openshift, &cx.settings.namespace);
    if let Some(patch) = namespace::patch(&live, &wanted) {
        cx.runtime.writer.merge(&reference, patch).await?;
    }
    Ok(Action::AwaitChange)
}
