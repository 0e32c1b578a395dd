//! Snapshot builder: selects the cached objects that a plan reads, without requests.

use capstan_plan::{Facts, Gvk, LiveObjects, Ref};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::Cache;
use crate::kinds::{Kind, Select};

/// A snapshot under construction.
pub struct View<'a> {
    cache: &'a Cache,
    live: LiveObjects,
}

impl<'a> View<'a> {
    pub(super) fn new(cache: &'a Cache) -> Self {
        Self { cache, live: LiveObjects::default() }
    }

    /// Adds the objects that the owner with this uid controls.
    pub fn owned_by(mut self, uid: &str) -> Self {
        let uid = uid.into();
        for feed in &self.cache.shared.tables {
            for object in feed.table.owned_by(&uid) {
                self.live.insert(reference(feed.table.kind, &object), object);
            }
        }
        self
    }

    /// Adds the objects that an object controls, if it exists.
    pub fn owned_by_object(self, owner: &Ref) -> Self {
        let found = self.live.get(owner).cloned().or_else(|| self.cache.get(owner));
        match found.as_ref().and_then(|owner| owner["metadata"]["uid"].as_str()) {
            Some(uid) => self.owned_by(uid),
            None => self,
        }
    }

    /// Adds one object, if it exists.
    pub fn object(mut self, reference: &Ref) -> Self {
        if let Some(object) = self.cache.get(reference) {
            self.live.insert(reference.clone(), object);
        }
        self
    }

    /// Adds the pods in a namespace whose label `app.kubernetes.io/instance` is `name`.
    pub fn pods_of(mut self, namespace: &str, name: &str) -> Self {
        let Some(table) = self.cache.table(&Gvk::of::<Pod>()) else { return self };
        for object in table.of_instance(namespace, name) {
            self.live.insert(reference(table.kind, &object), object);
        }
        self
    }

    /// Adds the objects of a kind with this name, in any namespace.
    pub fn named(mut self, gvk: &Gvk, name: &str) -> Self {
        let Some(table) = self.cache.table(gvk) else { return self };
        for key in table.keys().into_iter().filter(|key| &*key.name == name) {
            if let Some(object) = table.get(&key) {
                self.live.insert(reference(table.kind, &object), object);
            }
        }
        self
    }

    /// Adds all objects of a kind in a namespace, and marks the kind complete if the cache holds all of them.
    pub fn in_namespace(self, gvk: &Gvk, namespace: &str) -> Self {
        let objects = self.cache.in_namespace(gvk, namespace);
        self.kind(gvk, objects)
    }

    /// Adds all objects of a kind, and marks the kind complete if the cache holds all of them.
    pub fn all(self, gvk: &Gvk) -> Self {
        let objects = self.cache.all(gvk);
        self.kind(gvk, objects)
    }

    fn kind(mut self, gvk: &Gvk, objects: Vec<capstan_plan::Live>) -> Self {
        let Some(table) = self.cache.table(gvk) else { return self };
        for object in objects {
            self.live.insert(reference(table.kind, &object), object);
        }
        if table.synced() && !matches!(table.kind.select, Select::Ours | Select::Labels(_)) {
            self.live.mark_complete(gvk.clone());
        }
        self
    }

    /// The objects added so far.
    pub fn objects(&self) -> &LiveObjects {
        &self.live
    }

    /// The objects.
    pub fn live(self) -> LiveObjects {
        self.live
    }

    /// The facts: the objects, and the version and kinds of the server.
    pub fn facts(self, now: Timestamp) -> Facts {
        let server = self.cache.server().unwrap_or_default();
        Facts { server, served: (*self.cache.served()).clone(), live: self.live, ..Facts::at(now) }
    }
}

fn reference(kind: &Kind, object: &Value) -> Ref {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    kind.reference(text("namespace"), text("name"))
}
