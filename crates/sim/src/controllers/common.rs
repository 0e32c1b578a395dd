//! Shared parts of controllers: identity, ownership, workqueue, percentages.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use capstan_apiserver::error::{Result, Status};
use capstan_apiserver::ops::DeleteOptions;
use capstan_workqueue::Queue;
use futures::FutureExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::pods::controller_ref;
use crate::Pod;
use crate::context::Context;
use crate::events::{Recorder, Severity};
use crate::informer::{Cache, Kind, controller_of, key_of};
use crate::writer::{Writer, is_conflict, is_not_found};
use capstan_semantics::label_selector::selects;

/// Whether a key is requeued after a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Not requeued: the next change triggers a reconcile.
    Done,
    /// Requeued after this delay.
    RequeueAfter(Duration),
}

impl Outcome {
    /// Requeued after this delay, if there is one.
    pub(crate) fn requeue_after(delay: Option<Duration>) -> Self {
        delay.map_or(Self::Done, Self::RequeueAfter)
    }
}

/// Result of a reconcile.
pub(crate) type Reconciled = Result<Outcome, Status>;

/// A controller: its identity and its workqueue.
#[derive(Clone)]
pub(crate) struct Controller {
    /// Name, for logs.
    pub(crate) name: &'static str,
    /// The cluster.
    pub(crate) context: Context,
    /// Writes as the controller's service account.
    pub(crate) writer: Writer,
    /// Reports events as the controller.
    pub(crate) recorder: Recorder,
    /// The workqueue.
    pub(crate) queue: Queue,
}

impl Controller {
    /// A controller that writes as service account `account` and reports events as `component`.
    pub(crate) fn new(context: &Context, account: &'static str, component: &str) -> Self {
        let queue = Queue::default();
        let keys = queue.clone();
        context.gauges.add(format!("queue of {account}"), move || keys.held());
        Self {
            name: account,
            context: context.clone(),
            writer: context.controller(account),
            recorder: context.recorder(component),
            queue,
        }
    }

    /// Enqueues every object of a kind when it changes.
    pub(crate) fn watch<K: Kind>(&self, cache: &Cache<K>) {
        let queue = self.queue.clone();
        cache.subscribe(move |change| queue.add(change.key.clone()));
    }

    /// Enqueues the controlling owner of an object when the object changes, if the owner is an `O`. The delay grows
    /// with the number of owned objects: a reconcile lists all of them, and thousands of changes must not cause
    /// thousands of reconciles.
    pub(crate) fn watch_owned<O: Kind, K: Kind>(&self, cache: &Cache<K>) {
        let (queue, owned) = (self.queue.clone(), cache.downgrade());
        cache.subscribe(move |change| {
            let same = |old: &K, new: &K| controller_of(old.metadata()) == controller_of(new.metadata());
            let left = change.old.filter(|old| change.new.is_none_or(|new| !same(old, new)));
            for object in [left, change.new].into_iter().flatten() {
                let Some(key) = owner_key::<O>(object.metadata()) else { continue };
                let uid = controller_of(object.metadata()).map_or("", |owner| owner.uid.as_str());
                let count = owned.upgrade().map_or(0, |owned| owned.count_controlled_by(uid));
                queue.add_after(key, debounce_delay(count));
            }
        });
    }

    /// Runs the workers of the queue until the cluster stops.
    pub(crate) fn run<F, R>(self, workers: usize, reconcile: F)
    where
        F: Fn(Arc<Self>, Arc<str>) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Reconciled> + Send + 'static,
    {
        let this = Arc::new(self);
        for _ in 0..workers {
            let (this, reconcile) = (this.clone(), reconcile.clone());
            this.context.clone().spawn(async move {
                loop {
                    let key = this.queue.next().await;
                    // A panic fails one reconcile, not the controller.
                    let ended = AssertUnwindSafe(reconcile(this.clone(), key.clone())).catch_unwind().await;
                    // Other components share this thread.
                    tokio::task::yield_now().await;
                    this.finish(key, ended.unwrap_or_else(|_| Err(Status::internal("a reconcile panicked"))));
                }
            });
        }
    }

    fn finish(&self, key: Arc<str>, ended: Reconciled) {
        match ended {
            Ok(outcome) => {
                self.queue.forget(&key);
                if let Outcome::RequeueAfter(delay) = outcome {
                    self.queue.add_after(key.clone(), delay);
                }
            }
            Err(error) => {
                if !is_conflict(&error) && !is_not_found(&error) {
                    tracing::debug!(controller = self.name, %key, %error, "reconcile failed");
                }
                self.queue.retry(key.clone());
            }
        }
        self.queue.done(&key);
    }

