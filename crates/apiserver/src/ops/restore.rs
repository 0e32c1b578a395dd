//! Writes that bypass admission, validation and managed fields: to load a copy of a cluster for a trial run, and for
//! thousands of simulated nodes in this process. Injected faults apply to these, too.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};

use super::convert::{serve_value, store_value};
use super::server::Profile;
use super::write::ATTEMPTS;
use super::{Caller, Server, Target, meta, read};
use crate::apply::patch;
use crate::error::{Result, Status};
use crate::faults::Verb;
use crate::registry::{self, Resource};
use crate::store::{Deletion, Object, WriteError};

/// A template to create copies of an object. The nested members of its spec are serialized once: they are the same in
/// all copies, and most of their size.
pub struct ObjectTemplate {
    /// The object without its name and without the nested members of its spec.
    outline: Value,
    /// The nested members of the spec, serialized.
    nested: Vec<u8>,
}

impl ObjectTemplate {
    /// A template from an object. Copies may change the spec members `own` and those that are not nested.
    pub fn new(mut like: Value, own: &[&str]) -> Self {
        for field in ["name", "managedFields"] {
            meta::members(&mut like).remove(field);
        }
        let mut nested = Map::new();
        if let Some(spec) = like["spec"].as_object_mut() {
            let is_nested = |key: &str, value: &Value| (value.is_object() || value.is_array()) && !own.contains(&key);
            for (key, value) in std::mem::take(spec) {
                let list = if is_nested(&key, &value) { &mut nested } else { &mut *spec };
                list.insert(key, value);
            }
        }
        let text = Value::Object(nested).to_string();
        // Without the outer braces.
        Self { outline: like, nested: text.as_bytes()[1..text.len() - 1].to_vec() }
    }
}

impl Server {
    /// Stores an object as it is. Returns `false` if one of the same name exists, which is kept.
    pub fn restore(&self, object: &Value) -> Result<bool> {
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        let (group, version) = registry::group_version(text("apiVersion"));
        let Some(resource) = self.registry().by_kind(group, version, text("kind")) else {
            return Err(Status::bad_request(format!("no kind {} in {}", text("kind"), text("apiVersion"))));
        };
        let profile = self.profile(&resource);
        let stored = Object::new(profile.stored.clone(), &store_value(&profile, object.clone()), &profile.fields);
        match self.store().create(&profile.table, stored) {
            Ok(_) => Ok(true),
            Err(WriteError::Conflict(_) | WriteError::NotFound) => Ok(false),
        }
    }

    /// Creates a copy of an object that was admitted before: with a generated name, its own UID and creation time,
    /// without managed fields, and with the changes of `edit`.
    pub async fn copy(
        &self,
        caller: &Caller,
        resource: &Arc<Resource>,
        like: &ObjectTemplate,
        edit: impl FnOnce(&mut Value),
    ) -> Result<Arc<Object>> {
        let ObjectTemplate { outline, nested } = like;
        let target = Target::all(resource.clone(), outline["metadata"]["namespace"].as_str());
        self.faults().enter(Verb::Create, caller, &target).await?;
        let profile = self.profile(resource);
        let mut object = outline.clone();
        meta::prepare_create(self, &profile, &mut object);
        // The initial status is part of what was admitted.
        object["status"] = outline["status"].clone();
        edit(&mut object);
        let value = store_value(&profile, object);
        let stored = Object::with_raw_spec(profile.stored.clone(), &value, nested, &profile.fields);
        let name = stored.name().to_owned();
        self.store().create(&profile.table, stored).map_err(|_| Status::already_exists(resource, &name))
    }

    /// Replaces the status of an object at this revision. `outline` is an object with the selectable fields of the
    /// status.
    pub async fn replace_status(
        &self,
        caller: &Caller,
        target: &Target,
        uid: &str,
        revision: u64,
        status: &impl Serialize,
        outline: &Value,
    ) -> Result<Arc<Object>> {
        self.faults().enter(Verb::Patch, caller, target).await?;
        let (profile, live) = self.find_live(target, uid)?;
        let conflict = || Status::modified(&target.resource, live.name());
        if live.revision != revision {
            return Err(conflict());
        }
        let updated = live.with_status(status, outline, &profile.fields);
        let updated = updated.ok_or_else(|| Status::internal("the status is not the last member of the object"))?;
        self.store().update(&profile.table, updated, revision).map_err(|_| conflict())
    }

