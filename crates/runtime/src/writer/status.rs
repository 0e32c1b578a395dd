//! Status and finalizers of custom resources: written only on change, with the cached resourceVersion as precondition.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use capstan_plan::Ref;
use http::Request;
use kube::api::{Patch, PatchParams};
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{FIELD_MANAGER, Writer};
use crate::error::Error;

/// Whether a request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It was sent and accepted.
    Yes,
    /// Nothing to change.
    No,
}

impl Writer {
    /// Patches the status of a custom resource, if the cached one differs.
    ///
    /// A merge patch of the difference, with a resourceVersion precondition: a status that was computed from an older
    /// spec conflicts and is computed again.
    pub async fn status(&self, reference: &Ref, status: &impl Serialize) -> Result<Sent, Error> {
        let wanted = wanted(reference, status)?;
        match self.cache.get(reference) {
            Some(live) => self.patch_status(reference, &live, &wanted).await,
            None => Ok(Sent::No),
        }
    }

    async fn patch_status(&self, reference: &Ref, live: &Value, wanted: &Value) -> Result<Sent, Error> {
        let kind = self.cache.kind(&reference.gvk)?;
        let nothing = json!({});
        let before = Some(&live["status"]).filter(|status| !status.is_null()).unwrap_or(&nothing);
        let Some(change) = merge_patch(before, wanted) else { return Ok(Sent::No) };
        let body = json!({"metadata": {"resourceVersion": live["metadata"]["resourceVersion"]}, "status": change});
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        let path = kube::core::Request::new(kind.path(&reference.namespace));
        let request = path.patch_subresource("status", &reference.name, &params, &Patch::Merge(body));
        let response = self.write("patch_status", kind, reference, request).await?;
        self.cache.record_write(kind, response);
        Ok(Sent::Yes)
    }

    /// The same, debounced: a change waits as `debounce` says, since a starting model updates its progress every
    /// second. Returns the delay until the next attempt.
    pub async fn patch_status_debounced(
        &self,
        reference: &Ref,
        status: &impl Serialize,
        debounce: Debounce,
    ) -> Result<Option<Duration>, Error> {
        let wanted = wanted(reference, status)?;
        let live = self.cache.get(reference);
        let current = live.as_deref().map_or(&Value::Null, |live| &live["status"]);
        let wait = match debounce {
            _ if *current == wanted => None,
            Debounce::Pending => Some(PENDING_DEBOUNCE),
            Debounce::Transient => Some(self.debouncer.progress()),
            Debounce::Progress => is_progress(current, &wanted).then(|| self.debouncer.progress()),
        };
        match (self.debouncer.delay(reference, wait), live) {
            (None, Some(live)) => self.patch_status(reference, &live, &wanted).await.map(|_| None),
            (delay, _) => Ok(delay),
        }
    }

    /// Adds a finalizer, if the cached object lacks it.
    pub async fn add_finalizer(&self, reference: &Ref, finalizer: &str) -> Result<Sent, Error> {
        let Some(live) = self.cache.get(reference) else { return Ok(Sent::No) };
        let change = match live["metadata"]["finalizers"].as_array() {
            Some(finalizers) if finalizers.iter().any(|one| one == finalizer) => return Ok(Sent::No),
            Some(_) => json!({"op": "add", "path": "/metadata/finalizers/-", "value": finalizer}),
            None => json!({"op": "add", "path": "/metadata/finalizers", "value": [finalizer]}),
        };
        self.patch_metadata(reference, &live, change).await
    }

    /// Removes a finalizer, if the cached object has it.
    pub async fn remove_finalizer(&self, reference: &Ref, finalizer: &str) -> Result<Sent, Error> {
        let Some(live) = self.cache.get(reference) else { return Ok(Sent::No) };
        let finalizers = live["metadata"]["finalizers"].as_array();
        let Some(index) = finalizers.and_then(|all| all.iter().position(|one| one == finalizer)) else {
            return Ok(Sent::No);
        };
        let change = json!({"op": "remove", "path": format!("/metadata/finalizers/{index}")});
        self.patch_metadata(reference, &live, change).await
    }

