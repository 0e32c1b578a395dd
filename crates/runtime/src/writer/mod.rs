//! Writing: what a diff says, object by object in waves, with one field manager.
//!
//! Whose an object is and whether it differs is decided by [`capstan_plan::decide`]; here it is done. What no cache shows
//! is made by an apply that holds only where there is nothing: it names a version that no object ever has. So one request
//! makes an object, and one that is there already is read and decided on before it is touched.
//!
//! Rules that hold for every write: it passes the gate; it never replaces a whole object; it names the identity of what
//! it changes, so that a cache which is behind cannot make us overwrite or delete something newer; its answer goes into
//! the cache, so that the next decision does not repeat it.

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
    pace: status::Pace,
    /// Objects that the cache does not show though they are there: somebody else's, as a rule.
    hidden: Arc<Mutex<HashSet<Ref>>>,
}

/// A version that no object has: the first write to a store has a later one. An apply that names it is refused with a
/// conflict where there is an object, and makes it where there is none, since versions of objects to be made are dropped:
/// `Store.Update` in <https://github.com/kubernetes/apiserver/blob/master/pkg/registry/generic/registry/store.go>.
const NONE_YET: &str = "1";

/// How many hidden objects are remembered. One that is forgotten costs a refused write.
const REMEMBERED: usize = 1024;

/// What became of a diff.
#[derive(Debug, Default)]
#[must_use]
pub struct Outcome {
    /// Objects that we refuse to overwrite.
    pub conflicts: Vec<Conflict>,
    /// What failed. Later waves were not begun then.
    pub failures: Vec<Failure>,
    /// How many objects were applied.
    pub applied: usize,
    /// How many objects were deleted.
    pub deleted: usize,
}

/// A write that failed.
#[derive(Debug)]
pub struct Failure {
    /// Of which object.
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

/// What to tell the user about an object in the way.
pub fn refusal(conflict: &Conflict) -> String {
    match conflict.holder.as_str() {
        "nobody" => format!("refuses to overwrite {}, which was not made by this operator", conflict.reference),
        holder => format!("refuses to overwrite {}, which belongs to {holder}", conflict.reference),
    }
}

/// What became of one wanted object.
enum Applied {
    Written,
    Unchanged,
    Refused(Box<Conflict>),
}

impl Writer {
    /// A writer whose writes pass `gate` and whose answers go into `cache`.
    pub fn new(client: Client, cache: Cache, gate: Gate, metrics: Metrics) -> Self {
        Self { client, cache, gate, metrics, pace: status::Pace::default(), hidden: Arc::default() }
    }

    /// Does what `diff` says. A failure ends it after its wave, so that nothing runs without what it needs.
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
        // Of kinds that we do not manage nothing is pruned, whoever controls it.
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

    /// Applies an object as it was decided. What the cache has shown only since is decided on again, and so is what it
    /// shows in part or not at all, with the object as the server has it.
    async fn execute(&self, owner: &str, mut write: Write) -> Result<Applied, Error> {
        let reference = write.object.reference.clone();
        let kind = self.cache.kind(&reference.gvk)?;
        // Where the moment matters, the cache may know more by now than when it was decided.
        if matches!(write.basis, Basis::Absent | Basis::Live { resource_version: Some(_), .. })
            && let Some(live) = self.cache.get(&reference)
        {
            write = match decided(owner, &write, &live) {
                Ok(write) => write,
                Err(done) => return Ok(done),
            };
        }
        if write.basis == Basis::Absent && !self.hidden().contains(&reference) {
            match self.apply_new(kind, &write.object, Some(NONE_YET)).await {
                Err(error) if error.class() == Class::Conflict => self.note_hidden(&reference),
                made => return made.map(|()| Applied::Written),
            }
        }
        if !matches!(write.basis, Basis::Live { .. }) || !kind.is_comparable() {
            let Some(live) = self.get(kind, &reference).await? else {
                self.hidden().remove(&reference);
                return self.apply_new(kind, &write.object, None).await.map(|()| Applied::Written);
            };
            self.cache.wrote(kind, live.clone());
            write = match decided(owner, &write, &live) {
                Ok(write) => write,
                Err(done) => return Ok(done),
            };
        }
        self.apply_to(kind, &write).await
    }

    /// Applies an object that is not there. Without force: one that appears in this moment is somebody else's.
    async fn apply_new(&self, kind: &'static Kind, object: &Object, version: Option<&str>) -> Result<(), Error> {
        let mut body = object.body.clone();
        if let Some(version) = version {
            body["metadata"]["resourceVersion"] = version.into();
        }
        self.send_apply(kind, object, body, PatchParams::apply(FIELD_MANAGER)).await
    }

    /// Applies an object to the one that it was decided on.
    async fn apply_to(&self, kind: &'static Kind, write: &Write) -> Result<Applied, Error> {
        let Basis::Live { uid, resource_version } = &write.basis else {
            // A whole object that does not say who applied it was applied by nobody.
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

    /// From now on this object is looked at first.
    fn note_hidden(&self, reference: &Ref) {
        let mut hidden = self.hidden();
        if hidden.len() >= REMEMBERED {
            hidden.clear();
        }
        hidden.insert(reference.clone());
    }

    fn hidden(&self) -> MutexGuard<'_, HashSet<Ref>> {
        self.hidden.lock().unwrap_or_else(PoisonError::into_inner)
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
        let answer = self.write("apply", kind, &object.reference, request).await?;
        self.cache.wrote(kind, answer);
        Ok(())
    }

    /// Deletes an object, if it still is what was seen.
    async fn delete(&self, deletion: &Deletion) -> Result<(), Error> {
        let Deletion { reference, uid, resource_version, propagation } = deletion;
        let kind = self.cache.kind(&reference.gvk)?;
        let preconditions = Preconditions { uid: Some(uid.clone()), resource_version: Some(resource_version.clone()) };
        let how = match propagation {
            PropagationPolicy::Background => DeleteParams::background(),
            PropagationPolicy::Orphan => DeleteParams::orphan(),
            PropagationPolicy::Foreground => DeleteParams::foreground(),
        };
        let params = how.preconditions(preconditions);
        let request = kube::core::Request::new(kind.path(&reference.namespace)).delete(&reference.name, &params);
        let identity = json!({"metadata": {"namespace": reference.namespace, "name": reference.name, "uid": uid}});
        match self.write("delete", kind, reference, request).await {
            // With finalizers the object stays for a while, and is the answer.
            Ok(answer) if request::stays(&answer) => self.cache.wrote(kind, answer),
            Ok(_) => self.cache.deleted(kind, &identity),
            Err(error) if error.class() == Class::NotFound => self.cache.deleted(kind, &identity),
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

/// A write as it is decided now that the object is known, or what becomes of it without one.
fn decided(owner: &str, write: &Write, live: &Value) -> Result<Write, Applied> {
    match decide(owner, &write.object, Some(live)) {
        Decision::Apply(write) => Ok(*write),
        Decision::Leave => Err(Applied::Unchanged),
        Decision::Conflict(conflict) => Err(Applied::Refused(Box::new(conflict))),
    }
}
