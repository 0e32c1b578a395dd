//! Schema skew: installs our CRDs where permitted, and otherwise reports differences to the user.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use capstan_api::crd::Entry;
use capstan_plan::{Gvk, Note, Ref, Severity};
use capstan_runtime::queue::Queue;
use capstan_runtime::{Anchor, Cache, Key, Runtime};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::crds;

/// Timeout until a CRD is served.
const SERVED_TIMEOUT: Duration = Duration::from_secs(30);
/// CRDs that are processed concurrently.
const CONCURRENCY: usize = 8;
/// Delay after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Whether CRDs are installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Install {
    /// Never installed.
    Never,
    /// Installed, and kept when the release is uninstalled.
    Kept,
    /// Installed with an owner reference: deleted with the release, and with them all objects of their kinds.
    Tied(Anchor),
}

/// Type of the condition.
const CONDITION: &str = "SchemaSkew";

/// Which objects to requeue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Affected {
    /// Every object.
    All,
    /// Those with the SchemaSkew condition.
    WithSkewCondition,
}

/// Requeues the objects of a controller.
type RequeueFn = Box<dyn Fn(Affected) + Send + Sync>;

/// Differences between the installed schemas and ours, by kind. Clones share one state.
#[derive(Clone)]
pub(crate) struct Schemas {
    runtime: Runtime,
    shared: Arc<Shared>,
}

struct Shared {
    /// Checked kinds, with the message if there is skew.
    skew: Mutex<BTreeMap<&'static str, Option<String>>>,
    requeue: Mutex<Vec<RequeueFn>>,
    changed: Notify,
    checked: watch::Sender<bool>,
    /// Serializes processing: each schema takes megabytes, and memory of several at once is not all returned.
    permit: tokio::sync::Mutex<()>,
}

impl Schemas {
    /// Subscribes to CRD changes.
    pub(crate) fn new(runtime: &Runtime) -> Self {
        let shared = Arc::new(Shared {
            skew: Mutex::default(),
            requeue: Mutex::default(),
            changed: Notify::new(),
            checked: watch::Sender::new(false),
            permit: tokio::sync::Mutex::default(),
        });
        let (notified, definition) = (shared.clone(), Gvk::of::<CustomResourceDefinition>());
        runtime.cache.subscribe(move |change| {
            // CRD status changes are frequent; only the generation tells that a schema changed.
            let generation = |object: Option<&capstan_plan::Live>| object.map(|o| o["metadata"]["generation"].clone());
            let ours = || capstan_api::kinds().any(|kind| *change.key.name == *kind.crd_name());
            if change.kind.is(&definition) && generation(change.old) != generation(change.new) && ours() {
                notified.changed.notify_one();
            }
        });
        Self { runtime: runtime.clone(), shared }
    }

    /// The skew message for an object; before the first check, that of its condition.
    pub(crate) fn skew(&self, object: &Ref) -> Option<String> {
        let known = self.shared.skew.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get(&*object.gvk.kind) {
            Some(message) => message.clone(),
            None => skew_condition(&*self.runtime.cache.get(object)?),
        }
    }

