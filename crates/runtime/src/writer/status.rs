//! Status and finalizers of custom resources: written only when they change, and only to what was seen.

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

/// Whether something was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It was, and the server took it.
    Yes,
    /// There was nothing to change.
    No,
}

impl Writer {
    /// Makes `status` the status of a custom resource, if the cache shows another one.
    ///
    /// A patch of what differs, on the version that was seen: a status that was computed from an older spec is refused
    /// by the server and computed again.
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
        let answer = self.write("patch_status", kind, reference, request).await?;
        self.cache.wrote(kind, answer);
        Ok(Sent::Yes)
    }

    /// The same, but a change waits a little where more will be known soon: as `debounce` says, and for the next step if it
    /// is progress only, since a model that starts says something new every second. Returns when to look again.
    pub async fn patch_status_debounced(
        &self,
        reference: &Ref,
        status: &impl Serialize,
        debounce: Debounce,
    ) -> Result<Option<Duration>, Error> {
        let wanted = wanted(reference, status)?;
        let live = self.cache.get(reference);
        let said = live.as_deref().map_or(&Value::Null, |live| &live["status"]);
        let wait = match debounce {
            _ if *said == wanted => None,
            Debounce::Answer => Some(ANSWER),
            Debounce::Transient => Some(self.pace.progress()),
            Debounce::Progress => is_progress(said, &wanted).then(|| self.pace.progress()),
        };
        match (self.pace.delay(reference, wait), live) {
            (None, Some(live)) => self.patch_status(reference, &live, &wanted).await.map(|_| None),
            (delay, _) => Ok(delay),
        }
    }

    /// Adds a finalizer, if the cache shows the object without it.
    pub async fn add_finalizer(&self, reference: &Ref, finalizer: &str) -> Result<Sent, Error> {
        let Some(live) = self.cache.get(reference) else { return Ok(Sent::No) };
        let change = match live["metadata"]["finalizers"].as_array() {
            Some(finalizers) if finalizers.iter().any(|one| one == finalizer) => return Ok(Sent::No),
            Some(_) => json!({"op": "add", "path": "/metadata/finalizers/-", "value": finalizer}),
            None => json!({"op": "add", "path": "/metadata/finalizers", "value": [finalizer]}),
        };
        self.patch_metadata(reference, &live, change).await
    }

    /// Removes a finalizer, if the cache shows the object with it.
    pub async fn remove_finalizer(&self, reference: &Ref, finalizer: &str) -> Result<Sent, Error> {
        let Some(live) = self.cache.get(reference) else { return Ok(Sent::No) };
        let finalizers = live["metadata"]["finalizers"].as_array();
        let Some(index) = finalizers.and_then(|all| all.iter().position(|one| one == finalizer)) else {
            return Ok(Sent::No);
        };
        let change = json!({"op": "remove", "path": format!("/metadata/finalizers/{index}")});
        self.patch_metadata(reference, &live, change).await
    }

    /// Changes an object that is not ours with a patch of just what differs. It names the object by its uid, so that one
    /// that was made anew under the same name is left alone. Lists whose items Kubernetes tells apart by a key, such as
    /// finalizers, are added to; others, such as taints, are replaced.
    pub async fn merge(&self, reference: &Ref, body: Value) -> Result<Sent, Error> {
        self.merge_into(reference, None, body).await
    }

    /// The same for the status of an object of Kubernetes itself: conditions of others stay, since items of that list are
    /// told apart by their type.
    pub async fn merge_status(&self, reference: &Ref, body: Value) -> Result<Sent, Error> {
        self.merge_into(reference, Some("status"), body).await
    }

    async fn merge_into(&self, reference: &Ref, part: Option<&str>, mut body: Value) -> Result<Sent, Error> {
        let kind = self.cache.kind(&reference.gvk)?;
        let Some(live) = self.cache.get(reference) else { return Ok(Sent::No) };
        body["metadata"]["uid"] = live["metadata"]["uid"].clone();
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        // For a merge patch the API server writes the whole object down and reads it again. It needs no such thing for a
        // strategic one, which custom resources, whose groups are domains, do not know.
        let patch = if kind.group.contains('.') { Patch::Merge(body) } else { Patch::Strategic(body) };
        let path = kube::core::Request::new(kind.path(&reference.namespace));
        let (verb, request) = match part {
            Some(part) => ("patch_status", path.patch_subresource(part, &reference.name, &params, &patch)),
            None => ("patch", path.patch(&reference.name, &params, &patch)),
        };
        let answer = self.write(verb, kind, reference, request).await?;
        self.cache.wrote(kind, answer);
        Ok(Sent::Yes)
    }

    /// Makes one change to the version that was seen. The test fails, and the patch with it, on any other.
    async fn patch_metadata(&self, reference: &Ref, live: &Value, change: Value) -> Result<Sent, Error> {
        let kind = self.cache.kind(&reference.gvk)?;
        let version = &live["metadata"]["resourceVersion"];
        let patch = json!([{"op": "test", "path": "/metadata/resourceVersion", "value": version}, change]);
        let path = format!("{}/{}?fieldManager={FIELD_MANAGER}", kind.path(&reference.namespace), reference.name);
        let request = Request::patch(path)
            .header(http::header::CONTENT_TYPE, "application/json-patch+json")
            .body(patch.to_string().into_bytes())
            .map_err(kube::core::request::Error::BuildRequest);
        let answer = self.write("patch", kind, reference, request).await?;
        self.cache.wrote(kind, answer);
        Ok(Sent::Yes)
    }
}

