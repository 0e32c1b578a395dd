//! DaemonSet controller: one pod on every eligible node.

mod copies;
mod eligibility;
mod rollout;
mod set_index;
mod status;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use capstan_apiserver::error::Result;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::backoff::Backoff;
use super::common::{Controller, Outcome, Reconciled, created_at, debounce_delay, name_of, uid_of};
use super::pods;
use super::revision::{Found, History, REVISION_HASH, VersionedSet};
use crate::Pod;
use crate::context::Context;
use crate::informer::key_of;
use copies::PodTemplates;
use eligibility::{Eligibility, EligibilityRules, taints};
use set_index::{IndexedPod, SetIndex, SetIndexes};

/// Maximum number of pods that one reconcile creates or deletes.
const BURST_REPLICAS: usize = 250;
/// Older clients identify the template generation of a set and its pods by this label.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Backoff before a failed pod on a node is replaced.
type Failures = Backoff<(Arc<str>, String)>;

pub(crate) fn start(context: &Context, copies: bool) {
    let controller = Controller::new(context, "daemon-set-controller", "daemonset-controller");
    let caches = &context.caches;
    // Indexes subscribe first: they must be updated before the controller is enqueued.
    let set_indexes = SetIndexes::start(context);
    controller.watch(&caches.daemon_sets);
    controller.watch_owned::<DaemonSet, _>(&caches.pods);
    controller.watch_owned::<DaemonSet, _>(&caches.controller_revisions);
    watch_nodes(&controller, &set_indexes);
    let failures = Arc::new(Failures::new(Duration::from_secs(1), Duration::from_secs(15 * 60)));
    let template_copies = PodTemplates::start(&caches.daemon_sets, copies);
    controller.run(2, move |this, key| {
        let (failures, template_copies, set_indexes) = (failures.clone(), template_copies.clone(), set_indexes.clone());
        async move { reconcile(&this, &failures, &template_copies, &set_indexes, &key).await }
    });
}

/// Enqueues the sets whose pods a node change affects. With many nodes the delay grows, as each reconcile lists all
/// nodes.
fn watch_nodes(controller: &Controller, set_indexes: &Arc<SetIndexes>) {
    let (caches, set_indexes) = (&controller.context.caches, set_indexes.clone());
    let (queue, sets, nodes) = (controller.queue.clone(), caches.daemon_sets.clone(), caches.nodes.downgrade());
    controller.context.caches.nodes.subscribe(move |change| {
        if let (Some(old), Some(new)) = (change.old, change.new)
            && has_same_eligibility(old, new)
        {
            return;
        }
        set_indexes.note_node(change.key);
        for set in sets.list() {
            let rules = EligibilityRules::of(&set);
            let [old, new] = [change.old, change.new].map(|node| node.map(|node| rules.evaluate(node)));
            if old != new {
                queue.add_after(key_of(&set.metadata), debounce_delay(nodes.upgrade().map_or(0, |nodes| nodes.len())));
            }
        }
    });
}

/// Whether the same pods can run on the old and the new version of a node.
fn has_same_eligibility(old: &Node, new: &Node) -> bool {
    old.metadata.labels == new.metadata.labels && taints(old) == taints(new)
}

async fn reconcile(
    this: &Controller,
    failures: &Failures,
    template_copies: &PodTemplates,
    set_indexes: &SetIndexes,
    key: &str,
) -> Reconciled {
    let Some(set) = this.context.caches.daemon_sets.get(key) else { return Ok(Outcome::Done) };
    if capstan_semantics::label_selector::is_empty(&set.spec.selector) {
        let message = "This daemon set is selecting all pods. A non-empty selector is required.";
        this.warning(&*set, "SelectingAll", message);
        return Ok(Outcome::Done);
    }
    if set.metadata.deletion_timestamp.is_some() {
        return Ok(Outcome::Done);
    }
    let Some(history) = find_history(this, &set).await? else { return Ok(Outcome::RequeueAfter(Duration::ZERO)) };
    let mut step = Step::new(this, template_copies, set_indexes, set, &history);
    let outcome = step.run(failures, &history).await;
    set_indexes.put(&step.set, step.set_index);
    outcome
}

async fn find_history(this: &Controller, set: &Arc<DaemonSet>) -> Result<Option<History>> {
    let collisions = set.status.as_ref().and_then(|status| status.collision_count);
    let revised = VersionedSet {
        owner: &**set,
        selector: &set.spec.selector,
        template: &set.spec.template,
        collisions,
        hash_label: REVISION_HASH,
    };
    match revised.history(this).await? {
        Found::History(history) => Ok(Some(history)),
        Found::Collision => {
            let mut next = DaemonSet::clone(set);
            next.status.get_or_insert_default().collision_count = Some(collisions.unwrap_or(0) + 1);
            this.writer.update_status(set, &next).await?;
            Ok(None)
        }
    }
}

