//! Writes past admission, validation and managed fields: for a copy of a cluster that is to be tried out, and for thousands
//! of nodes that are played in this process. A server that answers nobody does not answer these either.

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
use crate::store::{Clash, Deletion, Object};

/// What copies of an object are made of. What is nested in its spec is text already: it is the same in all of them, and
/// most of what they say.
pub struct Pattern {
    /// The object without name, and without what is nested in its spec.
    outline: Value,
    /// The members of the spec that are nested.
    nested: Vec<u8>,
}

impl Pattern {
    /// A pattern of an object, of whose spec copies may change these members and those that are not nested.
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
        // The braces are those of the spec.
        Self { outline: like, nested: text.as_bytes()[1..text.len() - 1].to_vec() }
    }
}

impl Server {
    /// Stores an object as it is. One of the same name that is there already stays; then the answer is `false`.
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
            Err(Clash::Present(_) | Clash::Absent) => Ok(false),
        }
    }

    /// Adds another object like one that was admitted just now: under a generated name, with an identity and a time of its
    /// own, without managed fields, and with what `edit` changes.
    pub async fn copy(
        &self,
        caller: &Caller,
        resource: &Arc<Resource>,
        like: &Pattern,
        edit: impl FnOnce(&mut Value),
    ) -> Result<Arc<Object>> {
        let Pattern { outline, nested } = like;
        let target = Target::all(resource.clone(), outline["metadata"]["namespace"].as_str());
        self.faults().enter(Verb::Create, caller, &target).await?;
        let profile = self.profile(resource);
        let mut object = outline.clone();
        meta::prepare_create(self, &profile, &mut object);
        // What it says of itself at first is part of what was admitted.
        object["status"] = outline["status"].clone();
        edit(&mut object);
        let value = store_value(&profile, object);
        let stored = Object::outlined(profile.stored.clone(), &value, nested, &profile.fields);
        let name = stored.name().to_owned();
        self.store().create(&profile.table, stored).map_err(|_| Status::already_exists(resource, &name))
    }

    /// Gives an object another status, if it is still what the writer saw. `outline` is an object with what selectors may
    /// ask for in the status.
    pub async fn put_status(
        &self,
        caller: &Caller,
        target: &Target,
        uid: &str,
        revision: u64,
        status: &impl Serialize,
        outline: &Value,
    ) -> Result<Arc<Object>> {
        self.faults().enter(Verb::Patch, caller, target).await?;
        let (profile, live) = self.known(target, uid)?;
        let clash = || Status::modified(&target.resource, live.name());
        if live.revision != revision {
            return Err(clash());
        }
        let told = live.with_status(status, outline, &profile.fields);
        let told = told.ok_or_else(|| Status::internal("the status is not the last member of the object"))?;
        self.store().update(&profile.table, told, revision).map_err(|_| clash())
    }

    /// Puts a pod on a node and gives it another status, if it is still what the writer saw, and is on none. Nothing if it
    /// is not: then the way there is longer. `outline` is as for [`put_status`](Self::put_status).
    pub async fn place(
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
        let (profile, live) = self.known(target, uid)?;
        let free = live.fields.get("spec.nodeName").unwrap_or_default().is_empty();
        if live.revision != revision || live.deleting || !free {
            return Ok(None);
        }
        let placed = live.placed(node, status, outline, &profile.fields);
        Ok(placed.and_then(|placed| self.store().update(&profile.table, placed, revision).ok()))
    }

    /// Changes an object by a JSON merge patch: only this revision of it, if one is given.
    pub async fn adjust(
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

    /// Marks a pod as deleted that is still what the writer saw, and runs. Nothing if it does not run, or something holds
    /// it: then the way it goes is longer.
    pub async fn mark(
        &self,
        caller: &Caller,
        target: &Target,
        uid: &str,
        revision: u64,
        deletion: Deletion,
    ) -> Result<Option<Arc<Object>>> {
        self.faults().enter(Verb::Delete, caller, target).await?;
        let (profile, live) = self.known(target, uid)?;
        let field = |path| live.fields.get(path).unwrap_or_default();
        let runs = !field("spec.nodeName").is_empty() && !matches!(field("status.phase"), "Succeeded" | "Failed");
        let plain = runs && !live.deleting && live.generation > 0 && deletion.grace > 0;
        if !plain || live.revision != revision {
            return Ok(None);
        }
        let marked = live.marked(&deletion);
        Ok(marked.and_then(|marked| self.store().update(&profile.table, marked, revision).ok()))
    }

    /// Takes away an object that is being deleted. Answers how it was last; nothing if a finalizer holds it, or nobody
    /// deleted it.
    pub async fn end(&self, caller: &Caller, target: &Target, uid: &str) -> Result<Option<Arc<Object>>> {
        self.faults().enter(Verb::Delete, caller, target).await?;
        let (profile, live) = self.known(target, uid)?;
        let held = live.metadata()["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
        if held || !live.deleting {
            return Ok(None);
        }
        let gone = self.store().delete(&profile.table, live.namespace(), live.name(), live.revision);
        let gone = gone.map_err(|_| Status::modified(&target.resource, live.name()))?;
        self.removed(&profile, &gone);
        Ok(Some(gone))
    }

    /// The object that a writer means.
    fn known(&self, target: &Target, uid: &str) -> Result<(Arc<Profile>, Arc<Object>)> {
        let profile = self.profile(&target.resource);
        let name = target.name.as_deref().unwrap_or_default();
        let live = self.store().get(&profile.table, target.namespace.as_deref().unwrap_or_default(), name);
        let live = live.filter(|live| &*live.uid == uid);
        live.map(|live| (profile, live)).ok_or_else(|| Status::not_found(&target.resource, name))
    }
}