    /// Registers the queue of a controller, to requeue its objects when a schema changes.
    pub(crate) fn requeue_on_change<K: kube::Resource<DynamicType = ()>>(&self, queue: Queue<Key>, cache: &Cache) {
        let (cache, gvk) = (cache.clone(), Gvk::of::<K>());
        let requeue = move |affected| match affected {
            Affected::All => cache.keys(&gvk).into_iter().for_each(|key| queue.add(key)),
            Affected::WithSkewCondition => {
                let all = cache.all(&gvk);
                all.iter().filter(|live| skew_condition(live).is_some()).for_each(|live| queue.add(Key::of(live)));
            }
        };
        self.shared.requeue.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(requeue));
    }

    /// Waits until all schemas were checked.
    pub(crate) async fn checked(&self) {
        // The sender lives as long as `self`.
        let _ = self.shared.checked.subscribe().wait_for(|checked| *checked).await;
    }

    /// Installs and compares, at the start and whenever one of our CRDs changes, while the gate is open.
    pub(crate) async fn follow(self, install: Install, stop: CancellationToken) {
        let run = async {
            loop {
                self.runtime.gate.opened().await;
                match self.reconcile(&install).await {
                    Ok(()) => {
                        self.shared.checked.send_replace(true);
                        self.shared.changed.notified().await;
                    }
                    Err(error) => {
                        tracing::warn!(error, "CRD check failed; retrying");
                        tokio::time::sleep(RETRY_DELAY).await;
                    }
                }
            }
        };
        stop.run_until_cancelled(run).await;
    }

    async fn reconcile(&self, install: &Install) -> Result<(), String> {
        let owner = match install {
            Install::Tied(anchor) => anchor.reference(&self.runtime.client).await.map_err(|error| error.chain())?,
            Install::Never | Install::Kept => None,
        };
        let apply = *install != Install::Never;
        let mut kinds = capstan_api::kinds();
        let mut tasks = JoinSet::new();
        loop {
            while tasks.len() < CONCURRENCY
                && let Some(kind) = kinds.next()
            {
                let (this, owner) = (self.clone(), owner.clone());
                tasks.spawn(async move {
                    let message = this.settle(kind, apply, owner.as_ref()).await?;
                    this.publish(kind, message);
                    Ok::<_, crds::Error>(())
                });
            }
            match tasks.join_next().await {
                Some(Ok(result)) => result.map_err(|error| error.to_string())?,
                Some(Err(panic)) => tracing::error!(%panic, "CRD check panicked"),
                None => return Ok(()),
            }
        }
    }

    /// Installs one CRD if permitted and due. Returns the message if skew remains.
    async fn settle(
        &self,
        kind: &Entry,
        apply: bool,
        owner: Option<&OwnerReference>,
    ) -> Result<Option<String>, crds::Error> {
        let permit = self.shared.permit.lock().await;
        let found = crds::find(&self.runtime.client, kind).await?;
        // Never downgrade a newer schema: its fields would be pruned from stored objects.
        let due = found.as_ref().is_none_or(|found| {
            let tied = found.anchors.iter().map(|anchor| anchor.uid.as_str());
            found.skew.unknown.is_empty()
                && (!found.skew.missing.is_empty() || !tied.eq(owner.iter().map(|owner| owner.uid.as_str())))
        });
        if apply && due {
            crds::send(&self.runtime.client, kind, owner).await?;
            drop(permit);
            crds::served(&self.runtime.client, kind, SERVED_TIMEOUT).await?;
            return Ok(None);
        }
        // A kind that is not installed has no objects.
        Ok(found.and_then(|found| found.skew.message(&kind.crd_name())))
    }

    fn publish(&self, kind: &'static Entry, message: Option<String>) {
        let before = self.shared.skew.lock().unwrap_or_else(PoisonError::into_inner).insert(kind.kind, message.clone());
        if before.as_ref() == Some(&message) {
            return;
        }
        if let Some(message) = &message {
            tracing::warn!(kind = kind.kind, message, "schema skew detected");
            let reference = Ref::of::<CustomResourceDefinition>("", &kind.crd_name());
            let live = self.runtime.cache.get(&reference);
            let uid = live.as_ref().and_then(|live| live["metadata"]["uid"].as_str()).unwrap_or_default();
            let note = Note { severity: Severity::Warning, reason: CONDITION, message: message.clone() };
            self.runtime.events.record(&reference, uid, &note);
        }
        // No skew on the first check: only objects with the condition need an update.
        let affected = if before.is_none() && message.is_none() { Affected::WithSkewCondition } else { Affected::All };
        for requeue in self.shared.requeue.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            requeue(affected);
        }
    }
}

/// The message of the SchemaSkew condition of an object.
fn skew_condition(live: &Value) -> Option<String> {
    let conditions = live["status"]["conditions"].as_array()?;
    let condition = conditions.iter().find(|one| one["type"] == CONDITION && one["status"] == "True")?;
    condition["message"].as_str().map(str::to_owned)
}