    /// Patches an object that we do not own, with its uid as precondition: a recreated object of the same name is not
    /// affected. Lists with a merge key, such as finalizers, are merged; others, such as taints, are replaced.
    pub async fn merge(&self, reference: &Ref, body: Value) -> Result<Sent, Error> {
        self.merge_into(reference, None, body).await
    }

    /// The same for the status of a built-in kind: conditions of others are preserved, since the list is merged by
    /// type.
    pub async fn merge_status(&self, reference: &Ref, body: Value) -> Result<Sent, Error> {
        self.merge_into(reference, Some("status"), body).await
    }

    async fn merge_into(&self, reference: &Ref, part: Option<&str>, mut body: Value) -> Result<Sent, Error> {
        let kind = self.cache.kind(&reference.gvk)?;
        let Some(live) = self.cache.get(reference) else { return Ok(Sent::No) };
        body["metadata"]["uid"] = live["metadata"]["uid"].clone();
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        // A JSON merge patch makes the API server serialize and parse the whole object. A strategic merge patch does
        // not, but custom resources, whose groups are domains, do not support it.
        let patch = if kind.group.contains('.') { Patch::Merge(body) } else { Patch::Strategic(body) };
        let path = kube::core::Request::new(kind.path(&reference.namespace));
        let (verb, request) = match part {
            Some(part) => ("patch_status", path.patch_subresource(part, &reference.name, &params, &patch)),
            None => ("patch", path.patch(&reference.name, &params, &patch)),
        };
        let response = self.write(verb, kind, reference, request).await?;
        self.cache.record_write(kind, response);
        Ok(Sent::Yes)
    }

    /// A JSON patch with a test on the cached resourceVersion.
    async fn patch_metadata(&self, reference: &Ref, live: &Value, change: Value) -> Result<Sent, Error> {
        let kind = self.cache.kind(&reference.gvk)?;
        let version = &live["metadata"]["resourceVersion"];
        let patch = json!([{"op": "test", "path": "/metadata/resourceVersion", "value": version}, change]);
        let path = format!("{}/{}?fieldManager={FIELD_MANAGER}", kind.path(&reference.namespace), reference.name);
        let request = Request::patch(path)
            .header(http::header::CONTENT_TYPE, "application/json-patch+json")
            .body(patch.to_string().into_bytes())
            .map_err(kube::core::request::Error::BuildRequest);
        let response = self.write("patch", kind, reference, request).await?;
        self.cache.record_write(kind, response);
        Ok(Sent::Yes)
    }
}

/// A status as JSON.
fn wanted(reference: &Ref, status: &impl Serialize) -> Result<Value, Error> {
    let failed = |error| Error::request("serialize the status of", reference, kube::Error::SerdeError(error));
    serde_json::to_value(status).map(without_nulls).map_err(failed)
}

/// The JSON merge patch that makes `live` equal to `wanted`; `None` if they are equal.
fn merge_patch(live: &Value, wanted: &Value) -> Option<Value> {
    let (Value::Object(live), Value::Object(wanted)) = (live, wanted) else {
        return (live != wanted).then(|| wanted.clone());
    };
    let mut patch = Map::new();
    for (name, value) in wanted {
        if let Some(change) = merge_patch(live.get(name).unwrap_or(&Value::Null), value) {
            patch.insert(name.clone(), change);
        }
    }
    let surplus = live.keys().filter(|name| !wanted.contains_key(*name));
    patch.extend(surplus.map(|name| (name.clone(), Value::Null)));
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// Which changes of a status are debounced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Debounce {
    /// All, briefly: a query or write is pending whose result may change the status.
    Pending,
    /// All: the status is known to flap for a while.
    Transient,
    /// Only progress updates.
    Progress,
}

/// Debounce of progress updates.
const PROGRESS_DEBOUNCE: Duration = Duration::from_secs(5);
/// Added per object that is debounced already: at most five progress writes per second, and of many objects that start
/// together most are Ready before.
const PER_OBJECT_DEBOUNCE: Duration = Duration::from_millis(200);
/// Debounce while a result is pending: a model server responds within milliseconds, or not at all.
const PENDING_DEBOUNCE: Duration = Duration::from_secs(1);

