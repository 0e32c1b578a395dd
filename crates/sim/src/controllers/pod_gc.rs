//! Pod garbage collection: pods of deleted nodes, and the oldest terminated pods.

use std::sync::Arc;
use std::time::Duration;

use capstan_apiserver::error::Result;
use capstan_apiserver::ops::DeleteOptions;
use k8s_openapi::api::core::v1::PodCondition;

use super::common::{Controller, Outcome, Reconciled, created_at, ignore_not_found};
use super::pods;
use crate::Pod;
use crate::context::Context;
use crate::informer::key_of;

/// Delay before pods of a deleted node are collected, as the node may be registered again.
const QUARANTINE: Duration = Duration::from_secs(40);
/// Maximum number of terminated pods that are retained.
const MAX_TERMINATED_PODS: usize = 12_500;
/// Queue key of the count of terminated pods: no pod has it.
const TERMINATED_COUNT_KEY: &str = "";
/// Debounce before terminated pods are counted.
const COUNT_DELAY: Duration = Duration::from_secs(20);

pub(crate) fn start(context: &Context) {
    let controller = Controller::new(context, "pod-garbage-collector", "pod-garbage-collector");
    let caches = &context.caches;
    let (queue, nodes) = (controller.queue.clone(), caches.nodes.clone());
    caches.pods.subscribe(move |change| {
        let Some(pod) = change.new else { return };
        let (node, before) = (pods::node_name(pod), change.old.map(|pod| pods::node_name(pod)));
        let node_is_deleted = !node.is_empty() && before != Some(node) && nodes.get(node).is_none();
        if node_is_deleted || (node.is_empty() && pods::is_deleting(pod)) {
            queue.add_after(change.key.clone(), if node_is_deleted { QUARANTINE } else { Duration::ZERO });
        }
        if pods::is_terminal(pod) && change.old.is_none_or(|old| !pods::is_terminal(old)) {
            queue.add_after(TERMINATED_COUNT_KEY.into(), COUNT_DELAY);
        }
    });
    let (queue, all) = (controller.queue.clone(), caches.pods.clone());
    caches.nodes.subscribe(move |change| {
        if change.new.is_none() {
            for pod in all.on_node(change.key) {
                queue.add_after(key_of(&pod.metadata), QUARANTINE);
            }
        }
    });
    controller.run(1, |this, key| async move { reconcile(&this, &key).await });
}

async fn reconcile(this: &Controller, key: &str) -> Reconciled {
    if key == TERMINATED_COUNT_KEY {
        return delete_oldest_terminated(this).await;
    }
    let Some(pod) = this.context.caches.pods.get(key) else { return Ok(Outcome::Done) };
    let node = pods::node_name(&pod);
    if node.is_empty() {
        if pods::is_deleting(&pod) {
            remove(this, &pod, None).await?;
        }
    } else if this.context.caches.nodes.get(node).is_none() {
        remove(this, &pod, Some("PodGC: node no longer exists")).await?;
    }
    Ok(Outcome::Done)
}

async fn delete_oldest_terminated(this: &Controller) -> Reconciled {
    let mut ended: Vec<Arc<Pod>> =
        this.context.caches.pods.list().into_iter().filter(|pod| pods::is_terminal(pod)).collect();
    ended.sort_by_key(|pod| created_at(&**pod));
    let surplus = ended.len().saturating_sub(MAX_TERMINATED_PODS);
    for pod in &ended[..surplus] {
        remove(this, pod, None).await?;
    }
    Ok(Outcome::Done)
}

/// Force-deletes a pod. One that has not terminated is marked `Failed` first, with a reason.
async fn remove(this: &Controller, pod: &Arc<Pod>, why: Option<&str>) -> Result<()> {
    if let Some(why) = why.filter(|_| !pods::is_terminal(pod)) {
        let mut next = Pod::clone(pod);
        let status = next.status.get_or_insert_default();
        status.phase = Some("Failed".to_owned());
        set_disruption_target(status.conditions.get_or_insert_default(), "DeletionByPodGC", why, this);
        ignore_not_found(this.writer.update_status(pod, &next).await.map(drop))?;
    }
    let options = DeleteOptions { grace: Some(0), ..DeleteOptions::default() };
    ignore_not_found(this.writer.delete(&**pod, options).await)
}

/// Sets the `DisruptionTarget` condition.
pub(crate) fn set_disruption_target(
    conditions: &mut Vec<PodCondition>,
    reason: &str,
    message: &str,
    this: &Controller,
) {
    const KIND: &str = "DisruptionTarget";
    conditions.retain(|condition| condition.type_ != KIND);
    conditions.push(PodCondition {
        type_: KIND.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: Some(this.now()),
        ..PodCondition::default()
    });
}
