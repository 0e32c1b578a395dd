//! The garbage collector: objects whose owners have all gone are deleted; an owner that is deleted in the foreground goes
//! after its dependents; an owner whose dependents are orphaned lets go of them first.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use super::{controller, resource_of, target_of};
use crate::error::{Result, Status};
use crate::ops::{Caller, DeleteOptions, Preconditions, Propagation, Server, WeakServer, WriteOptions};
use crate::registry::group_version;
use crate::store::{Feed, Note, Object, TableKey};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";
/// How soon something that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Where an object is.
type Place = (TableKey, Arc<str>);

pub(super) struct Collector {
    server: WeakServer,
    caller: Caller,
    feed: Feed,
    queue: VecDeque<Place>,
    queued: HashSet<Place>,
    /// Owners that wait for their dependents: UID to place.
    waiting: HashMap<Arc<str>, Place>,
    /// What is to be tried again.
    failed: Vec<Place>,
    retry_at: Option<Instant>,
}

/// What the owners of an object are up to.
#[derive(Default)]
struct Owners {
    /// There, and there to stay.
    solid: usize,
    /// Gone: their UIDs.
    gone: Vec<String>,
    /// Waiting for their dependents to go: their UIDs.
    waiting: Vec<String>,
}

impl Collector {
    pub(super) fn new(server: &Server) -> Self {
        Self {
            server: server.downgrade(),
            caller: controller("generic-garbage-collector"),
            feed: server.store().feed(),
            queue: VecDeque::new(),
            queued: HashSet::new(),
            waiting: HashMap::new(),
            failed: Vec::new(),
            retry_at: None,
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            let note = match self.retry_at {
                Some(at) => tokio::select! {
                    note = self.feed.next() => note.map(Some),
                    () = sleep_until(at) => Some(None),
                },
                None => self.feed.next().await.map(Some),
            };
            let (Some(note), Some(server)) = (note, self.server.upgrade()) else { return };
            match note {
                Some(note) => self.hear(&server, note),
                None => {
                    self.retry_at = None;
                    let again: Vec<Place> = self.failed.drain(..).chain(self.waiting.values().cloned()).collect();
                    again.into_iter().for_each(|place| self.enqueue(place));
                }
            }
            while let Some(note) = self.feed.try_next() {
                self.hear(&server, note);
            }
            while let Some(place) = self.queue.pop_front() {
                self.queued.remove(&place);
                if let Err(status) = self.process(&server, &place).await {
                    tracing::debug!(%status, key = %place.1, "garbage collection failed; retrying");
                    self.failed.push(place);
                }
                tokio::task::yield_now().await;
            }
            if self.retry_at.is_none() && !(self.failed.is_empty() && self.waiting.is_empty()) {
                self.retry_at = Some(Instant::now() + RETRY);
            }
        }
    }

    fn enqueue(&mut self, place: Place) {
        if self.queued.insert(place.clone()) {
            self.queue.push_back(place);
        }
    }

    fn hear(&mut self, server: &Server, note: Note) {
        match note {
            Note::Look { table, key } => self.enqueue((table, key)),
            Note::Gone { uid } => {
                self.waiting.remove(&uid);
                for (table, object) in server.store().dependents(&uid) {
                    self.enqueue((table, object.key().clone()));
                }
            }
            Note::Left { owners } => {
                for place in owners.iter().filter_map(|owner| self.waiting.get(owner).cloned()).collect::<Vec<_>>() {
                    self.enqueue(place);
                }
            }
        }
    }

    /// Does what is to be done about one object.
    async fn process(&mut self, server: &Server, (table, key): &Place) -> Result<()> {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        let Some(object) = server.store().get(table, namespace, name) else { return Ok(()) };
        if object.deleting {
            let meta = object.metadata();
            let has = |finalizer: &str| meta["finalizers"].as_array().into_iter().flatten().any(|one| one == finalizer);
            if has(ORPHAN) {
                return self.orphan(server, table, &object).await;
            }
            if has(FOREGROUND) {
                return self.wait_for_dependents(server, table, &object).await;
            }
            return Ok(());
        }
        if object.owners.is_empty() {
            return Ok(());
        }
        self.collect(server, table, &object).await
    }

    /// Deletes an object whose owners have gone, and takes away references to some that have.
    async fn collect(&mut self, server: &Server, table: &TableKey, object: &Arc<Object>) -> Result<()> {
        let meta = object.metadata();
        let Some(owners) = owners(server, object, &meta) else { return Ok(()) };
        if owners.solid > 0 {
            let over: Vec<&str> = owners.gone.iter().chain(&owners.waiting).map(String::as_str).collect();
            if over.is_empty() {
                return Ok(());
            }
            return self.disown(server, table, object, &over).await;
        }
        if owners.gone.is_empty() && owners.waiting.is_empty() {
            return Ok(());
        }
        let own = meta["finalizers"].as_array().into_iter().flatten().find_map(|one| match one.as_str()? {
            ORPHAN => Some(Propagation::Orphan),
            FOREGROUND => Some(Propagation::Foreground),
            _ => None,
        });
        let has_dependents = || !server.store().dependents(&object.uid).is_empty();
        let propagation = if !owners.waiting.is_empty() && has_dependents() {
            // The owner waits for this one, so this one waits for its own.
            Propagation::Foreground
        } else {
            own.unwrap_or(Propagation::Background)
        };
        let preconditions =
            Preconditions { uid: Some(object.uid.to_string()), resource_version: Some(object.revision.to_string()) };
        let options = DeleteOptions { propagation: Some(propagation), preconditions, ..DeleteOptions::default() };
        let Some(resource) = resource_of(server, table) else { return Ok(()) };
        absent_is_fine(server.delete(&self.caller, &target_of(resource, object), &options).await.map(drop))
    }

