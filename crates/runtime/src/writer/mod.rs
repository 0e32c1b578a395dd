//! The writer: applies a diff, object by object in waves, with one field manager.
//!
//! [`capstan_plan::decide`] decides who owns an object and whether it differs; the writer executes. An object that no
//! cache has is created by an apply with a resourceVersion that no object ever has: one request creates it, and an
//! existing one is a conflict, is read and is decided on before it is touched.
//!
//! Rules for every write: it passes the gate; it never replaces a whole object (no PUT); it has the identity of its
//! target as precondition, so that a stale cache cannot overwrite or delete something newer; its response goes into the
//! cache, so that the next reconcile does not repeat it.

mod pods;
mod request;
pub(crate) use request::READ_TIMEOUT;
mod status;

pub use capstan_plan::FIELD_MANAGER;
pub use pods::Evicted;
pub use status::{Debounce, Sent};

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_plan::{Basis, Conflict, Decision, Deletion, Diff, Object, PropagationPolicy, Ref, Write, decide, kit};
use http::Request;
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};

use crate::cache::Cache;
use crate::error::{Class, Error};
use crate::gate::Gate;
use crate::kinds::Kind;
use crate::metrics::Metrics;

/// Writes to the cluster. Clones share one state.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    cache: Cache,
    gate: Gate,
    metrics: Metrics,
    debouncer: status::Debouncer,
    /// Existing objects that the cache does not have: usually of other managers.
    uncached: Arc<Mutex<HashSet<Ref>>>,
}

/// A resourceVersion that no object has: the first write to a store has a later one. An apply with it conflicts with an
/// existing object, and creates a missing one, since the version of objects to create is dropped: `Store.Update` in
/// <https://github.com/kubernetes/apiserver/blob/master/pkg/registry/generic/registry/store.go>.
const ABSENT_VERSION: &str = "1";

/// Maximum number of remembered uncached objects. A forgotten one costs a conflict.
const MAX_UNCACHED: usize = 1024;

/// The result of applying a diff.
#[derive(Debug, Default)]
#[must_use]
pub struct Outcome {
    /// Objects that we refuse to overwrite.
    pub conflicts: Vec<Conflict>,
    /// Failed writes. Later waves were not started.
    pub failures: Vec<Failure>,
    /// Number of applied objects.
    pub applied: usize,
    /// Number of deleted objects.
    pub deleted: usize,
}

/// A write that failed.
#[derive(Debug)]
pub struct Failure {
    /// Its target.
    pub reference: Ref,
    /// Why.
    pub error: Error,
}

impl Outcome {
    /// The first failure, if there is one.
    pub fn result(self) -> Result<Vec<Conflict>, Error> {
        match self.failures.into_iter().next() {
            Some(failure) => Err(failure.error),
            None => Ok(self.conflicts),
        }
    }
}

/// The message for a conflict with an object of another owner.
pub fn refusal(conflict: &Conflict) -> String {
    match conflict.holder.as_str() {
        "nobody" => format!("refuses to overwrite {}, which was not made by this operator", conflict.reference),
        holder => format!("refuses to overwrite {}, which belongs to {holder}", conflict.reference),
    }
}

/// The result for one desired object.
enum Applied {
    Written,
    Unchanged,
    Refused(Box<Conflict>),
}

impl Writer {
    /// A writer whose writes pass `gate` and whose responses go into `cache`.
    pub fn new(client: Client, cache: Cache, gate: Gate, metrics: Metrics) -> Self {
        Self { client, cache, gate, metrics, debouncer: status::Debouncer::default(), uncached: Arc::default() }
    }

    /// Applies `diff`. A failure stops after its wave, so that nothing runs without its dependencies.
    pub async fn apply(&self, diff: Diff) -> Outcome {
        let mut outcome = Outcome { conflicts: diff.conflicts, ..Outcome::default() };
        let mut wave = None;
        for write in diff.apply {
            let reference = write.object.reference.clone();
            let next = kit::wave(&reference.gvk.kind);
            if wave.replace(next).is_some_and(|last| last != next) && !outcome.failures.is_empty() {
                return outcome;
            }
            match self.execute(&diff.owner, write).await {
                Ok(Applied::Written) => outcome.applied += 1,
                Ok(Applied::Unchanged) => {}
                Ok(Applied::Refused(conflict)) => outcome.conflicts.push(*conflict),
                Err(error) => outcome.failures.push(Failure { reference, error }),
            }
        }
        if !outcome.failures.is_empty() {
            return outcome;
        }
        // Kinds that we do not manage are never pruned, whoever controls the objects.
        let managed =
            |deletion: &Deletion| self.cache.kind(&deletion.reference.gvk).is_ok_and(|row| row.purpose.prunes());
        for deletion in diff.delete.into_iter().filter(managed) {
            match self.delete(&deletion).await {
                Ok(()) => outcome.deleted += 1,
                Err(error) => outcome.failures.push(Failure { reference: deletion.reference, error }),
            }
        }
        outcome
    }

