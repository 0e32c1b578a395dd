//! Taint-based eviction: evicts pods that do not tolerate a `NoExecute` taint, at once or after `tolerationSeconds`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use capstan_apiserver::error::Result;
use capstan_apiserver::ops::DeleteOptions;
use k8s_openapi::api::core::v1::{Node, Taint};
use tokio::time::Instant;

use super::super::common::{Controller, Outcome, Reconciled, ignore_not_found, uid_of};
use super::super::pod_gc::set_disruption_target;
use super::super::pods;
use crate::Pod;
use crate::context::Context;
use crate::informer::key_of;
use capstan_semantics::taints::tolerates;

/// Start of the toleration period of pods, by UID.
type PendingEvictions = Mutex<HashMap<String, Instant>>;

pub(super) fn start(context: &Context) {
    let controller = Controller::new(context, "node-controller", "taint-eviction-controller");
    let caches = &context.caches;
    let pending = Arc::new(PendingEvictions::default());
    let (queue, nodes, forgotten) = (controller.queue.clone(), caches.nodes.clone(), pending.clone());
    caches.pods.subscribe(move |change| {
        let Some(pod) = change.new else {
            forgotten.lock().unwrap_or_else(PoisonError::into_inner).remove(uid_of(&**change.last()));
            return;
        };
        let node = pods::node_name(pod);
        let same =
            |old: &Arc<Pod>| pods::node_name(old) == node && pods::spec(old).tolerations == pods::spec(pod).tolerations;
        if node.is_empty() || change.old.is_some_and(same) {
            return;
        }
        if nodes.get(node).is_some_and(|node| !no_execute(&node).is_empty()) {
            queue.add(change.key.clone());
        }
    });
    let (queue, all) = (controller.queue.clone(), caches.pods.clone());
    caches.nodes.subscribe(move |change| {
        let taints = |node: Option<&Arc<Node>>| node.map(|node| no_execute(node)).unwrap_or_default();
        if taints(change.old) != taints(change.new) {
            for pod in all.on_node(change.key) {
                queue.add(key_of(&pod.metadata));
            }
        }
    });
    controller.run(2, move |this, key| {
        let pending = pending.clone();
        async move { reconcile(&this, &pending, &key).await }
    });
}

fn no_execute(node: &Node) -> Vec<Taint> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref()).into_iter().flatten();
    taints.filter(|taint| taint.effect == "NoExecute").cloned().collect()
}

async fn reconcile(this: &Controller, pending: &PendingEvictions, key: &str) -> Reconciled {
    let Some(pod) = this.context.caches.pods.get(key).filter(|pod| pods::is_active(pod)) else {
        return Ok(Outcome::Done);
    };
    let node = this.context.caches.nodes.get(pods::node_name(&pod));
    let taints = node.map(|node| no_execute(&node)).unwrap_or_default();
    let Some(stay) = toleration_period(&pod, &taints) else {
        let cancelled = pending.lock().unwrap_or_else(PoisonError::into_inner).remove(uid_of(&*pod)).is_some();
        if cancelled {
            this.normal(&*pod, "TaintManagerEviction", format!("Cancelling deletion of Pod {key}"));
        }
        return Ok(Outcome::Done);
    };
    let since = {
        let mut pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
        *pending.entry(uid_of(&*pod).to_owned()).or_insert_with(Instant::now)
    };
    let left = (since + stay).saturating_duration_since(Instant::now());
    if !left.is_zero() {
        return Ok(Outcome::RequeueAfter(left));
    }
    evict(this, &pod, key).await?;
    Ok(Outcome::Done)
}

/// How long a pod tolerates the taints; `None` for ever.
fn toleration_period(pod: &Pod, taints: &[Taint]) -> Option<Duration> {
    let tolerations = pods::spec(pod).tolerations.as_deref().unwrap_or_default();
    let mut least = None::<Duration>;
    for taint in taints {
        let mut tolerated = false;
        for toleration in tolerations.iter().filter(|toleration| tolerates(toleration, taint)) {
            tolerated = true;
            if let Some(seconds) = toleration.toleration_seconds {
                let stay = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
                least = Some(least.map_or(stay, |least| least.min(stay)));
            }
        }
        if !tolerated {
            return Some(Duration::ZERO);
        }
    }
    least
}

async fn evict(this: &Controller, pod: &Arc<Pod>, key: &str) -> Result<()> {
    this.normal(&**pod, "TaintManagerEviction", format!("Marking for deletion Pod {key}"));
    let mut next = Pod::clone(pod);
    let conditions = next.status.get_or_insert_default().conditions.get_or_insert_default();
    let message = "Taint manager: deleting due to NoExecute taint";
    set_disruption_target(conditions, "DeletionByTaintManager", message, this);
    ignore_not_found(this.writer.update_status(pod, &next).await.map(drop))?;
    ignore_not_found(this.writer.delete(&**pod, DeleteOptions::default()).await)
}