/// A status as it is written.
fn wanted(reference: &Ref, status: &impl Serialize) -> Result<Value, Error> {
    let failed = |error| Error::request("serialize the status of", reference, kube::Error::SerdeError(error));
    serde_json::to_value(status).map(without_nulls).map_err(failed)
}

/// The JSON merge patch that makes `live` equal to `wanted`; none if they are equal.
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

/// Which changes of a status wait for the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Debounce {
    /// All, for a moment: a question was asked, or something was written, and what comes of it may change the status.
    Answer,
    /// All: the status is known to change to and fro for a while.
    Transient,
    /// Those that say nothing but how far things are.
    Progress,
}

/// How long progress waits.
const PACE: Duration = Duration::from_secs(5);
/// How much longer it waits for each object that waits already: so it never takes more than five writes in a second,
/// and of many that start together most are Ready before.
const EACH: Duration = Duration::from_millis(200);
/// How long an answer is waited for: a model server says its name in milliseconds, or not at all.
const ANSWER: Duration = Duration::from_secs(1);

/// When the progress of objects is written at the latest. Clones share one state.
#[derive(Clone, Default)]
pub(super) struct Pace(Arc<Mutex<HashMap<Ref, Instant>>>);

impl Pace {
    /// How long progress has to wait that is new now.
    fn progress(&self) -> Duration {
        let mut due = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // What was deleted meanwhile is never asked for again.
        let now = Instant::now();
        due.retain(|_, at| *at + PACE > now);
        PACE + EACH * u32::try_from(due.len()).unwrap_or(u32::MAX)
    }

    /// How long the write of a status that may wait has to wait still; nothing if it need not, or has waited.
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

/// Whether a status says nothing new but how far things are: neither state nor any condition is another one.
fn is_progress(live: &Value, wanted: &Value) -> bool {
    let under_way = !["Ready", "Failed"].iter().any(|state| wanted["state"] == *state);
    let said = |status: &Value| {
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let said = |one: &Value| ["type", "status", "reason", "observedGeneration"].map(|field| one[field].clone());
        conditions.map(said).collect::<Vec<_>>()
    };
    live != wanted
        && under_way
        && wanted["state"].is_string()
        && live["state"] == wanted["state"]
        && said(live) == said(wanted)
}

/// A null in a typed value means that the field is not set.
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
        let pace = Pace::default();
        let named = |number: u32| Ref::of::<k8s_openapi::api::core::v1::ConfigMap>("default", &number.to_string());
        for number in 0..100 {
            let wait = pace.progress();
            assert_eq!(wait, PACE + EACH * number);
            assert_eq!(pace.delay(&named(number), Some(wait)), Some(wait));
        }
        tokio::time::advance(PACE + EACH * 50).await;
        let due = |number: &u32| pace.delay(&named(*number), Some(PACE)).is_none();
        assert_eq!((0..100).filter(due).count(), 51);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_deleted_while_it_waited_is_forgotten() {
        let pace = Pace::default();
        let gone = Ref::of::<k8s_openapi::api::core::v1::ConfigMap>("default", "gone");
        pace.delay(&gone, Some(pace.progress()));
        tokio::time::advance(PACE * 2).await;
        assert_eq!(pace.progress(), PACE);
    }

    #[test]
    fn an_unset_field_is_no_change() {
        let wanted = without_nulls(json!({"state": "Ready", "model": null, "list": [{"a": null}]}));
        assert_eq!(merge_patch(&json!({"state": "Ready", "list": [{}]}), &wanted), None);
    }
}