/// One reconcile of a daemon set.
struct Step<'a> {
    this: &'a Controller,
    template_copies: &'a PodTemplates,
    set_indexes: &'a SetIndexes,
    set: Arc<DaemonSet>,
    /// Start of the reconcile.
    now: Time,
    /// Hash of the current ControllerRevision.
    hash: String,
    /// Nodes, their eligibility, and the pods of the set.
    set_index: SetIndex,
    /// `maxSurge` and `maxUnavailable` of the rollout, as counts.
    bounds: (usize, usize),
    /// Requeue delay, if a pod becomes available by time alone.
    wait: Option<Duration>,
}

impl<'a> Step<'a> {
    fn new(
        this: &'a Controller,
        template_copies: &'a PodTemplates,
        set_indexes: &'a SetIndexes,
        set: Arc<DaemonSet>,
        history: &History,
    ) -> Self {
        let labels = history.current.metadata.labels.as_ref();
        let hash = labels.and_then(|labels| labels.get(REVISION_HASH)).cloned().unwrap_or_default();
        let set_index = set_indexes.take(&set, &hash, &this.context.caches);
        let bounds = rollout::bounds(
            &set,
            set_index.nodes().filter(|(_, eligibility, _)| *eligibility == Eligibility::ShouldRun).count(),
        );
        Self { this, template_copies, set_indexes, set, now: this.now(), hash, set_index, bounds, wait: None }
    }

    async fn run(&mut self, failures: &Failures, history: &History) -> Reconciled {
        self.claim().await?;
        let managed = self.manage(failures).await;
        if managed.is_ok() {
            if self.is_rolling_update() {
                self.roll().await?;
            }
            self.clean_up(history).await?;
        }
        let wait = self.write_status().await?;
        managed.map(|soon| Outcome::requeue_after([wait, soon, self.wait].into_iter().flatten().min()))
    }

    /// Adopts orphan pods and releases pods that the set no longer selects.
    async fn claim(&mut self) -> Result<()> {
        let (cache, unselected) = (&self.this.context.caches.pods, self.set_index.unselected());
        for unselected_pod in unselected.iter().filter_map(|key| cache.get(key)) {
            self.this.release(&*self.set, &unselected_pod).await?;
        }
        let adopted = self.this.adopt(&*self.set, &self.set.spec.selector, cache).await?;
        if !unselected.is_empty() || !adopted.is_empty() {
            self.refresh();
        }
        Ok(())
    }

    fn refresh(&mut self) {
        self.set_indexes.refresh(&mut self.set_index, &self.set, &self.this.context.caches);
    }

