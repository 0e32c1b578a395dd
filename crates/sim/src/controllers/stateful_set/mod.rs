//! StatefulSet controller: pods with stable names, in order, each with its own volumes.

mod identity;
mod rollout;
mod status;
mod volumes;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use capstan_apiserver::error::Result;
use capstan_apiserver::ops::DeleteOptions;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};

use super::common::{Controller, Outcome, Reconciled, name_of, namespace_of};
use super::pods;
use super::revision::{self, Found, History, REVISION_HASH, VersionedSet};
use crate::Pod;
use crate::context::Context;
use crate::writer::{is_already_exists, is_not_found};
use identity::{matches_identity, ordinal, pod_for, set_identity};

pub(crate) fn start(context: &Context) {
    let controller = Controller::new(context, "statefulset-controller", "statefulset-controller");
    let caches = &context.caches;
    controller.watch(&caches.stateful_sets);
    controller.watch_owned::<StatefulSet, _>(&caches.pods);
    controller.watch_owned::<StatefulSet, _>(&caches.controller_revisions);
    controller.run(2, |this, key| async move { reconcile(&this, &key).await });
}

async fn reconcile(this: &Controller, key: &str) -> Reconciled {
    let Some(set) = this.context.caches.stateful_sets.get(key) else { return Ok(Outcome::Done) };
    if capstan_semantics::label_selector::is_empty(&set.spec.selector) {
        return Ok(Outcome::Done);
    }
    let Some(history) = find_history(this, &set).await? else { return Ok(Outcome::RequeueAfter(Duration::ZERO)) };
    let mut step = Step::load(this, set, &history).await?;
    let settled = step.sync().await;
    let wait = step.write_status().await?;
    step.clean_up(&history).await?;
    settled.map(|()| Outcome::requeue_after(wait))
}

async fn find_history(this: &Controller, set: &Arc<StatefulSet>) -> Result<Option<History>> {
    let collisions = set.status.as_ref().and_then(|status| status.collision_count);
    let revised = VersionedSet {
        owner: &**set,
        selector: &set.spec.selector,
        template: &set.spec.template,
        collisions,
        hash_label: "controller.kubernetes.io/hash",
    };
    match revised.history(this).await? {
        Found::History(history) => Ok(Some(history)),
        Found::Collision => {
            let mut next = StatefulSet::clone(set);
            next.status.get_or_insert_default().collision_count = Some(collisions.unwrap_or(0) + 1);
            this.writer.update_status(set, &next).await?;
            Ok(None)
        }
    }
}

/// One reconcile of a stateful set.
struct Step<'a> {
    this: &'a Controller,
    set: Arc<StatefulSet>,
    /// `currentRevision`.
    current: Arc<ControllerRevision>,
    /// `updateRevision`.
    update: Arc<ControllerRevision>,
    /// The pods of the desired ordinals; `None` where one is missing.
    replicas: Vec<Option<Arc<Pod>>>,
    /// The pods of all other ordinals, highest first.
    condemned: Vec<Arc<Pod>>,
}

impl<'a> Step<'a> {
    async fn load(this: &'a Controller, set: Arc<StatefulSet>, history: &History) -> Result<Self> {
        let name = set.status.as_ref().and_then(|status| status.current_revision.as_deref());
        let current = history.old.iter().find(|one| Some(name_of(&***one)) == name).unwrap_or(&history.current);
        let wanted = usize::try_from(set.spec.replicas.unwrap_or(1)).unwrap_or(0);
        let mut step = Self {
            this,
            current: current.clone(),
            update: history.current.clone(),
            replicas: vec![None; wanted],
            condemned: Vec::new(),
            set,
        };
        let pods = this.claim(&*step.set, &step.set.spec.selector, &this.context.caches.pods).await?;
        let mut condemned = Vec::new();
        for pod in pods {
            let Some(ordinal) = ordinal(&step.set, &pod) else { continue };
            let index = usize::try_from(ordinal - step.first()).ok();
            match index.and_then(|index| step.replicas.get_mut(index)) {
                Some(slot) => *slot = Some(pod),
                None => condemned.push((ordinal, pod)),
            }
        }
        condemned.sort_by_key(|(ordinal, _)| std::cmp::Reverse(*ordinal));
        step.condemned = condemned.into_iter().map(|(_, pod)| pod).collect();
        Ok(step)
    }

    /// The lowest ordinal.
    fn first(&self) -> i32 {
        self.set.spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or(0)
    }

    /// Whether the pod management policy is `OrderedReady`.
    fn is_ordered(&self) -> bool {
        self.set.spec.pod_management_policy.as_deref() != Some("Parallel")
    }

    fn is_available(&self, pod: &Pod) -> bool {
        is_healthy(pod) && pods::is_available(pod, self.set.spec.min_ready_seconds, &self.this.now())
    }

    /// Does the next possible step: creates missing pods, deletes surplus ones, then rolls old ones, in this order.
    async fn sync(&mut self) -> Result<()> {
        if self.set.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        self.sync_claim_owners().await?;
        for index in 0..self.replicas.len() {
            let settled = self.sync_replica(index).await?;
            if !settled && self.is_ordered() {
                return Ok(());
            }
        }
        if !self.remove_condemned().await? && self.is_ordered() {
            return Ok(());
        }
        self.roll().await
    }