    /// The current time in whole seconds.
    pub(crate) fn now(&self) -> Time {
        self.context.now()
    }

    /// Records a `Normal` event.
    pub(crate) fn normal<K: Kind>(&self, about: &K, reason: &'static str, message: impl Into<String>) {
        self.recorder.event(about, Severity::Normal, reason, message);
    }

    /// Records a `Warning` event.
    pub(crate) fn warning<K: Kind>(&self, about: &K, reason: &'static str, message: impl Into<String>) {
        self.recorder.event(about, Severity::Warning, reason, message);
    }

    /// The objects that `owner` controls, after adopting orphans that match its selector and releasing objects that no
    /// longer match.
    pub(crate) async fn claim<O: Kind, K: Kind>(
        &self,
        owner: &O,
        selector: &LabelSelector,
        cache: &Cache<K>,
    ) -> Result<Vec<Arc<K>>> {
        let meta = owner.metadata();
        let mine = cache.controlled_by(meta.uid.as_deref().unwrap_or_default());
        let mut claimed = Vec::with_capacity(mine.len());
        for object in mine {
            if selects(selector, object.metadata().labels.as_ref()) {
                claimed.push(object);
            } else if meta.deletion_timestamp.is_none() {
                self.release(owner, &object).await?;
            }
        }
        if meta.deletion_timestamp.is_none() {
            claimed.extend(self.adopt(owner, selector, cache).await?);
        }
        Ok(claimed)
    }