    /// The pods under these keys that still exist.
    fn read<'k>(&self, keys: impl IntoIterator<Item = &'k Arc<str>>) -> Vec<Arc<Pod>> {
        keys.into_iter().filter_map(|key| self.this.context.caches.pods.get(key)).collect()
    }

    /// The pods without a deletion timestamp.
    fn not_deleting<'p>(&self, pods: impl IntoIterator<Item = &'p IndexedPod>) -> Vec<Arc<Pod>> {
        self.read(pods.into_iter().filter(|indexed| !indexed.is_deleting).map(|indexed| &indexed.key))
    }

    fn is_available(&self, indexed: &IndexedPod) -> bool {
        indexed.until_available(self.set.spec.min_ready_seconds, &self.now).is_some_and(|left| left.is_zero())
    }

    /// Creates missing pods and deletes surplus ones. Returns when to retry failed pods.
    async fn manage(&mut self, failures: &Failures) -> Result<Option<Duration>> {
        let (mut missing, mut surplus, mut soon, mut crowded) = (Vec::new(), Vec::new(), None, Vec::new());
        for (node, eligibility, pods) in self.set_index.nodes() {
            match (eligibility, pods) {
                (Eligibility::ShouldRun, []) => missing.push(node.clone()),
                (Eligibility::Ineligible, pods) => surplus.extend(self.not_deleting(pods)),
                // The usual case for nearly every node.
                (_, []) => {}
                (_, [indexed]) if !indexed.is_terminal => {}
                (_, pods) => crowded.push((node.clone(), self.not_deleting(pods))),
            }
        }
        for (node, pods) in crowded {
            surplus.extend(self.surplus_on(&node, pods, failures, &mut soon));
        }
        // Pods that are bound to deleted nodes.
        let orphaned = self.set_index.entries.values().filter(|node_entry| node_entry.eligibility.is_none());
        let orphaned = orphaned.flat_map(|node_entry| self.not_deleting(&node_entry.pods));
        surplus.extend(orphaned.filter(|pod| pods::node_name(pod).is_empty()));
        self.sync(surplus, missing).await?;
        Ok(soon)
    }

    /// Pods on a node to delete, because they finished or are duplicates.
    fn surplus_on(
        &mut self,
        node: &str,
        pods: Vec<Arc<Pod>>,
        failures: &Failures,
        soon: &mut Option<Duration>,
    ) -> Vec<Arc<Pod>> {
        let (mut surplus, mut running) = (Vec::new(), Vec::new());
        for pod in pods {
            let name = name_of(&*pod).to_owned();
            match pods::phase(&pod) {
                "Failed" => match failures.next((key_of(&self.set.metadata), node.to_owned())) {
                    Some(wait) => *soon = Some(soon.map_or(wait, |soon| soon.min(wait))),
                    None => {
                        let message = format!(
                            "Found failed daemon pod {} on node {node}, will try to kill it",
                            key_of(&pod.metadata)
                        );
                        self.this.warning(&*self.set, "FailedDaemonPod", message);
                        surplus.push(pod);
                    }
                },
                "Succeeded" => {
                    let namespace = self.set.metadata.namespace.as_deref().unwrap_or_default();
                    let message =
                        format!("Found succeeded daemon pod {namespace}/{name} on node {node}, will try to delete it");
                    self.this.normal(&*self.set, "SucceededDaemonPod", message);
                    surplus.push(pod);
                }
                _ => running.push(pod),
            }
        }
        running.sort_by_key(|pod| (pods::node_name(pod).is_empty(), created_at(&**pod), name_of(&**pod).to_owned()));
        if self.has_surge() {
            surplus.extend(self.surplus_of_surge(running));
        } else {
            surplus.extend(running.into_iter().skip(1));
        }
        surplus
    }

    /// With `maxSurge`, an old and a new pod share a node until the new one is available.
    fn surplus_of_surge(&mut self, running: Vec<Arc<Pod>>) -> Vec<Arc<Pod>> {
        let (new, old): (Vec<_>, Vec<_>) = running.into_iter().partition(|pod| self.set_index.is_updated(pod));
        let mut surplus: Vec<_> = new.iter().skip(1).chain(old.iter().skip(1)).cloned().collect();
        if let (Some(new), Some(old)) = (new.first(), old.first()) {
            let left = pods::until_available(new, self.set.spec.min_ready_seconds, &self.now);
            match left {
                _ if !pods::is_ready(old) => surplus.push(old.clone()),
                Some(Duration::ZERO) => surplus.push(old.clone()),
                Some(left) => self.requeue_after(left),
                None => {}
            }
        }
        surplus
    }

    fn requeue_after(&mut self, delay: Duration) {
        self.wait = Some(self.wait.map_or(delay, |wait| wait.min(delay)));
    }

    /// Deletes pods and creates pods on nodes.
    async fn sync(&mut self, surplus: Vec<Arc<Pod>>, missing: Vec<Arc<str>>) -> Result<()> {
        if surplus.is_empty() && missing.is_empty() {
            return Ok(());
        }
        if surplus.len() > BURST_REPLICAS || missing.len() > BURST_REPLICAS {
            self.this.queue.add(key_of(&self.set.metadata));
        }
        let failure = self.create(&missing[..missing.len().min(BURST_REPLICAS)]).await;
        let mut deleted = HashSet::new();
        for pod in surplus.iter().take(BURST_REPLICAS) {
            if deleted.insert(uid_of(&**pod)) {
                self.delete(pod).await?;
            }
        }
        if let Some(error) = failure.filter(|error| !super::common::namespace_is_terminating(error)) {
            return Err(error);
        }
        self.refresh();
        Ok(())
    }

    async fn clean_up(&self, history: &History) -> Result<()> {
        let limit = self.set.spec.revision_history_limit;
        if !history.is_longer_than(limit) {
            return Ok(());
        }
        let not_deleting = self.not_deleting(self.set_index.pods());
        let hashes = not_deleting.iter().filter_map(|pod| pod.metadata.labels.as_ref()?.get(REVISION_HASH));
        let hashes: HashSet<&String> = hashes.collect();
        let used = hashes.into_iter().map(|hash| format!("{}-{hash}", name_of(&*self.set))).collect();
        history.clean_up(self.this, limit, &used).await
    }
}
