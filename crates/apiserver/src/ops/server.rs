//! The server: state shared by all verbs.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::ids::Ids;
use super::strategy::Strategy;
use super::{
    Admission, Caller, DeleteOptions, Deleted, GetOptions, KindRules, ListOptions, Patch, Payload, Target, WatchStream,
    WriteOptions, Written, delete, read, watch, write,
};
use crate::admit;
use crate::clock::Clock;
use crate::error::Result;
use crate::faults::{Faults, Verb};
use crate::registry::{Registry, Resource};
use crate::store::{FieldPaths, Listing, Object, Retention, Store, TableKey, TypeMeta};

/// Settings of a server. The default has the rules of built-in kinds, and the admission plugins that need no
/// controllers.
pub struct Settings {
    /// An existing store, such as one on disk; an empty one if `None`.
    pub store: Option<Store>,
    /// History limits, if no store is given.
    pub retention: Retention,
    /// Clock; the wall clock if `None`.
    pub clock: Option<Clock>,
    /// Served resources; the built-in ones if `None`.
    pub registry: Option<Registry>,
    /// Admission plugins, in order.
    pub admission: Vec<Arc<dyn Admission>>,
    /// Rules of built-in kinds; none if `None`.
    pub kinds: Option<Arc<dyn KindRules>>,
    /// Seed of UIDs and generated names; random if `None`.
    pub seed: Option<u64>,
    /// Resources of the core group whose managed fields are not tracked until an object is applied: unread, they are
    /// most of the cost of a small write and a large part of the JSON.
    pub untracked: &'static [&'static str],
}

impl Default for Settings {
    fn default() -> Self {
        let (kinds, admission) = admit::standard(&admit::Settings::alone());
        Self { kinds: Some(kinds), admission, ..Self::bare() }
    }
}

impl Settings {
    /// A server without rules of built-in kinds and without admission plugins.
    pub fn bare() -> Self {
        let retention = Retention::default();
        Self {
            store: None,
            retention,
            clock: None,
            registry: None,
            admission: Vec::new(),
            kinds: None,
            seed: None,
            untracked: &[],
        }
    }
}

/// A Kubernetes API server. Clones share one state.
#[derive(Clone)]
pub struct Server {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    registry: Registry,
    clock: Clock,
    ids: Ids,
    faults: Faults,
    admission: RwLock<Arc<[Arc<dyn Admission>]>>,
    kinds: RwLock<Arc<dyn KindRules>>,
    profiles: RwLock<Profiles>,
    untracked: &'static [&'static str],
}

/// Profiles by table and version.
type Profiles = HashMap<(TableKey, Arc<str>), Arc<Profile>>;

/// Precomputed properties of a resource version.
pub(crate) struct Profile {
    pub(crate) resource: Arc<Resource>,
    pub(crate) table: TableKey,
    /// `apiVersion` and `kind` of stored objects.
    pub(crate) stored: Arc<TypeMeta>,
    /// `apiVersion` and `kind` in the version of the request.
    pub(crate) served: Arc<TypeMeta>,
    pub(crate) fields: FieldPaths,
    pub(crate) strategy: Strategy,
}

impl Profile {
    fn of(resource: &Arc<Resource>) -> Self {
        let types = |api_version| Arc::new(TypeMeta { api_version, kind: resource.kind.to_string() });
        Self {
            table: TableKey::of(resource),
            stored: types(resource.storage_api_version()),
            served: types(resource.api_version()),
            fields: FieldPaths::of(resource),
            strategy: Strategy::of(resource),
            resource: resource.clone(),
        }
    }
}

impl Server {
    /// A server with the objects of its store. Call it inside a tokio runtime.
    pub fn new(settings: Settings) -> Self {
        let inner = Inner {
            store: settings.store.unwrap_or_else(|| Store::new(settings.retention)),
            registry: settings.registry.unwrap_or_else(Registry::builtin),
            clock: settings.clock.unwrap_or_else(Clock::real),
            ids: Ids::new(settings.seed),
            faults: Faults::default(),
            admission: RwLock::new(settings.admission.into()),
            kinds: RwLock::new(settings.kinds.unwrap_or_else(|| Arc::new(()))),
            profiles: RwLock::default(),
            untracked: settings.untracked,
        };
        Self { inner: Arc::new(inner) }
    }

    /// The object store.
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// The served resources.
    pub fn registry(&self) -> &Registry {
        &self.inner.registry
    }

    /// The clock.
    pub fn clock(&self) -> Clock {
        self.inner.clock
    }

    /// Fault injection for tests.
    pub fn faults(&self) -> &Faults {
        &self.inner.faults
    }

    /// Appends an admission plugin.
    pub fn add_admission(&self, plugin: Arc<dyn Admission>) {
        let mut plugins = self.inner.admission.write().unwrap_or_else(PoisonError::into_inner);
        *plugins = plugins.iter().cloned().chain([plugin]).collect();
    }

    /// Replaces the rules of built-in kinds.
    pub fn set_kinds(&self, kinds: Arc<dyn KindRules>) {
        *self.inner.kinds.write().unwrap_or_else(PoisonError::into_inner) = kinds;
    }

