//! Deployment controller: one ReplicaSet per revision of the template, and rollouts between them.
//!
//! A reconcile does one step and writes the resulting status; the change of the ReplicaSets triggers the next
//! reconcile.

mod rollout;
mod scale;
mod sets;
mod status;

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

use super::common::{Controller, Outcome, Reconciled, Round, annotation, owner_key, scaled};
use super::pods;
use crate::context::Context;
use capstan_semantics::label_selector;

/// Revision number of a ReplicaSet.
pub(crate) const REVISION: &str = "deployment.kubernetes.io/revision";
/// Earlier revision numbers of a ReplicaSet.
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// `spec.replicas` of the Deployment when the ReplicaSet was last scaled.
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// Replicas plus `maxSurge` of the Deployment at that time.
const MAX: &str = "deployment.kubernetes.io/max-replicas";
/// Label that separates the pods of one revision from others.
pub(crate) const TEMPLATE_HASH: &str = "pod-template-hash";

pub(crate) fn start(context: &Context) {
    let controller = Controller::new(context, "deployment-controller", "deployment-controller");
    controller.watch(&context.caches.deployments);
    controller.watch_owned::<Deployment, _>(&context.caches.replica_sets);
    watch_pods(&controller);
    controller.run(2, |this, key| async move { reconcile(&this, &key).await });
}

/// The strategy `Recreate` waits for the last old pod to terminate.
fn watch_pods(controller: &Controller) {
    let (queue, caches) = (controller.queue.clone(), controller.context.caches.clone());
    controller.context.caches.pods.subscribe(move |change| {
        if change.new.is_some_and(|pod| !pods::is_terminal(pod)) {
            return;
        }
        let set = owner_key::<ReplicaSet>(&change.last().metadata).and_then(|key| caches.replica_sets.get(&key));
        let key = set.and_then(|set| owner_key::<Deployment>(&set.metadata));
        let Some(key) = key else { return };
        if caches.deployments.get(&key).is_some_and(|deployment| recreates(&deployment)) {
            queue.add(key);
        }
    });
}

async fn reconcile(this: &Controller, key: &str) -> Reconciled {
    let Some(deployment) = this.context.caches.deployments.get(key) else { return Ok(Outcome::Done) };
    if label_selector::is_empty(&deployment.spec.selector) {
        let message = "This deployment is selecting all pods. A non-empty selector is required.";
        this.warning(&*deployment, "SelectingAll", message);
        return Ok(Outcome::Done);
    }
    let sets = this.claim(&*deployment, &deployment.spec.selector, &this.context.caches.replica_sets).await?;
    let mut step = Step { this, deployment, sets };
    if step.deployment.metadata.deletion_timestamp.is_some() {
        return step.write_status().await;
    }
    step.record_pause().await?;
    if is_paused(&step.deployment) || step.is_scaled() {
        step.sync_new_set(sets::IfMissing::Skip).await?;
        step.scale().await?;
        if is_paused(&step.deployment) {
            step.clean_up().await?;
        }
        return step.write_status().await;
    }
    if recreates(&step.deployment) { step.recreate().await } else { step.roll().await }
}

/// One reconcile of a deployment.
struct Step<'a> {
    this: &'a Controller,
    deployment: Arc<Deployment>,
    /// All ReplicaSets of the Deployment.
    sets: Vec<Arc<ReplicaSet>>,
}

impl Step<'_> {
    /// The ReplicaSet of the current template, if it exists.
    fn new_set(&self) -> Option<Arc<ReplicaSet>> {
        let mut sets = self.sets.clone();
        super::replica_set::by_age(&mut sets);
        // The oldest match wins, so that the choice is stable when the hash algorithm changes.
        sets.into_iter().find(|set| sets::same_template(set, &self.deployment))
    }

    /// All ReplicaSets except that of the current template, oldest first.
    fn old_sets(&self) -> Vec<Arc<ReplicaSet>> {
        let new = self.new_set().map(|set| set.metadata.uid.clone());
        let mut old: Vec<_> = self.sets.iter().filter(|set| Some(&set.metadata.uid) != new.as_ref()).cloned().collect();
        super::replica_set::by_age(&mut old);
        old
    }

    /// Replaces a ReplicaSet by its updated version.
    fn put(&mut self, set: Arc<ReplicaSet>) {
        match self.sets.iter_mut().find(|mine| mine.metadata.uid == set.metadata.uid) {
            Some(mine) => *mine = set,
            None => self.sets.push(set),
        }
    }

    fn replicas(&self) -> i32 {
        self.deployment.spec.replicas.unwrap_or(1)
    }

    fn max_surge(&self) -> i32 {
        if recreates(&self.deployment) { 0 } else { bounds(&self.deployment).0 }
    }

    fn max_unavailable(&self) -> i32 {
        max_unavailable(&self.deployment)
    }

    /// Whether `spec.replicas` changed since the ReplicaSets were last scaled.
    fn is_scaled(&self) -> bool {
        let wanted = self.replicas().to_string();
        self.sets
            .iter()
            .any(|set| replicas(set) > 0 && annotation(&set.metadata, DESIRED).is_some_and(|desired| desired != wanted))
    }
}

/// `spec.replicas` of a ReplicaSet.
fn replicas(set: &ReplicaSet) -> i32 {
    set.spec.replicas.unwrap_or(1)
}

fn available(set: &ReplicaSet) -> i32 {
    set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0)
}

fn total(sets: &[Arc<ReplicaSet>]) -> i32 {
    sets.iter().map(|set| replicas(set)).sum()
}

fn is_paused(deployment: &Deployment) -> bool {
    deployment.spec.paused == Some(true)
}

fn recreates(deployment: &Deployment) -> bool {
    deployment.spec.strategy.as_ref().and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate")
}

/// `maxSurge` and `maxUnavailable` as counts. They cannot both be zero, or the rollout could not progress.
fn bounds(deployment: &Deployment) -> (i32, i32) {
    let replicas = deployment.spec.replicas.unwrap_or(1);
    let rolling = deployment.spec.strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    let surge = scaled(rolling.and_then(|rolling| rolling.max_surge.as_ref()), replicas, Round::Up);
    let unavailable = scaled(rolling.and_then(|rolling| rolling.max_unavailable.as_ref()), replicas, Round::Down);
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
}

fn max_unavailable(deployment: &Deployment) -> i32 {
    let replicas = deployment.spec.replicas.unwrap_or(1);
    if recreates(deployment) || replicas == 0 { 0 } else { bounds(deployment).1.min(replicas) }
}
