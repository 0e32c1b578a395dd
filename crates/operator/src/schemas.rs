//! The CRDs in the cluster against ours: installed when we may, and otherwise told to the user.

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

/// How long a CRD may take to be served.
const SERVED: Duration = Duration::from_secs(30);
/// How many CRDs are looked at at once.
const AT_ONCE: usize = 8;
/// How long to wait after a failure.
const RETRY: Duration = Duration::from_secs(5);

/// Whether CRDs are installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Install {
    /// They are left as they are.
    Never,
    /// They stay when the operator goes.
    Kept,
    /// They go with the release, and with them every object of their kinds.
    Tied(Anchor),
}

/// The condition that users are told with.
const CONDITION: &str = "SchemaSkew";

/// Scope a schema concerns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Every object.
    All,
    /// Those whose status speaks of a schema.
    WithSkewCondition,
}

/// Has a controller look at its objects again.
type Wake = Box<dyn Fn(Scope) + Send + Sync>;

/// How the schemas of the cluster differ from ours, by kind. Clones share one state.
#[derive(Clone)]
pub(crate) struct Schemas {
    runtime: Runtime,
    shared: Arc<Shared>,
}

struct Shared {
    /// Kinds that were looked at, with what is to be said.
    skew: Mutex<BTreeMap<&'static str, Option<String>>>,
    wake: Mutex<Vec<Wake>>,
    changed: Notify,
    checked: watch::Sender<bool>,
    /// One schema is in memory at a time: each takes megabytes, and what many took at once is not all given back.
    turn: tokio::sync::Mutex<()>,
}

impl Schemas {
    /// Follows the CRDs that the cache sees.
    pub(crate) fn new(runtime: &Runtime) -> Self {
        let shared = Arc::new(Shared {
            skew: Mutex::default(),
            wake: Mutex::default(),
            changed: Notify::new(),
            checked: watch::Sender::new(false),
            turn: tokio::sync::Mutex::default(),
        });
        let (told, definition) = (shared.clone(), Gvk::of::<CustomResourceDefinition>());
        runtime.cache.subscribe(move |change| {
            // Status writes of the server come by the dozen; only the generation says that a schema changed.
            let generation = |object: Option<&capstan_plan::Live>| object.map(|o| o["metadata"]["generation"].clone());
            let ours = || capstan_api::kinds().any(|kind| *change.key.name == *kind.crd_name());
            if change.kind.is(&definition) && generation(change.old) != generation(change.new) && ours() {
                told.changed.notify_one();
            }
        });
        Self { runtime: runtime.clone(), shared }
    }

    /// What to tell users of an object about the schema of its kind. Before it was looked at, what they were told.
    pub(crate) fn skew(&self, object: &Ref) -> Option<String> {
        let known = self.shared.skew.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get(&*object.gvk.kind) {
            Some(message) => message.clone(),
            None => told(&*self.runtime.cache.get(object)?),
        }
    }

    /// Looks at every object of a controller when a schema changed.
    pub(crate) fn wake<K: kube::Resource<DynamicType = ()>>(&self, queue: Queue<Key>, cache: &Cache) {
        let (cache, gvk) = (cache.clone(), Gvk::of::<K>());
        let wake = move |whom| match whom {
            Scope::All => cache.keys(&gvk).into_iter().for_each(|key| queue.add(key)),
            Scope::WithSkewCondition => {
                let all = cache.all(&gvk);
                all.iter().filter(|live| told(live).is_some()).for_each(|live| queue.add(Key::of(live)));
            }
        };
        self.shared.wake.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(wake));
    }

    /// Returns once all schemas were looked at.
    pub(crate) async fn checked(&self) {
        // The sender lives as long as we do.
        let _ = self.shared.checked.subscribe().wait_for(|checked| *checked).await;
    }

    /// Installs and compares, at the start and whenever a CRD of ours changes, while we may write.
    pub(crate) async fn follow(self, install: Install, stop: CancellationToken) {
        let turn = async {
            loop {
                self.runtime.gate.opened().await;
                match self.reconcile(&install).await {
                    Ok(()) => {
                        self.shared.checked.send_replace(true);
                        self.shared.changed.notified().await;
                    }
                    Err(error) => {
                        tracing::warn!(error, "CRD check failed; retrying");
                        tokio::time::sleep(RETRY).await;
                    }
                }
            }
        };
        stop.run_until_cancelled(turn).await;
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
            while tasks.len() < AT_ONCE
                && let Some(kind) = kinds.next()
            {
                let (this, owner) = (self.clone(), owner.clone());
                tasks.spawn(async move {
                    let message = this.settle(kind, apply, owner.as_ref()).await?;
                    this.tell(kind, message);
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

    /// What remains to be said about one kind after we did what we may.
    async fn settle(
        &self,
        kind: &Entry,
        apply: bool,
        owner: Option<&OwnerReference>,
    ) -> Result<Option<String>, crds::Error> {
        let turn = self.shared.turn.lock().await;
        let found = crds::find(&self.runtime.client, kind).await?;
        // A newer schema is never taken back: its fields would be dropped from every object that has them.
        let due = found.as_ref().is_none_or(|found| {
            let tied = found.anchors.iter().map(|anchor| anchor.uid.as_str());
            found.skew.unknown.is_empty()
                && (!found.skew.missing.is_empty() || !tied.eq(owner.iter().map(|owner| owner.uid.as_str())))
        });
        if apply && due {
            crds::send(&self.runtime.client, kind, owner).await?;
            drop(turn);
            crds::served(&self.runtime.client, kind, SERVED).await?;
            return Ok(None);
        }
        // A kind that nobody installed has no objects that could suffer.
        Ok(found.and_then(|found| found.skew.message(&kind.crd_name())))
    }

    fn tell(&self, kind: &'static Entry, message: Option<String>) {
        let before = self.shared.skew.lock().unwrap_or_else(PoisonError::into_inner).insert(kind.kind, message.clone());
        if before.as_ref() == Some(&message) {
            return;
        }
        if let Some(message) = &message {
            tracing::warn!(kind = kind.kind, message, "schema skew");
            let reference = Ref::of::<CustomResourceDefinition>("", &kind.crd_name());
            let live = self.runtime.cache.get(&reference);
            let uid = live.as_ref().and_then(|live| live["metadata"]["uid"].as_str()).unwrap_or_default();
            let note = Note { severity: Severity::Warning, reason: CONDITION, message: message.clone() };
            self.runtime.events.record(&reference, uid, &note);
        }
        // That all is well is news for those only who were told otherwise.
        let whom = if before.is_none() && message.is_none() { Scope::WithSkewCondition } else { Scope::All };
        for wake in self.shared.wake.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            wake(whom);
        }
    }
}

/// What the status of an object says about the schema of its kind.
fn told(live: &Value) -> Option<String> {
    let conditions = live["status"]["conditions"].as_array()?;
    let condition = conditions.iter().find(|one| one["type"] == CONDITION && one["status"] == "True")?;
    condition["message"].as_str().map(str::to_owned)
}