    /// A new UID.
    pub fn new_uid(&self) -> String {
        self.inner.ids.uid()
    }

    /// Whether managed fields are tracked for objects that were never applied.
    pub(crate) fn tracks(&self, resource: &Resource) -> bool {
        !(resource.group.is_empty() && self.inner.untracked.contains(&&*resource.plural))
    }

    pub(crate) fn ids(&self) -> &Ids {
        &self.inner.ids
    }

    pub(crate) fn admission(&self) -> Arc<[Arc<dyn Admission>]> {
        self.inner.admission.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn kinds(&self) -> Arc<dyn KindRules> {
        self.inner.kinds.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notifies the rules of built-in kinds that an object was removed.
    pub(crate) fn removed(&self, profile: &Profile, object: &Object) {
        if profile.resource.custom().is_none() {
            self.kinds().removed(self, &profile.resource, object);
        }
    }

    pub(crate) fn downgrade(&self) -> WeakServer {
        WeakServer(Arc::downgrade(&self.inner))
    }

    pub(crate) fn profile(&self, resource: &Arc<Resource>) -> Arc<Profile> {
        let key =
            (TableKey { group: resource.group.clone(), plural: resource.plural.clone() }, resource.version.clone());
        let profiles = self.inner.profiles.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(profile) = profiles.get(&key).filter(|profile| Arc::ptr_eq(&profile.resource, resource)) {
            return profile.clone();
        }
        drop(profiles);
        let profile = Arc::new(Profile::of(resource));
        self.inner.profiles.write().unwrap_or_else(PoisonError::into_inner).insert(key, profile.clone());
        profile
    }

    /// Records the field manager on an object of a kind that is never stored.
    pub(crate) fn note_writer(
        &self,
        caller: &Caller,
        manager: &str,
        subresource: &str,
        object: serde_json::Value,
    ) -> serde_json::Value {
        super::pipeline::note_writer(self, caller, manager, subresource, object)
    }

    /// Reads one object, or its scale, in the version of the request.
    pub async fn get(&self, caller: &Caller, target: &Target, options: &GetOptions) -> Result<Arc<Object>> {
        let pass = self.faults().enter(Verb::Get, caller, target).await?;
        pass.answer(read::get(self, target, options))
    }

    /// Lists objects, in the version of the request.
    pub async fn list(&self, caller: &Caller, target: &Target, options: &ListOptions) -> Result<Listing> {
        let pass = self.faults().enter(Verb::List, caller, target).await?;
        pass.answer(read::list(self, target, options, pass.stale))
    }

    /// Watches objects, in the version of the request.
    pub async fn watch(&self, caller: &Caller, target: &Target, options: &ListOptions) -> Result<WatchStream> {
        let pass = self.faults().enter(Verb::Watch, caller, target).await?;
        watch::watch(self, caller, target, options, pass)
    }

    /// Creates an object, or posts to a subresource: `eviction`, `binding`.
    pub async fn create(
        &self,
        caller: &Caller,
        target: &Target,
        body: Payload,
        options: &WriteOptions,
    ) -> Result<Written> {
        let pass = self.faults().enter(Verb::Create, caller, target).await?;
        pass.answer(write::create(self, caller, target, body, options).await)
    }

    /// Replaces an object, its status or its scale.
    pub async fn update(
        &self,
        caller: &Caller,
        target: &Target,
        body: Payload,
        options: &WriteOptions,
    ) -> Result<Written> {
        let pass = self.faults().enter(Verb::Update, caller, target).await?;
        pass.answer(write::update(self, caller, target, body, options).await)
    }

    /// Patches an object, its status or its scale.
    pub async fn patch(
        &self,
        caller: &Caller,
        target: &Target,
        patch: Patch,
        options: &WriteOptions,
    ) -> Result<Written> {
        let pass = self.faults().enter(Verb::Patch, caller, target).await?;
        pass.answer(write::patch(self, caller, target, patch, options).await)
    }

    /// Deletes an object, at once or after its grace period.
    pub async fn delete(&self, caller: &Caller, target: &Target, options: &DeleteOptions) -> Result<Deleted> {
        let pass = self.faults().enter(Verb::Delete, caller, target).await?;
        pass.answer(delete::delete(self, caller, target, options).await)
    }

    /// Deletes all selected objects; returns them as a list.
    pub async fn delete_collection(
        &self,
        caller: &Caller,
        target: &Target,
        select: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<Listing> {
        let pass = self.faults().enter(Verb::DeleteCollection, caller, target).await?;
        pass.answer(delete::delete_collection(self, caller, target, select, options).await)
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("revision", &self.store().revision()).finish_non_exhaustive()
    }
}

/// A weak reference to a server, for background tasks.
#[derive(Clone)]
pub(crate) struct WeakServer(std::sync::Weak<Inner>);

impl WeakServer {
    pub(crate) fn upgrade(&self) -> Option<Server> {
        self.0.upgrade().map(|inner| Server { inner })
    }
}