    /// Applies an object as decided. Decides again if the cache has got it since, and reads it first if the cache has
    /// only a part of it or nothing.
    async fn execute(&self, owner: &str, mut write: Write) -> Result<Applied, Error> {
        let reference = write.object.reference.clone();
        let kind = self.cache.kind(&reference.gvk)?;
        // The cache may be newer than the decision, which matters for these bases.
        if matches!(write.basis, Basis::Absent | Basis::Live { resource_version: Some(_), .. })
            && let Some(live) = self.cache.get(&reference)
        {
            write = match decide_again(owner, &write, &live) {
                Ok(write) => write,
                Err(done) => return Ok(done),
            };
        }
        if write.basis == Basis::Absent && !self.uncached().contains(&reference) {
            match self.apply_new(kind, &write.object, Some(ABSENT_VERSION)).await {
                Err(error) if error.class() == Class::Conflict => self.remember_uncached(&reference),
                made => return made.map(|()| Applied::Written),
            }
        }
        if !matches!(write.basis, Basis::Live { .. }) || !kind.is_comparable() {
            let Some(live) = self.get(kind, &reference).await? else {
                self.uncached().remove(&reference);
                return self.apply_new(kind, &write.object, None).await.map(|()| Applied::Written);
            };
            self.cache.record_write(kind, live.clone());
            write = match decide_again(owner, &write, &live) {
                Ok(write) => write,
                Err(done) => return Ok(done),
            };
        }
        self.apply_to(kind, &write).await
    }

    /// Creates an object by an apply without force: an object that appears meanwhile is not ours.
    async fn apply_new(&self, kind: &'static Kind, object: &Object, version: Option<&str>) -> Result<(), Error> {
        let mut body = object.body.clone();
        if let Some(version) = version {
            body["metadata"]["resourceVersion"] = version.into();
        }
        self.send_apply(kind, object, body, PatchParams::apply(FIELD_MANAGER)).await
    }

    /// Applies an object with the identity that it was decided on as precondition.
    async fn apply_to(&self, kind: &'static Kind, write: &Write) -> Result<Applied, Error> {
        let Basis::Live { uid, resource_version } = &write.basis else {
            // A complete object without our field manager was not applied by us.
            let (reference, holder) = (write.object.reference.clone(), "nobody".into());
            return Ok(Applied::Refused(Box::new(Conflict { reference, holder })));
        };
        let mut body = write.object.body.clone();
        body["metadata"]["uid"] = uid.as_str().into();
        if let Some(version) = resource_version {
            body["metadata"]["resourceVersion"] = version.as_str().into();
        }
        self.send_apply(kind, &write.object, body, PatchParams::apply(FIELD_MANAGER).force()).await?;
        Ok(Applied::Written)
    }

    /// Remembers that an object exists although the cache lacks it.
    fn remember_uncached(&self, reference: &Ref) {
        let mut uncached = self.uncached();
        if uncached.len() >= MAX_UNCACHED {
            uncached.clear();
        }
        uncached.insert(reference.clone());
    }

    fn uncached(&self) -> MutexGuard<'_, HashSet<Ref>> {
        self.uncached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send_apply(
        &self,
        kind: &'static Kind,
        object: &Object,
        body: Value,
        params: PatchParams,
    ) -> Result<(), Error> {
        let Ref { namespace, name, .. } = &object.reference;
        let params = params.validation_strict();
        let request = kube::core::Request::new(kind.path(namespace)).patch(name, &params, &Patch::Apply(body));
        let response = self.write("apply", kind, &object.reference, request).await?;
        self.cache.record_write(kind, response);
        Ok(())
    }

    /// Deletes an object, with uid and resourceVersion as preconditions.
    async fn delete(&self, deletion: &Deletion) -> Result<(), Error> {
        let Deletion { reference, uid, resource_version, propagation } = deletion;
        let kind = self.cache.kind(&reference.gvk)?;
        let preconditions = Preconditions { uid: Some(uid.clone()), resource_version: Some(resource_version.clone()) };
        let params = match propagation {
            PropagationPolicy::Background => DeleteParams::background(),
            PropagationPolicy::Orphan => DeleteParams::orphan(),
            PropagationPolicy::Foreground => DeleteParams::foreground(),
        };
        let params = params.preconditions(preconditions);
        let request = kube::core::Request::new(kind.path(&reference.namespace)).delete(&reference.name, &params);
        let identity = json!({"metadata": {"namespace": reference.namespace, "name": reference.name, "uid": uid}});
        match self.write("delete", kind, reference, request).await {
            // With finalizers the response is the terminating object.
            Ok(response) if request::is_object(&response) => self.cache.record_write(kind, response),
            Ok(_) => self.cache.record_deletion(kind, &identity),
            Err(error) if error.class() == Class::NotFound => self.cache.record_deletion(kind, &identity),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn write(
        &self,
        verb: &'static str,
        kind: &'static Kind,
        what: &Ref,
        request: Result<Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<Value, Error> {
        request::send(self, verb, kind, what, request).await
    }

    async fn get(&self, kind: &'static Kind, what: &Ref) -> Result<Option<Value>, Error> {
        request::get(self, kind, what).await
    }
}

/// Decides again with the live object: a write, or the result without one.
fn decide_again(owner: &str, write: &Write, live: &Value) -> Result<Write, Applied> {
    match decide(owner, &write.object, Some(live)) {
        Decision::Apply(write) => Ok(*write),
        Decision::Leave => Err(Applied::Unchanged),
        Decision::Conflict(conflict) => Err(Applied::Refused(Box::new(conflict))),
    }
}
