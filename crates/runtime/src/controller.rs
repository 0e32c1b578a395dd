//! The controller loop: a work queue of keys, at most one reconcile per key at a time, several keys concurrently.
//!
//! A reconcile reads the cache, decides and writes; it keeps no state between calls. A failed one is retried with
//! backoff; one that panics fails only its key.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use capstan_plan::{Gvk, Live, Note, Severity};
use futures::FutureExt;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::Runtime;
use crate::cache::{Change, Key};
use crate::error::{Class, Error};
use crate::kinds::Scope;
use crate::queue::Queue;

/// Debounce of changes of owned objects: a pod is created, scheduled and started, and its workload counts it. One
/// reconcile after this delay sees all of it.
pub const DEBOUNCE: Duration = Duration::from_millis(200);

/// What to do after a reconcile that succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// Wait for a change.
    #[default]
    AwaitChange,
    /// Requeue after this delay, or on a change before.
    Requeue(Duration),
}

/// A key to reconcile, and its delay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requeue {
    /// The key.
    pub key: Key,
    /// Delay: one reconcile sees all changes meanwhile.
    pub after: Duration,
}

impl Requeue {
    /// Without delay.
    pub fn now(key: Key) -> Self {
        Self { key, after: Duration::ZERO }
    }

    /// After a delay.
    pub fn after(key: Key, after: Duration) -> Self {
        Self { key, after }
    }

    /// All of `keys`, after a delay.
    pub fn all(keys: impl IntoIterator<Item = Key>, after: Duration) -> Vec<Self> {
        keys.into_iter().map(|key| Self { key, after }).collect()
    }
}

/// A controller under construction, and then run.
pub struct Controller {
    name: &'static str,
    runtime: Runtime,
    queue: Queue<Key>,
    concurrency: usize,
}

impl Controller {
    /// A controller of the objects of type `K`: each is reconciled once at the start, whenever it changes other than by
    /// our own status write, and whenever an object that it controls changes.
    pub fn of<K: kube::Resource<DynamicType = ()>>(name: &'static str, runtime: &Runtime) -> Self {
        let queue = Queue::default();
        let (keys, gvk) = (queue.clone(), Gvk::of::<K>());
        let scope = runtime.cache.kind(&gvk).map_or(Scope::Namespaced, |kind| kind.scope);
        runtime.cache.subscribe(move |change| {
            if change.kind.is(&gvk) {
                // Our own status write needs no reconcile, but our own spec write does: one controller may create the
                // objects of another.
                let generation = |object: Option<&Live>| object.map(|live| live["metadata"]["generation"].clone());
                if !change.own_write || generation(change.old) != generation(change.new) {
                    keys.add(change.key.clone());
                }
                return;
            }
            // Both the old and the new owner are reconciled.
            for object in [change.old, change.new].into_iter().flatten() {
                if let Some(key) = controller_key(object, &gvk, scope) {
                    keys.add_after(key, DEBOUNCE);
                }
            }
        });
        Self { name, runtime: runtime.clone(), queue, concurrency: 4 }
    }

    /// A controller without a kind: only keys that are added to its queue are reconciled.
    pub fn bare(name: &'static str, runtime: &Runtime) -> Self {
        Self { name, runtime: runtime.clone(), queue: Queue::default(), concurrency: 1 }
    }

