//! Executes the decisions of a pass: per node the patch first, and the rest only if that succeeded; several nodes
//! concurrently.

use capstan_api::foreign::NodeMaintenance;
use capstan_operands::gpu::upgrade::{MaintenanceAction, REJECTED, RevisionRejection, Step};
use capstan_plan::Ref;
use capstan_runtime::kinds::{DRIVERS, KINDS, Kind};
use capstan_runtime::writer::{Evicted, Sent};
use capstan_runtime::{Class, Error};
use futures::{StreamExt, stream};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;

use super::draining::DrainingPods;
use crate::gpu::Cx;

/// Nodes that are processed concurrently.
const CONCURRENCY: usize = 16;

/// Executes all steps. Returns whether the server rejected an eviction for the first time.
pub(super) async fn act(
    cx: &Cx,
    draining: &DrainingPods,
    steps: Vec<Step>,
    rejections: Vec<RevisionRejection>,
    releases: Vec<MaintenanceAction>,
) -> Result<bool, Error> {
    let mut failed = None;
    for RevisionRejection { daemon_set, rejected } in rejections {
        let set = Ref::of::<DaemonSet>(&cx.settings.namespace, &daemon_set);
        let body = json!({"metadata": {"annotations": {REJECTED: rejected}}});
        failed = failed.or(cx.runtime.writer.merge(&set, body).await.err());
    }
    for action in releases {
        failed = failed.or(maintain(cx, action).await.err());
    }
    let done = stream::iter(steps).map(|step| execute(cx, draining, step)).buffer_unordered(CONCURRENCY);
    let mut refused = false;
    for result in done.collect::<Vec<_>>().await {
        match result {
            Ok(rejected) => refused |= rejected,
            // Concurrent change of the node: decided again in the next pass.
            Err(error) => match &failed {
                Some(first) if first.class() != Class::Conflict => {}
                _ => failed = Some(error),
            },
        }
    }
    failed.map_or(Ok(refused), Err)
}

/// Executes one step.
async fn execute(cx: &Cx, draining: &DrainingPods, step: Step) -> Result<bool, Error> {
    let (writer, node) = (&cx.runtime.writer, Ref::of::<Node>("", &step.node));
    if !step.patch.is_empty()
        && writer.merge(&node, step.patch.to_json(Some(&step.resource_version))).await? == Sent::No
    {
        return Ok(false);
    }
    if let Some(live) = cx.runtime.cache.get(&node).filter(|_| !step.events.is_empty()) {
        let uid = live["metadata"]["uid"].as_str().unwrap_or_default();
        cx.runtime.events.record_all(&node, uid, &step.events);
    }
    let mut refused = false;
    for pod in step.evict.iter().filter(|pod| draining.is_due(&pod.uid)) {
        let result = writer.evict(&Ref::of::<Pod>(&pod.namespace, &pod.name), &pod.uid).await?;
        if let Evicted::Refused(why) = &result {
            tracing::debug!(pod = %pod.name, why, "eviction refused");
        }
        refused |= draining.record_result(&pod.uid, result);
    }
    if let (Some(pod), Some(row)) = (&step.delete_driver, row(DRIVERS)) {
        writer.remove(row, &Ref::of::<Pod>(&pod.namespace, &pod.name), &pod.uid).await?;
    }
    if let Some(action) = step.maintenance {
        maintain(cx, action).await?;
    }
    Ok(refused)
}

fn row(slice: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|row| row.slice == slice)
}

/// Creates, shares or deletes a NodeMaintenance.
async fn maintain(cx: &Cx, action: MaintenanceAction) -> Result<(), Error> {
    let (cache, writer) = (&cx.runtime.cache, &cx.runtime.writer);
    match action {
        MaintenanceAction::Create(object) => {
            let meta = &object.metadata;
            let named = |name: &Option<String>| name.clone().unwrap_or_default();
            let reference = Ref::of::<NodeMaintenance>(&named(&meta.namespace), &named(&meta.name));
            writer.create(&reference, &serde_json::to_value(&*object).unwrap_or_default()).await
        }
        MaintenanceAction::Share { namespace, name, additional, resource_version } => {
            let reference = Ref::of::<NodeMaintenance>(&namespace, &name);
            let meta = json!({"resourceVersion": resource_version});
            let body = json!({"metadata": meta, "spec": {"additionalRequestors": additional}});
            writer.merge(&reference, body).await.map(drop)
        }
        MaintenanceAction::Delete { namespace, name } => {
            let reference = Ref::of::<NodeMaintenance>(&namespace, &name);
            let Some(live) = cache.get(&reference) else { return Ok(()) };
            let uid = live["metadata"]["uid"].as_str().unwrap_or_default();
            writer.remove(cache.kind(&reference.gvk)?, &reference, uid).await
        }
    }
}

#[cfg(test)]
mod tests {
    use capstan_runtime::Settings;

    use super::*;

    #[test]
    fn a_deleted_driver_pod_is_taken_out_of_the_cache_that_it_is_in() {
        let driver = row(DRIVERS).unwrap();
        let cached = Settings::default().kinds;
        assert!(cached.iter().any(|row| std::ptr::eq(row, driver)), "the cache does not know this row");
    }
}
