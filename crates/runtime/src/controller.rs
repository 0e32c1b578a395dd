//! The loop of a controller: keys in, one reconcile at a time per key, several keys at once.
//!
//! A reconcile reads the cache, decides and writes; it keeps no state between calls. One that fails is tried again with
//! growing delays; one that panics is an error of its key and of nothing else.

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

/// What belongs to an object seldom changes alone: a pod is made, put on a node and started, and its workload counts it.
/// One reconcile after this long sees all of it; who waits for a model to load does not notice.
pub const DEBOUNCE: Duration = Duration::from_millis(200);

/// What to do after a reconcile that succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// Wait for a change.
    #[default]
    Wait,
    /// Wait for a change, but no longer than this.
    Again(Duration),
}

/// A key to reconcile, and how soon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requeue {
    /// Which.
    pub key: Key,
    /// After how long: so one reconcile sees all that changes meanwhile.
    pub after: Duration,
}

impl Requeue {
    /// At once.
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

/// A controller that is being put together, and then run.
pub struct Controller {
    name: &'static str,
    runtime: Runtime,
    queue: Queue<Key>,
    concurrency: usize,
}

impl Controller {
    /// A controller of the custom resources of type `K`: every one of them is looked at once at the start and whenever
    /// it changes, other than by a status of ours, or something that it controls changes.
    pub fn of<K: kube::Resource<DynamicType = ()>>(name: &'static str, runtime: &Runtime) -> Self {
        let queue = Queue::default();
        let (keys, gvk) = (queue.clone(), Gvk::of::<K>());
        let scope = runtime.cache.kind(&gvk).map_or(Scope::Namespaced, |kind| kind.scope);
        runtime.cache.subscribe(move |change| {
            if change.kind.is(&gvk) {
                // A status of ours is no news, but a spec of ours is: one controller may make what another works on.
                let generation = |object: Option<&Live>| object.map(|live| live["metadata"]["generation"].clone());
                if !change.ours || generation(change.old) != generation(change.new) {
                    keys.add(change.key.clone());
                }
                return;
            }
            // Whoever lost the object must know, as must whoever got it.
            for object in [change.old, change.new].into_iter().flatten() {
                if let Some(key) = controller_key(object, &gvk, scope) {
                    keys.add_after(key, DEBOUNCE);
                }
            }
        });
        Self { name, runtime: runtime.clone(), queue, concurrency: 4 }
    }

    /// A controller of something that is no object: only what is added to its queue is reconciled.
    pub fn bare(name: &'static str, runtime: &Runtime) -> Self {
        Self { name, runtime: runtime.clone(), queue: Queue::default(), concurrency: 1 }
    }

    /// Reconciles what is `affected` by a change of anything. It runs inside the watch: it must be quick and not wait.
    pub fn watching(self, affected: impl Fn(&Change<'_>) -> Vec<Requeue> + Send + Sync + 'static) -> Self {
        let queue = self.queue.clone();
        self.runtime.cache.subscribe(move |change| {
            for Requeue { key, after } in affected(change) {
                if after.is_zero() { queue.add(key) } else { queue.add_after(key, after) }
            }
        });
        self
    }

    /// How many keys are worked on at once.
    pub fn concurrency(self, concurrency: usize) -> Self {
        Self { concurrency: concurrency.max(1), ..self }
    }

    /// The keys to look at; tests and the dashboard add some.
    pub fn queue(&self) -> Queue<Key> {
        self.queue.clone()
    }

    /// Reconciles until `stop`, whenever the cache is complete and the gate is open. What runs then is finished.
    pub async fn run<F, Fut>(self, stop: CancellationToken, reconcile: F)
    where
        F: Fn(Key) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Action, Error>> + Send + 'static,
    {
        let (this, reconcile) = (Arc::new(self), Arc::new(reconcile));
        let mut workers = JoinSet::new();
        for _ in 0..this.concurrency {
            let (this, reconcile, stop) = (this.clone(), reconcile.clone(), stop.clone());
            workers.spawn(async move { this.work(&stop, &*reconcile).await });
        }
        workers.join_all().await;
    }

    async fn work<F, Fut>(&self, stop: &CancellationToken, reconcile: &F)
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
                // The gate closed while we waited: whoever opens it next looks at the key.
                self.queue.add(key.clone());
                self.queue.done(&key);
            }
        };
        while let Some(key) = stop.run_until_cancelled(next()).await {
            self.runtime.metrics.queue_depth(self.name, self.queue.depth());
            let span = tracing::info_span!("reconcile", controller = self.name, object = %key);
            self.one(key, reconcile).instrument(span).await;
            self.runtime.metrics.queue_depth(self.name, self.queue.depth());
        }
    }

    async fn one<F, Fut>(&self, key: Key, reconcile: &F)
    where
        F: Fn(Key) -> Fut,
        Fut: Future<Output = Result<Action, Error>>,
    {
        let started = Instant::now();
        // The call itself may panic too, before there is a future.
        let call = AssertUnwindSafe(async { reconcile(key.clone()).await });
        let result = call.catch_unwind().await.unwrap_or_else(|panic| Err(Error::Panic(message(&*panic))));
        self.runtime.metrics.reconciled(self.name, started.elapsed(), result.as_ref().err().map(Error::class));
        match result {
            Ok(action) => {
                tracing::debug!(?action, "reconciled");
                self.queue.forget(&key);
                if let Action::Again(delay) = action {
                    self.queue.add_after(key.clone(), delay);
                }
            }
            Err(error) => self.failed(&key, &error),
        }
        self.queue.done(&key);
    }

    fn failed(&self, key: &Key, error: &Error) {
        let failures = self.queue.record_failure(key, |streak| streak.another(error.class()));
        let delay = error.delay(failures);
        match error.class() {
            Class::Conflict | Class::NotLeader => tracing::debug!(error = error.chain(), failures, ?delay, "again"),
            Class::Panic => tracing::error!(error = error.chain(), failures, ?delay, "reconcile panicked"),
            _ => tracing::warn!(error = error.chain(), failures, ?delay, "reconcile failed"),
        }
        if let Error::Undecodable { reference, uid, reason } = error {
            self.runtime.events.record(reference, uid, &unreadable(reason));
        }
        self.queue.add_after(key.clone(), delay);
    }
}

/// The note for an object that does not fit its type.
pub(crate) fn unreadable(reason: &str) -> Note {
    let message = format!("cannot read this object, so it is left alone: {reason}");
    Note { severity: Severity::Warning, reason: "Unreadable", message }
}

/// The key of the controller of an object, if that is of kind `gvk`. The version may differ.
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
