//! Doing what a pass decided: on each node the patch first, and only if that went through the rest; several nodes at
//! once.

use capstan_api::foreign::NodeMaintenance;
use capstan_operands::gpu::upgrade::{MaintenanceAction, REJECTED, RevisionNote, Step};
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

/// Nodes that are worked on at once.
const CONCURRENCY: usize = 16;

/// Does everything. True if the server refused an eviction that it did not refuse before.
pub(super) async fn act(
    cx: &Cx,
    draining: &DrainingPods,
    steps: Vec<Step>,
    notes: Vec<RevisionNote>,
    releases: Vec<MaintenanceAction>,
) -> Result<bool, Error> {
    let mut failed = None;
    for RevisionNote { daemon_set, rejected } in notes {
        let set = Ref::of::<DaemonSet>(&cx.settings.namespace, &daemon_set);
        let body = json!({"metadata": {"annotations": {REJECTED: rejected}}});
        failed = failed.or(cx.runtime.writer.merge(&set, body).await.err());
    }
    for action in releases {
        failed = failed.or(maintain(cx, action).await.err());
    }
    let done = stream::iter(steps).map(|step| one(cx, draining, step)).buffer_unordered(CONCURRENCY);
    let mut refused = false;
    for result in done.collect::<Vec<_>>().await {
        match result {
            Ok(news) => refused |= news,
            // Somebody else has changed the node: what to do there is decided again.
            Err(error) => match &failed {
                Some(first) if first.class() != Class::Conflict => {}
                _ => failed = Some(error),
            },
        }
    }
    failed.map_or(Ok(refused), Err)
}

/// Does one step.
async fn one(cx: &Cx, draining: &DrainingPods, step: Step) -> Result<bool, Error> {
    let (writer, node) = (&cx.runtime.writer, Ref::of::<Node>("", &step.node));
    if !step.patch.is_empty()
        && writer.merge(&node, step.patch.to_json(Some(&step.resource_version))).await? == Sent::No
    {
        return Ok(false);
    }
    if let Some(live) = cx.runtime.cache.get(&node).filter(|_| !step.notes.is_empty()) {
        let uid = live["metadata"]["uid"].as_str().unwrap_or_default();
        cx.runtime.events.record_all(&node, uid, &step.notes);
    }
    let mut refused = false;
    for pod in step.evict.iter().filter(|pod| draining.is_due(&pod.uid)) {
        let answer = writer.evict(&Ref::of::<Pod>(&pod.namespace, &pod.name), &pod.uid).await?;
        if let Evicted::Refused(why) = &answer {
            tracing::debug!(pod = %pod.name, why, "eviction refused");
        }
        refused |= draining.answered(&pod.uid, answer);
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

/// Asks for maintenance of a node, or no longer does.
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
