//! The garbage collector: deletes objects whose owners are all gone; with foreground deletion, removes an owner after
//! its dependents; with orphaning, removes the owner references of the dependents first.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use super::{controller, resource_of, target_of};
use crate::error::{Result, Status};
use crate::ops::{Caller, DeleteOptions, Preconditions, Propagation, Server, WeakServer, WriteOptions};
use crate::registry::group_version;
use crate::store::{GcEvent, GcEvents, Object, TableKey};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";
/// Retry interval after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// Table and key of an object.
type ObjectRef = (TableKey, Arc<str>);

pub(super) struct GarbageCollector {
    server: WeakServer,
    caller: Caller,
    gc_events: GcEvents,
    queue: VecDeque<ObjectRef>,
    queued: HashSet<ObjectRef>,
    /// Owners in foreground deletion that wait for their dependents, by UID.
    waiting: HashMap<Arc<str>, ObjectRef>,
    /// Objects to retry.
    failed: Vec<ObjectRef>,
    retry_at: Option<Instant>,
}

/// The owners of an object by state, as in Kubernetes' garbage collector.
#[derive(Default)]
struct Owners {
    /// Number of owners that exist and are not waiting.
    solid: usize,
    /// UIDs of owners that do not exist.
    dangling: Vec<String>,
    /// UIDs of owners that wait for their dependents to be deleted (foreground deletion).
    waiting: Vec<String>,
}

impl GarbageCollector {
    pub(super) fn new(server: &Server) -> Self {
        Self {
            server: server.downgrade(),
            caller: controller("generic-garbage-collector"),
            gc_events: server.store().gc_events(),
            queue: VecDeque::new(),
            queued: HashSet::new(),
            waiting: HashMap::new(),
            failed: Vec::new(),
            retry_at: None,
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            let event = match self.retry_at {
                Some(at) => tokio::select! {
                    event = self.gc_events.next() => event.map(Some),
                    () = sleep_until(at) => Some(None),
                },
                None => self.gc_events.next().await.map(Some),
            };
            let (Some(event), Some(server)) = (event, self.server.upgrade()) else { return };
            match event {
                Some(event) => self.handle(&server, event),
                None => {
                    self.retry_at = None;
                    let again: Vec<ObjectRef> = self.failed.drain(..).chain(self.waiting.values().cloned()).collect();
                    again.into_iter().for_each(|object_ref| self.enqueue(object_ref));
                }
            }
            while let Some(event) = self.gc_events.try_next() {
                self.handle(&server, event);
            }
            while let Some(object_ref) = self.queue.pop_front() {
                self.queued.remove(&object_ref);
                if let Err(status) = self.process(&server, &object_ref).await {
                    tracing::debug!(%status, key = %object_ref.1, "garbage collection failed; retrying");
                    self.failed.push(object_ref);
                }
                tokio::task::yield_now().await;
            }
            if self.retry_at.is_none() && !(self.failed.is_empty() && self.waiting.is_empty()) {
                self.retry_at = Some(Instant::now() + RETRY);
            }
        }
    }

    fn enqueue(&mut self, object_ref: ObjectRef) {
        if self.queued.insert(object_ref.clone()) {
            self.queue.push_back(object_ref);
        }
    }

    fn handle(&mut self, server: &Server, event: GcEvent) {
        match event {
            GcEvent::Enqueue { table, key } => self.enqueue((table, key)),
            GcEvent::OwnerDeleted { uid } => {
                self.waiting.remove(&uid);
                for (table, object) in server.store().dependents(&uid) {
                    self.enqueue((table, object.key().clone()));
                }
            }
            GcEvent::DependentRemoved { owners } => {
                for object_ref in owners.iter().filter_map(|owner| self.waiting.get(owner).cloned()).collect::<Vec<_>>()
                {
                    self.enqueue(object_ref);
                }
            }
        }
    }

    /// Processes one object: orphans, waits for or collects its dependents, or collects the object itself.
    async fn process(&mut self, server: &Server, (table, key): &ObjectRef) -> Result<()> {
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

    /// Deletes an object without solid owners; otherwise removes its dangling owner references.
    async fn collect(&mut self, server: &Server, table: &TableKey, object: &Arc<Object>) -> Result<()> {
        let meta = object.metadata();
        let Some(owners) = resolve_owners(server, object, &meta) else { return Ok(()) };
        if owners.solid > 0 {
            let over: Vec<&str> = owners.dangling.iter().chain(&owners.waiting).map(String::as_str).collect();
            if over.is_empty() {
                return Ok(());
            }
            return self.remove_owner_references(server, table, object, &over).await;
        }
        if owners.dangling.is_empty() && owners.waiting.is_empty() {
            return Ok(());
        }
        let own = meta["finalizers"].as_array().into_iter().flatten().find_map(|one| match one.as_str()? {
            ORPHAN => Some(Propagation::Orphan),
            FOREGROUND => Some(Propagation::Foreground),
            _ => None,
        });
        let has_dependents = || !server.store().dependents(&object.uid).is_empty();
        let propagation = if !owners.waiting.is_empty() && has_dependents() {
            // The owner waits for this object, so this object waits for its own dependents.
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

    /// Removes the foreground finalizer of an owner when no dependent blocks its deletion any more.
    async fn wait_for_dependents(&mut self, server: &Server, table: &TableKey, owner: &Arc<Object>) -> Result<()> {
        let dependents = server.store().dependents(&owner.uid);
        if !dependents.iter().any(|(_, dependent)| blocks_owner_deletion(dependent, &owner.uid)) {
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

    /// Removes the owner references of all dependents, then the orphan finalizer.
    async fn orphan(&mut self, server: &Server, table: &TableKey, owner: &Arc<Object>) -> Result<()> {
        for (table, dependent) in server.store().dependents(&owner.uid) {
            self.remove_owner_references(server, &table, &dependent, &[&owner.uid]).await?;
        }
        self.remove_finalizer(server, table, owner, ORPHAN).await
    }

    /// Removes owner references from an object.
    async fn remove_owner_references(
        &self,
        server: &Server,
        table: &TableKey,
        object: &Arc<Object>,
        uids: &[&str],
    ) -> Result<()> {
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

    /// Updates an object, with its resource version as precondition.
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

/// Whether a dependent blocks the deletion of its owner (`blockOwnerDeletion`).
fn blocks_owner_deletion(dependent: &Object, owner: &str) -> bool {
    let meta = dependent.metadata();
    let mut owners = meta["ownerReferences"].as_array().into_iter().flatten();
    owners.any(|one| one["uid"] == owner && one["blockOwnerDeletion"] == true)
}

/// Resolves the owner references of an object; `None` if that is impossible, because a kind is not served or a
/// namespaced owner is referenced by a cluster-scoped object.
fn resolve_owners(server: &Server, object: &Object, meta: &Value) -> Option<Owners> {
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
            None => found.dangling.push(text("uid").to_owned()),
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