    /// Binds an unscheduled pod at this revision to a node and replaces its status. `None` if the pod has changed, is
    /// terminating or is bound: use the regular path. `outline` is as for [`replace_status`](Self::replace_status).
    pub async fn bind_pod(
        &self,
        caller: &Caller,
        target: &Target,
        seen: (&str, u64),
        node: &str,
        status: &impl Serialize,
        outline: Value,
    ) -> Result<Option<Arc<Object>>> {
        self.faults().enter(Verb::Create, caller, target).await?;
        let (uid, revision) = seen;
        let (profile, live) = self.find_live(target, uid)?;
        let free = live.fields.get("spec.nodeName").unwrap_or_default().is_empty();
        if live.revision != revision || live.deleting || !free {
            return Ok(None);
        }
        let bound = live.bound(node, status, outline, &profile.fields);
        Ok(bound.and_then(|bound| self.store().update(&profile.table, bound, revision).ok()))
    }

    /// Applies a JSON merge patch to an object: only at this revision, if one is given.
    pub async fn merge_patch(
        &self,
        caller: &Caller,
        target: &Target,
        body: &Value,
        revision: Option<u64>,
    ) -> Result<Arc<Object>> {
        self.faults().enter(Verb::Patch, caller, target).await?;
        let profile = self.profile(&target.resource);
        for _ in 0..ATTEMPTS {
            let live = read::find(self, &profile, target)?;
            if revision.is_some_and(|revision| revision != live.revision) {
                break;
            }
            let old = serve_value(&profile, &live);
            let new = patch::apply(patch::Kind::Merge, &old, body, profile.resource.schema())?;
            if new == old {
                return Ok(live);
            }
            let stored = Object::new(profile.stored.clone(), &store_value(&profile, new), &profile.fields);
            if let Ok(object) = self.store().update(&profile.table, stored, live.revision) {
                return Ok(object);
            }
        }
        Err(Status::modified(&target.resource, target.name.as_deref().unwrap_or_default()))
    }

    /// Sets the deletion timestamp of a running pod at this revision. `None` if it is not running, has changed or has
    /// finalizers: use the regular path.
    pub async fn mark_terminating(
        &self,
        caller: &Caller,
        target: &Target,
        uid: &str,
        revision: u64,
        deletion: Deletion,
    ) -> Result<Option<Arc<Object>>> {
        self.faults().enter(Verb::Delete, caller, target).await?;
        let (profile, live) = self.find_live(target, uid)?;
        let field = |path| live.fields.get(path).unwrap_or_default();
        let runs = !field("spec.nodeName").is_empty() && !matches!(field("status.phase"), "Succeeded" | "Failed");
        let plain = runs && !live.deleting && live.generation > 0 && deletion.grace > 0;
        if !plain || live.revision != revision {
            return Ok(None);
        }
        let terminating = live.terminating(&deletion);
        Ok(terminating.and_then(|terminating| self.store().update(&profile.table, terminating, revision).ok()))
    }

    /// Removes a terminating object and returns its last state. `None` if it has finalizers or is not terminating.
    pub async fn remove_deleted(&self, caller: &Caller, target: &Target, uid: &str) -> Result<Option<Arc<Object>>> {
        self.faults().enter(Verb::Delete, caller, target).await?;
        let (profile, live) = self.find_live(target, uid)?;
        let held = live.metadata()["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
        if held || !live.deleting {
            return Ok(None);
        }
        let gone = self.store().delete(&profile.table, live.namespace(), live.name(), live.revision);
        let gone = gone.map_err(|_| Status::modified(&target.resource, live.name()))?;
        self.removed(&profile, &gone);
        Ok(Some(gone))
    }

    /// The live object with this UID.
    fn find_live(&self, target: &Target, uid: &str) -> Result<(Arc<Profile>, Arc<Object>)> {
        let profile = self.profile(&target.resource);
        let name = target.name.as_deref().unwrap_or_default();
        let live = self.store().get(&profile.table, target.namespace.as_deref().unwrap_or_default(), name);
        let live = live.filter(|live| &*live.uid == uid);
        live.map(|live| (profile, live)).ok_or_else(|| Status::not_found(&target.resource, name))
    }
}
