//! ReplicaSet controller: maintains the number of pods of a template.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use capstan_apiserver::error::{Result, Status};
use futures::future::join_all;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::common::{
    Controller, Outcome, Reconciled, created_at, namespace_is_terminating, nonzero, parse_annotation, uid_of,
};
use super::pods::{self, from_template};
use crate::Pod;
use crate::context::Context;
use crate::informer::controller_of;
use capstan_semantics::label_selector::{contains, selects};

/// Maximum number of pods that one reconcile creates or deletes.
const BURST_REPLICAS: usize = 500;

pub(crate) fn start(context: &Context) {
    let controller = Controller::new(context, "replicaset-controller", "replicaset-controller");
    controller.watch(&context.caches.replica_sets);
    controller.watch_owned::<ReplicaSet, _>(&context.caches.pods);
    watch_orphans(&controller);
    controller.run(4, |this, key| async move { reconcile(&this, &key).await });
}

/// An orphan pod may match any ReplicaSet of its namespace.
fn watch_orphans(controller: &Controller) {
    let (queue, sets) = (controller.queue.clone(), controller.context.caches.replica_sets.clone());
    controller.context.caches.pods.subscribe(move |change| {
        let Some(pod) = change.new.filter(|pod| controller_of(&pod.metadata).is_none()) else { return };
        for set in sets.in_namespace(pod.metadata.namespace.as_deref().unwrap_or_default()) {
            if selects(&set.spec.selector, pod.metadata.labels.as_ref()) {
                queue.add(crate::informer::key_of(&set.metadata));
            }
        }
    });
}

async fn reconcile(this: &Controller, key: &str) -> Reconciled {
    let Some(set) = this.context.caches.replica_sets.get(key) else { return Ok(Outcome::Done) };
    let pods = this.claim(&*set, &set.spec.selector, &this.context.caches.pods).await?;
    let (mut active, mut terminating) = (Vec::new(), 0);
    for pod in pods {
        if pods::is_active(&pod) {
            active.push(pod);
        } else if pods::is_deleting(&pod) && !pods::is_terminal(&pod) {
            terminating += 1;
        }
    }
    let managed = if set.metadata.deletion_timestamp.is_none() { manage(this, &set, &active).await } else { Ok(()) };
    let status = status(this, &set, &active, terminating, managed.as_ref().err());
    let wait = until_available(&set, &status, &active, &this.now());
    let mut next = ReplicaSet::clone(&set);
    next.status = Some(status);
    this.writer.update_status(&set, &next).await?;
    match managed {
        Err((_, error)) if !namespace_is_terminating(&error) => Err(error),
        _ => Ok(Outcome::requeue_after(wait)),
    }
}