    /// An owner that is deleted in the foreground goes when no dependent blocks it any more.
    async fn wait_for_dependents(&mut self, server: &Server, table: &TableKey, owner: &Arc<Object>) -> Result<()> {
        let dependents = server.store().dependents(&owner.uid);
        if !dependents.iter().any(|(_, dependent)| blocks(dependent, &owner.uid)) {
            self.waiting.remove(&owner.uid);
            return self.remove_finalizer(server, table, owner, FOREGROUND).await;
        }
        self.waiting.insert(owner.uid.clone(), (table.clone(), owner.key().clone()));
        for (table, dependent) in dependents {
            if !dependent.deleting {
                self.enqueue((table, dependent.key().clone()));
            }
        }
        Ok(())
    }

    /// An owner lets go of its dependents, and then goes.
    async fn orphan(&mut self, server: &Server, table: &TableKey, owner: &Arc<Object>) -> Result<()> {
        for (table, dependent) in server.store().dependents(&owner.uid) {
            self.disown(server, &table, &dependent, &[&owner.uid]).await?;
        }
        self.remove_finalizer(server, table, owner, ORPHAN).await
    }

    /// Takes away references to owners.
    async fn disown(&self, server: &Server, table: &TableKey, object: &Arc<Object>, uids: &[&str]) -> Result<()> {
        let edit = |value: &mut Value| {
            let Some(meta) = value["metadata"].as_object_mut() else { return };
            if let Some(owners) = meta.get_mut("ownerReferences").and_then(Value::as_array_mut) {
                owners.retain(|owner| !uids.iter().any(|uid| owner["uid"] == *uid));
                if owners.is_empty() {
                    meta.remove("ownerReferences");
                }
            }
        };
        self.edit(server, table, object, edit).await
    }

    async fn remove_finalizer(
        &self,
        server: &Server,
        table: &TableKey,
        object: &Arc<Object>,
        finalizer: &str,
    ) -> Result<()> {
        let edit = |value: &mut Value| {
            let Some(meta) = value["metadata"].as_object_mut() else { return };
            if let Some(finalizers) = meta.get_mut("finalizers").and_then(Value::as_array_mut) {
                finalizers.retain(|one| one != finalizer);
                if finalizers.is_empty() {
                    meta.remove("finalizers");
                }
            }
        };
        self.edit(server, table, object, edit).await
    }

    /// Changes exactly this version of an object.
    async fn edit(
        &self,
        server: &Server,
        table: &TableKey,
        object: &Arc<Object>,
        edit: impl FnOnce(&mut Value),
    ) -> Result<()> {
        let Some(resource) = resource_of(server, table) else { return Ok(()) };
        let target = target_of(resource, object);
        let mut value = server.get(&self.caller, &target, &Default::default()).await?.value();
        if value["metadata"]["uid"] != *object.uid {
            return Ok(());
        }
        edit(&mut value);
        absent_is_fine(server.update(&self.caller, &target, value.into(), &WriteOptions::default()).await.map(drop))
    }
}

fn absent_is_fine(result: Result<()>) -> Result<()> {
    match result {
        Err(Status { code: 404, .. }) => Ok(()),
        other => other,
    }
}

/// Whether a dependent keeps its owner from going.
fn blocks(dependent: &Object, owner: &str) -> bool {
    let meta = dependent.metadata();
    let mut owners = meta["ownerReferences"].as_array().into_iter().flatten();
    owners.any(|one| one["uid"] == owner && one["blockOwnerDeletion"] == true)
}

/// What the owners of an object are up to; nothing if that cannot be told, because a kind is not served or an owner
/// cannot be where it is said to be.
fn owners(server: &Server, object: &Object, meta: &Value) -> Option<Owners> {
    let snapshot = server.registry().snapshot();
    let mut found = Owners::default();
    for reference in meta["ownerReferences"].as_array().into_iter().flatten() {
        let text = |field: &str| reference[field].as_str().unwrap_or_default();
        let (group, version) = group_version(text("apiVersion"));
        let resource = snapshot.by_kind(group, version, text("kind"))?;
        let namespace = if resource.namespaced { object.namespace() } else { "" };
        if resource.namespaced && namespace.is_empty() {
            return None;
        }
        let owner = server.store().get(&TableKey::of(resource), namespace, text("name"));
        match owner.filter(|owner| *owner.uid == *text("uid")) {
            None => found.gone.push(text("uid").to_owned()),
            Some(owner) if owner.deleting && deletes_dependents(&owner) => {
                found.waiting.push(text("uid").to_owned());
            }
            Some(_) => found.solid += 1,
        }
    }
    Some(found)
}

fn deletes_dependents(owner: &Object) -> bool {
    owner.metadata()["finalizers"].as_array().into_iter().flatten().any(|one| one == FOREGROUND)
}