    /// Reconciles the keys that `affected` maps a change of any kind to. It runs inside the watch: it must be fast and
    /// must not block.
    pub fn watching(self, affected: impl Fn(&Change<'_>) -> Vec<Requeue> + Send + Sync + 'static) -> Self {
        let queue = self.queue.clone();
        self.runtime.cache.subscribe(move |change| {
            for Requeue { key, after } in affected(change) {
                if after.is_zero() { queue.add(key) } else { queue.add_after(key, after) }
            }
        });
        self
    }

    /// Number of keys that are reconciled at once.
    pub fn concurrency(self, concurrency: usize) -> Self {
        Self { concurrency: concurrency.max(1), ..self }
    }

    /// The work queue; tests and the dashboard add keys.
    pub fn queue(&self) -> Queue<Key> {
        self.queue.clone()
    }

    /// Reconciles until `stop`, once the cache has synced and while the gate is open. Running reconciles are finished.
    pub async fn run<F, Fut>(self, stop: CancellationToken, reconcile: F)
    where
        F: Fn(Key) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Action, Error>> + Send + 'static,
    {
        let (this, reconcile) = (Arc::new(self), Arc::new(reconcile));
        let mut workers = JoinSet::new();
        for _ in 0..this.concurrency {
            let (this, reconcile, stop) = (this.clone(), reconcile.clone(), stop.clone());
            workers.spawn(async move { this.run_worker(&stop, &*reconcile).await });
        }
        workers.join_all().await;
    }

    async fn run_worker<F, Fut>(&self, stop: &CancellationToken, reconcile: &F)
    where
        F: Fn(Key) -> Fut,
        Fut: Future<Output = Result<Action, Error>>,
    {
        let next = || async {
            self.runtime.cache.synced().await;
            loop {
                self.runtime.gate.opened().await;
                let key = self.queue.next().await;
                if self.runtime.gate.is_open() {
                    return key;
                }
                // The gate closed while we waited: the next leader reconciles the key.
                self.queue.add(key.clone());
                self.queue.done(&key);
            }
        };
        while let Some(key) = stop.run_until_cancelled(next()).await {
            self.runtime.metrics.queue_depth(self.name, self.queue.depth());
            let span = tracing::info_span!("reconcile", controller = self.name, object = %key);
            self.reconcile_one(key, reconcile).instrument(span).await;
            self.runtime.metrics.queue_depth(self.name, self.queue.depth());
        }
    }

    async fn reconcile_one<F, Fut>(&self, key: Key, reconcile: &F)
    where
        F: Fn(Key) -> Fut,
        Fut: Future<Output = Result<Action, Error>>,
    {
        let started = Instant::now();
        // The call itself may panic, before there is a future.
        let call = AssertUnwindSafe(async { reconcile(key.clone()).await });
        let result = call.catch_unwind().await.unwrap_or_else(|panic| Err(Error::Panic(message(&*panic))));
        self.runtime.metrics.reconciled(self.name, started.elapsed(), result.as_ref().err().map(Error::class));
        match result {
            Ok(action) => {
                tracing::debug!(?action, "reconciled");
                self.queue.forget(&key);
                if let Action::Requeue(delay) = action {
                    self.queue.add_after(key.clone(), delay);
                }
            }
            Err(error) => self.failed(&key, &error),
        }
        self.queue.done(&key);
    }

    fn failed(&self, key: &Key, error: &Error) {
        let failures = self.queue.record_failure(key, |streak| streak.record(error.class()));
        let delay = error.delay(failures);
        match error.class() {
            Class::Conflict | Class::NotLeader => {
                tracing::debug!(error = error.chain(), failures, ?delay, "reconcile requeued")
            }
            Class::Panic => tracing::error!(error = error.chain(), failures, ?delay, "reconcile panicked; retrying"),
            _ => tracing::warn!(error = error.chain(), failures, ?delay, "reconcile failed; retrying"),
        }
        if let Error::Undecodable { reference, uid, reason } = error {
            self.runtime.events.record(reference, uid, &unreadable(reason));
        }
        self.queue.add_after(key.clone(), delay);
    }
}

/// The event for an object that cannot be decoded.
pub(crate) fn unreadable(reason: &str) -> Note {
    let message = format!("cannot read this object, so it is left alone: {reason}");
    Note { severity: Severity::Warning, reason: "Unreadable", message }
}

/// The key of the controlling owner of an object, if that is of kind `gvk`. The version may differ.
fn controller_key(object: &Value, gvk: &Gvk, scope: Scope) -> Option<Key> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == true)?;
    let group = owner["apiVersion"].as_str()?.rsplit_once('/').map_or("", |(group, _)| group);
    let namespace = match scope {
        Scope::Namespaced => object["metadata"]["namespace"].as_str().unwrap_or_default(),
        Scope::Cluster => "",
    };
    (owner["kind"] == *gvk.kind && group == gvk.group)
        .then(|| owner["name"].as_str().map(|name| Key::new(namespace, name)))?
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}