type Failure = (&'static str, Status);

/// Creates or deletes pods to reach the desired count.
async fn manage(this: &Controller, set: &Arc<ReplicaSet>, active: &[Arc<Pod>]) -> Result<(), Failure> {
    let wanted = usize::try_from(set.spec.replicas.unwrap_or(1)).unwrap_or(0);
    if active.len() < wanted {
        let Some(template) = &set.spec.template else { return Ok(()) };
        let missing = (wanted - active.len()).min(BURST_REPLICAS);
        let (created, failure) = this.create_pods(&**set, vec![from_template(template, &**set); missing]).await;
        if failure.is_none() && active.len() + created < wanted {
            this.queue.add(crate::informer::key_of(&set.metadata));
        }
        return failure.map_or(Ok(()), |error| Err(("FailedCreate", error)));
    }
    let surplus = (active.len() - wanted).min(BURST_REPLICAS);
    let victims = rank_for_deletion(this, set, active, surplus);
    let deletions = join_all(victims.iter().map(|pod| this.delete_pod(&**set, pod))).await;
    deletions.into_iter().collect::<Result<()>>().map_err(|error| ("FailedDelete", error))
}

/// Ranks pods for deletion: not yet running, colocated, young ones first.
fn rank_for_deletion(this: &Controller, set: &ReplicaSet, active: &[Arc<Pod>], count: usize) -> Vec<Arc<Pod>> {
    if count == 0 || count == active.len() {
        return active[..count].to_vec();
    }
    let crowd = pods_per_node(this, set);
    let now = this.now();
    let mut pods = active.to_vec();
    pods.sort_by_cached_key(|pod| {
        let phase = match pods::phase(pod) {
            "Pending" => 0,
            "Running" => 2,
            _ => 1,
        };
        let cost: i32 = parse_annotation(&pod.metadata, "controller.kubernetes.io/pod-deletion-cost").unwrap_or(0);
        let neighbours = crowd.get(pods::node_name(pod)).copied().unwrap_or(0);
        (
            !pods::node_name(pod).is_empty(),
            phase,
            pods::is_ready(pod),
            cost,
            Reverse(neighbours),
            age_class(pods::ready_since(pod).and_then(|ready| ready.last_transition_time.as_ref()), &now),
            Reverse(pods::restarts(pod)),
            age_class(pod.metadata.creation_timestamp.as_ref(), &now),
            pod.metadata.uid.clone(),
        )
    });
    pods.truncate(count);
    pods
}

/// Age on a logarithmic scale, so that pods of similar age are picked at random.
fn age_class(time: Option<&Time>, now: &Time) -> i64 {
    let seconds = time.map_or(0, |time| now.0.as_second() - time.0.as_second()).max(0);
    if seconds == 0 { 0 } else { i64::from(seconds.ilog2()) + 1 }
}

/// Number of pods of the same Deployment per node.
fn pods_per_node(this: &Controller, set: &ReplicaSet) -> HashMap<String, usize> {
    let caches = &this.context.caches;
    let related = match controller_of(&set.metadata) {
        Some(owner) => caches.replica_sets.controlled_by(&owner.uid),
        None => vec![Arc::new(set.clone())],
    };
    let mut pods_per_node = HashMap::new();
    for set in related {
        for pod in caches.pods.controlled_by(uid_of(&*set)).iter().filter(|pod| pods::is_active(pod)) {
            *pods_per_node.entry(pods::node_name(pod).to_owned()).or_default() += 1;
        }
    }
    pods_per_node
}

fn status(
    this: &Controller,
    set: &ReplicaSet,
    active: &[Arc<Pod>],
    terminating: i32,
    failure: Option<&Failure>,
) -> ReplicaSetStatus {
    let now = this.now();
    let template = set.spec.template.as_ref().and_then(|template| template.metadata.as_ref());
    let labels = template.and_then(|meta| meta.labels.clone()).unwrap_or_default();
    let count = |test: &dyn Fn(&Pod) -> bool| i32::try_from(active.iter().filter(|pod| test(pod)).count()).unwrap_or(0);
    let old = set.status.clone().unwrap_or_default();
    ReplicaSetStatus {
        replicas: count(&|_| true),
        fully_labeled_replicas: nonzero(count(&|pod| contains(pod.metadata.labels.as_ref(), &labels))),
        ready_replicas: nonzero(count(&pods::is_ready)),
        available_replicas: nonzero(count(&|pod| pods::is_available(pod, set.spec.min_ready_seconds, &now))),
        terminating_replicas: Some(terminating),
        observed_generation: set.metadata.generation,
        conditions: conditions(old.conditions, failure, &now),
    }
}

/// The `ReplicaFailure` condition, present only while creates or deletes fail.
fn conditions(
    old: Option<Vec<ReplicaSetCondition>>,
    failure: Option<&Failure>,
    now: &Time,
) -> Option<Vec<ReplicaSetCondition>> {
    const KIND: &str = "ReplicaFailure";
    let mut conditions = old.unwrap_or_default();
    match failure {
        None => conditions.retain(|condition| condition.type_.as_deref() != Some(KIND)),
        Some(_) if conditions.iter().any(|condition| condition.type_.as_deref() == Some(KIND)) => {}
        Some((reason, error)) => conditions.push(ReplicaSetCondition {
            type_: Some(KIND.to_owned()),
            status: Some("True".to_owned()),
            reason: Some((*reason).to_owned()),
            message: Some(error.to_string()),
            last_transition_time: Some(now.clone()),
        }),
    }
    (!conditions.is_empty()).then_some(conditions)
}

/// Delay until the next ready pod becomes available.
fn until_available(set: &ReplicaSet, status: &ReplicaSetStatus, active: &[Arc<Pod>], now: &Time) -> Option<Duration> {
    if status.ready_replicas == status.available_replicas {
        return None;
    }
    let waits = active.iter().filter_map(|pod| pods::until_available(pod, set.spec.min_ready_seconds, now));
    waits.filter(|wait| !wait.is_zero()).min()
}

/// Oldest first.
pub(crate) fn by_age(sets: &mut [Arc<ReplicaSet>]) {
    sets.sort_by_key(|set| (created_at(&**set), set.metadata.name.clone()));
}