/// Deadlines of debounced status writes. Clones share one state.
#[derive(Clone, Default)]
pub(super) struct Debouncer(Arc<Mutex<HashMap<Ref, Instant>>>);

impl Debouncer {
    /// The debounce of a progress update that starts now.
    fn progress(&self) -> Duration {
        let mut due = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Deleted objects are never looked up again.
        let now = Instant::now();
        due.retain(|_, at| *at + PROGRESS_DEBOUNCE > now);
        PROGRESS_DEBOUNCE + PER_OBJECT_DEBOUNCE * u32::try_from(due.len()).unwrap_or(u32::MAX)
    }

    /// The remaining debounce of a status write; `None` if it is not debounced, or due.
    fn delay(&self, reference: &Ref, wait: Option<Duration>) -> Option<Duration> {
        let mut due = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(wait) = wait {
            let at = *due.entry(reference.clone()).or_insert_with(|| Instant::now() + wait);
            let left = at.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                return Some(left);
            }
        }
        due.remove(reference);
        None
    }
}

/// Whether a status change is only progress: state and conditions are the same.
fn is_progress(live: &Value, wanted: &Value) -> bool {
    let in_progress = !["Ready", "Failed"].iter().any(|state| wanted["state"] == *state);
    let current = |status: &Value| {
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let current = |one: &Value| ["type", "status", "reason", "observedGeneration"].map(|field| one[field].clone());
        conditions.map(current).collect::<Vec<_>>()
    };
    live != wanted
        && in_progress
        && wanted["state"].is_string()
        && live["state"] == wanted["state"]
        && current(live) == current(wanted)
}

/// A null in a typed value means that the field is unset.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(fields.map(|(name, value)| (name, without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_says_only_what_differs() {
        let live = json!({"state": "Pending", "old": 1, "model": {"name": "a", "gone": true}, "same": [1]});
        let wanted = json!({"state": "Ready", "model": {"name": "a"}, "same": [1], "new": {"x": 1}});
        let patch = json!({"state": "Ready", "old": null, "model": {"gone": null}, "new": {"x": 1}});
        assert_eq!(merge_patch(&live, &wanted), Some(patch));
        assert_eq!(merge_patch(&wanted, &wanted), None);
        assert_eq!(merge_patch(&Value::Null, &json!({"a": 1})), Some(json!({"a": 1})));
    }

    #[tokio::test(start_paused = true)]
    async fn progress_of_many_waits_longer_than_that_of_one() {
        let debouncer = Debouncer::default();
        let named = |number: u32| Ref::of::<k8s_openapi::api::core::v1::ConfigMap>("default", &number.to_string());
        for number in 0..100 {
            let wait = debouncer.progress();
            assert_eq!(wait, PROGRESS_DEBOUNCE + PER_OBJECT_DEBOUNCE * number);
            assert_eq!(debouncer.delay(&named(number), Some(wait)), Some(wait));
        }
        tokio::time::advance(PROGRESS_DEBOUNCE + PER_OBJECT_DEBOUNCE * 50).await;
        let due = |number: &u32| debouncer.delay(&named(*number), Some(PROGRESS_DEBOUNCE)).is_none();
        assert_eq!((0..100).filter(due).count(), 51);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_deleted_while_it_waited_is_forgotten() {
        let debouncer = Debouncer::default();
        let gone = Ref::of::<k8s_openapi::api::core::v1::ConfigMap>("default", "gone");
        debouncer.delay(&gone, Some(debouncer.progress()));
        tokio::time::advance(PROGRESS_DEBOUNCE * 2).await;
        assert_eq!(debouncer.progress(), PROGRESS_DEBOUNCE);
    }

    #[test]
    fn an_unset_field_is_no_change() {
        let wanted = without_nulls(json!({"state": "Ready", "model": null, "list": [{"a": null}]}));
        assert_eq!(merge_patch(&json!({"state": "Ready", "list": [{}]}), &wanted), None);
    }
}