    /// Adopts orphans that match the selector of `owner`.
    pub(crate) async fn adopt<O: Kind, K: Kind>(
        &self,
        owner: &O,
        selector: &LabelSelector,
        cache: &Cache<K>,
    ) -> Result<Vec<Arc<K>>> {
        let (meta, mut taken) = (owner.metadata(), Vec::new());
        let orphans = cache.orphans(meta.namespace.as_deref().unwrap_or_default());
        for orphan in orphans {
            let theirs = orphan.metadata();
            if theirs.deletion_timestamp.is_none() && selects(selector, theirs.labels.as_ref()) {
                let mut adopted = K::clone(&orphan);
                adopted.metadata_mut().owner_references.get_or_insert_default().push(controller_ref(owner));
                match self.writer.update(&orphan, &adopted).await {
                    Ok(adopted) => taken.push(adopted),
                    Err(error) if is_not_found(&error) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(taken)
    }

    /// Releases an object that `owner` controls.
    pub(crate) async fn release<O: Kind, K: Kind>(&self, owner: &O, object: &Arc<K>) -> Result<()> {
        let mut released = K::clone(object);
        let uid = owner.metadata().uid.as_deref();
        let owners = released.metadata_mut().owner_references.get_or_insert_default();
        owners.retain(|reference| Some(reference.uid.as_str()) != uid);
        ignore_not_found(self.writer.update(object, &released).await.map(drop))
    }

    /// Creates pods in batches that double while creates succeed (slow start), so that a server that rejects them all
    /// gets one request. Returns how many were created, and the error that stopped the rest.
    pub(crate) async fn create_pods<O: Kind>(&self, owner: &O, pods: Vec<Pod>) -> (usize, Option<Status>) {
        let (mut left, mut batch, mut created) = (pods.as_slice(), 1, 0);
        while !left.is_empty() {
            let (now, later) = left.split_at(batch.min(left.len()));
            let mut failure = None;
            for pod in now {
                match self.writer.create(pod).await {
                    Ok(pod) => {
                        created += 1;
                        let name = pod.metadata.name.as_deref().unwrap_or_default();
                        self.normal(owner, "SuccessfulCreate", format!("Created pod: {name}"));
                    }
                    Err(error) => failure = Some(error),
                }
                // Scheduler and kubelets must keep up with the creates.
                tokio::task::yield_now().await;
            }
            if let Some(error) = failure {
                if !namespace_is_terminating(&error) {
                    self.warning(owner, "FailedCreate", format!("Error creating: {error}"));
                }
                return (created, Some(error));
            }
            (left, batch) = (later, batch * 2);
        }
        (created, None)
    }

    /// Deletes a pod that `owner` controls.
    pub(crate) async fn delete_pod<O: Kind>(&self, owner: &O, pod: &Pod) -> Result<()> {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        match self.writer.delete(pod, DeleteOptions::default()).await {
            Ok(()) => {
                self.normal(owner, "SuccessfulDelete", format!("Deleted pod: {name}"));
                Ok(())
            }
            Err(error) if is_not_found(&error) || is_conflict(&error) => Ok(()),
            Err(error) => {
                self.warning(owner, "FailedDelete", format!("Error deleting: {error}"));
                Err(error)
            }
        }
    }
}

/// Debounce delay of an owner by the number of its objects: none for few, longer for thousands.
pub(crate) fn debounce_delay(owned: usize) -> Duration {
    let each = match owned {
        ..100 => Duration::ZERO,
        100..2000 => Duration::from_micros(200),
        _ => Duration::from_millis(1),
    };
    each.saturating_mul(u32::try_from(owned).unwrap_or(u32::MAX))
}

/// Treats `NotFound` as success.
pub(crate) fn ignore_not_found(result: Result<()>) -> Result<()> {
    match result {
        Err(error) if is_not_found(&error) => Ok(()),
        other => other,
    }
}

/// Whether a create failed only because the namespace is terminating, which ends the work anyway.
pub(crate) fn namespace_is_terminating(error: &Status) -> bool {
    error.code == 403 && error.message.contains("because it is being terminated")
}

/// The key of the controlling owner, if it is an `O`.
pub(crate) fn owner_key<O: Kind>(meta: &ObjectMeta) -> Option<Arc<str>> {
    let owner = controller_of(meta).filter(|owner| owner.kind == O::KIND)?;
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    let meta =
        ObjectMeta { name: Some(owner.name.clone()), namespace: meta.namespace.clone(), ..ObjectMeta::default() };
    (group == O::GROUP).then(|| key_of(&meta))
}

/// Rounding of a fractional pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// Up to the next integer.
    Up,
    /// Down.
    Down,
}

/// Resolves an int-or-percent of `total`.
pub(crate) fn scaled(value: Option<&IntOrString>, total: i32, round: Round) -> i32 {
    match value {
        None => 0,
        Some(IntOrString::Int(count)) => *count,
        Some(IntOrString::String(text)) => {
            let percent = text.strip_suffix('%').and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
            let (exact, extra) = (percent * i64::from(total), if round == Round::Up { 99 } else { 0 });
            i32::try_from((exact + extra).div_euclid(100)).unwrap_or(i32::MAX)
        }
    }
}

/// `None` for zero, as Go's `omitempty` does.
pub(crate) fn nonzero(count: i32) -> Option<i32> {
    (count != 0).then_some(count)
}

/// Name of a stored object, which always has one.
pub(crate) fn name_of<K: Kind>(object: &K) -> &str {
    object.metadata().name.as_deref().unwrap_or_default()
}

/// Namespace of an object; empty if cluster-scoped.
pub(crate) fn namespace_of<K: Kind>(object: &K) -> &str {
    object.metadata().namespace.as_deref().unwrap_or_default()
}

/// UID of a stored object, which always has one.
pub(crate) fn uid_of<K: Kind>(object: &K) -> &str {
    object.metadata().uid.as_deref().unwrap_or_default()
}

/// Creation time in seconds.
pub(crate) fn created_at<K: Kind>(object: &K) -> i64 {
    object.metadata().creation_timestamp.as_ref().map_or(0, |time| time.0.as_second())
}

/// The value of an annotation.
pub(crate) fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The parsed number of an annotation.
pub(crate) fn parse_annotation<T: std::str::FromStr>(meta: &ObjectMeta, key: &str) -> Option<T> {
    annotation(meta, key)?.parse().ok()
}

/// Sets a label or an annotation. Returns whether the value changed.
pub(crate) fn set_in(map: &mut Option<BTreeMap<String, String>>, key: &str, value: impl Into<String>) -> bool {
    let value = value.into();
    let map = map.get_or_insert_default();
    if map.get(key) == Some(&value) {
        return false;
    }
    map.insert(key.to_owned(), value);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_rounded_as_asked() {
        let percent = |text: &str| Some(IntOrString::String(text.to_owned()));
        for (value, total, up, down) in [
            (None, 10, 0, 0),
            (Some(IntOrString::Int(3)), 10, 3, 3),
            (percent("25%"), 10, 3, 2),
            (percent("0%"), 10, 0, 0),
            (percent("100%"), 7, 7, 7),
            (percent("1%"), 3, 1, 0),
        ] {
            assert_eq!(scaled(value.as_ref(), total, Round::Up), up, "{value:?} of {total}");
            assert_eq!(scaled(value.as_ref(), total, Round::Down), down, "{value:?} of {total}");
        }
    }
}