    /// Ensures one pod. Returns whether it exists and is healthy.
    async fn sync_replica(&mut self, index: usize) -> Result<bool> {
        let ordinal = self.first() + i32::try_from(index).unwrap_or(i32::MAX);
        let Some(pod) = self.replicas[index].clone() else {
            let pod = self.build_pod(ordinal);
            self.replicas[index] = self.create(ordinal, &pod).await?;
            return Ok(false);
        };
        if pods::is_terminal(&pod) {
            if !pods::is_deleting(&pod) {
                self.replace_terminated(&pod).await?;
            }
            return Ok(false);
        }
        if pods::is_deleting(&pod) {
            return Ok(false);
        }
        if pods::phase(&pod) == "Pending" {
            self.create_claims(ordinal, &pod).await?;
        }
        if !matches_identity(&self.set, ordinal, &pod) {
            let mut next = Pod::clone(&pod);
            set_identity(&self.set, ordinal, &mut next);
            self.replicas[index] = Some(self.this.writer.update(&pod, &next).await?);
        }
        Ok(self.is_available(&pod))
    }

    async fn replace_terminated(&self, pod: &Pod) -> Result<()> {
        let (namespace, name) = (namespace_of(&*self.set), name_of(&*self.set));
        let pod_name = name_of(pod);
        if pods::phase(pod) == "Failed" {
            let message = format!("StatefulSet {namespace}/{name} is recreating failed Pod {pod_name}");
            self.this.warning(&*self.set, "RecreatingFailedPod", message);
        } else {
            let message = format!("StatefulSet {namespace}/{name} is recreating terminated Pod {pod_name}");
            self.this.normal(&*self.set, "RecreatingTerminatedPod", message);
        }
        self.delete(pod).await
    }

    /// The pod of an ordinal, at the revision that applies to it.
    fn build_pod(&self, ordinal: i32) -> Pod {
        let revision = if self.keeps_current_revision(ordinal) { &self.current } else { &self.update };
        let template = revision::template(revision).unwrap_or_else(|| self.set.spec.template.clone());
        pod_for(&self.set, &template, name_of(&**revision), ordinal)
    }

    async fn create(&self, ordinal: i32, pod: &Pod) -> Result<Option<Arc<Pod>>> {
        self.create_claims(ordinal, pod).await?;
        let (set, name) = (name_of(&*self.set), name_of(pod));
        match self.this.writer.create(pod).await {
            Ok(pod) => {
                let message = format!("create Pod {name} in StatefulSet {set} successful");
                self.this.normal(&*self.set, "SuccessfulCreate", message);
                Ok(Some(pod))
            }
            // A foreign pod has the name: retry, as it may be deleted.
            Err(error) if is_already_exists(&error) => Err(error),
            Err(error) if super::common::namespace_is_terminating(&error) => Ok(None),
            Err(error) => {
                let message = format!("create Pod {name} in StatefulSet {set} failed error: {error}");
                self.this.warning(&*self.set, "FailedCreate", message);
                Err(error)
            }
        }
    }

    async fn delete(&self, pod: &Pod) -> Result<()> {
        let (set, name) = (name_of(&*self.set), name_of(pod));
        match self.this.writer.delete(pod, DeleteOptions::default()).await {
            Ok(()) => {
                let message = format!("delete Pod {name} in StatefulSet {set} successful");
                self.this.normal(&*self.set, "SuccessfulDelete", message);
                Ok(())
            }
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => {
                let message = format!("delete Pod {name} in StatefulSet {set} failed error: {error}");
                self.this.warning(&*self.set, "FailedDelete", message);
                Err(error)
            }
        }
    }

    /// Deletes surplus pods, highest ordinal first. Returns whether none is left.
    async fn remove_condemned(&mut self) -> Result<bool> {
        let first_unhealthy = self.first_unhealthy().map(|pod| name_of(&*pod).to_owned());
        for pod in self.condemned.clone() {
            if pods::is_deleting(&pod) {
                if self.is_ordered() {
                    return Ok(false);
                }
                continue;
            }
            // An unhealthy pod blocks the others, unless it is itself the one to delete.
            if self.is_ordered()
                && !is_healthy(&pod)
                && first_unhealthy.as_deref().is_some_and(|name| name != name_of(&*pod))
            {
                return Ok(false);
            }
            self.own_claims_by_pod(&pod).await?;
            self.delete(&pod).await?;
            if self.is_ordered() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn first_unhealthy(&self) -> Option<Arc<Pod>> {
        let wanted = self.replicas.iter().flatten();
        wanted.chain(self.condemned.iter().rev()).find(|pod| !is_healthy(pod)).cloned()
    }

    async fn clean_up(&self, history: &History) -> Result<()> {
        let pods = self.replicas.iter().flatten().chain(&self.condemned);
        let mut live: HashSet<String> = pods.filter_map(|pod| revision_of(pod).map(str::to_owned)).collect();
        let status = self.set.status.as_ref();
        live.extend(status.and_then(|status| status.current_revision.clone()));
        history.clean_up(self.this, self.set.spec.revision_history_limit, &live).await
    }
}

/// Whether a pod is running, ready and not terminating.
fn is_healthy(pod: &Pod) -> bool {
    pods::phase(pod) == "Running" && pods::is_ready(pod) && !pods::is_deleting(pod)
}

/// Name of the revision that a pod was created from.
fn revision_of(pod: &Pod) -> Option<&str> {
    pod.metadata.labels.as_ref()?.get(REVISION_HASH).map(String::as_str)
}
