//! Informers: one trimmed, typed copy of each object for the whole process, fed by one watch per kind.
//!
//! All readers share the same `Arc`s. A change is applied and delivered to all subscribers in one step, so that the
//! cache is never older than the change that a subscriber handles. A write by a [`Writer`](crate::Writer) is in the
//! cache when it returns; the watch event that follows is recognised by its resource version and skipped.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::Duration;

use capstan_apiserver::ops::{Caller, ListOptions, Server, Target, WatchEvent};
use capstan_apiserver::registry::Resource;
use capstan_apiserver::store::Object;
use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::caches::Caches;
use crate::gauges::Gauges;

/// Delay before a watch is restarted.
const RESTART_DELAY: Duration = Duration::from_millis(100);

/// A kind that components read or write.
pub trait Kind:
    k8s_openapi::Metadata<Ty = ObjectMeta>
    + k8s_openapi::Resource
    + Serialize
    + DeserializeOwned
    + Clone
    + PartialEq
    + std::fmt::Debug
    + Send
    + Sync
    + Sized
    + 'static
{
    /// The cache of the kind, if it is cached.
    fn cache(caches: &Caches) -> Option<&Cache<Self>> {
        let _ = caches;
        None
    }

    /// Drops fields that no component reads, before the object is cached. managedFields are always dropped.
    fn trim(&mut self) {}

    /// The node that the object is bound to.
    fn node(&self) -> Option<&str> {
        None
    }
}

/// A change of an object: created without `old`, deleted without `new`.
#[derive(Debug)]
pub struct Change<'a, K> {
    /// `NAMESPACE/NAME`, or `NAME` if cluster-scoped.
    pub key: &'a Arc<str>,
    /// The previous version.
    pub old: Option<&'a Arc<K>>,
    /// The new version.
    pub new: Option<&'a Arc<K>>,
}

impl<K> Change<'_, K> {
    /// The latest known version.
    pub fn last(&self) -> &Arc<K> {
        self.new.or(self.old).expect("a change has an old or a new object")
    }
}

type Handler<K> = Box<dyn Fn(&Change<'_, K>) + Send + Sync>;

/// All objects of a kind. Clones share one state.
pub struct Cache<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    resource: Arc<Resource>,
    field_selector: &'static str,
    state: RwLock<State<K>>,
    /// Locked while a change is applied and delivered.
    handlers: Mutex<Vec<Handler<K>>>,
    synced: watch::Sender<bool>,
}

struct State<K> {
    objects: BTreeMap<Arc<str>, Entry<K>>,
    by_controller: Index,
    by_node: Index,
    /// Objects without a controller, by namespace.
    orphans: Index,
    /// Resource versions of local deletions that the watch has not delivered yet.
    deleted_revisions: HashMap<Arc<str>, u64>,
}

struct Entry<K> {
    revision: u64,
    object: Arc<K>,
}

#[derive(Default)]
struct Index(HashMap<Box<str>, BTreeSet<Arc<str>>>);

/// A weak reference to a cache.
pub(crate) struct WeakCache<K>(Weak<Shared<K>>);

impl<K> WeakCache<K> {
    pub(crate) fn upgrade(&self) -> Option<Cache<K>> {
        Some(Cache { shared: self.0.upgrade()? })
    }
}

impl<K> Clone for Cache<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<K: Kind> Cache<K> {
    /// An empty cache of the objects that `field_selector` selects.
    pub(crate) fn new(resource: Arc<Resource>, field_selector: &'static str) -> Self {
        let state = State {
            objects: BTreeMap::new(),
            by_controller: Index::default(),
            by_node: Index::default(),
            orphans: Index::default(),
            deleted_revisions: HashMap::new(),
        };
        let shared = Shared {
            resource,
            field_selector,
            state: RwLock::new(state),
            handlers: Mutex::new(Vec::new()),
            synced: watch::Sender::new(false),
        };
        Self { shared: Arc::new(shared) }
    }

    /// A weak reference for the cache's own subscribers, which must not keep it alive.
    pub(crate) fn downgrade(&self) -> WeakCache<K> {
        WeakCache(Arc::downgrade(&self.shared))
    }

    /// The cached resource.
    pub fn resource(&self) -> &Arc<Resource> {
        &self.shared.resource
    }

    /// The object under `NAMESPACE/NAME`, or `NAME` if cluster-scoped.
    pub fn get(&self, key: &str) -> Option<Arc<K>> {
        self.state().objects.get(key).map(|entry| entry.object.clone())
    }

    /// The object of that name in a namespace.
    pub fn find(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.get(&format!("{namespace}/{name}"))
    }

    /// All objects, ordered by key.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.state().objects.values().map(|entry| entry.object.clone()).collect()
    }

    /// All objects in a namespace, ordered by name.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let (from, to) = (format!("{namespace}/"), format!("{namespace}0"));
        let state = self.state();
        let range = state.objects.range::<str, _>((Bound::Included(from.as_str()), Bound::Excluded(to.as_str())));
        range.map(|(_, entry)| entry.object.clone()).collect()
    }

    /// The objects whose controller has this UID, ordered by key.
    pub fn controlled_by(&self, uid: &str) -> Vec<Arc<K>> {
        self.select(|state| &state.by_controller, uid)
    }

    /// Number of objects whose controller has this UID.
    pub fn count_controlled_by(&self, uid: &str) -> usize {
        self.state().by_controller.0.get(uid).map_or(0, BTreeSet::len)
    }

    /// The objects in a namespace without a controller.
    pub fn orphans(&self, namespace: &str) -> Vec<Arc<K>> {
        self.select(|state| &state.orphans, namespace)
    }

    /// The objects that are bound to a node.
    pub fn on_node(&self, node: &str) -> Vec<Arc<K>> {
        self.select(|state| &state.by_node, node)
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.state().objects.len()
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops all subscribers.
    pub(crate) fn close(&self) {
        let handlers = std::mem::take(&mut *self.handlers());
        drop(handlers);
    }

    /// Reports the number of cached objects as a gauge.
    pub(crate) fn count(&self, name: &str, gauges: &Gauges) {
        let of = |count: fn(&State<K>) -> usize| {
            let shared = Arc::downgrade(&self.shared);
            move || shared.upgrade().map_or(0, |shared| count(&Cache { shared }.state()))
        };
        gauges.add(format!("cache {name}"), of(|state| state.objects.len()));
        gauges.add(format!("cache {name}: deletions ahead of the watch"), of(|state| state.deleted_revisions.len()));
        let indexed: fn(&State<K>) -> usize =
            |state| [&state.by_controller, &state.by_node, &state.orphans].map(Index::len).into_iter().sum();
        gauges.add(format!("cache {name}: entries of indexes"), of(indexed));
    }

    /// Calls `handler` for every existing object, then for every change. It must neither block nor subscribe.
    pub fn subscribe(&self, handler: impl Fn(&Change<'_, K>) + Send + Sync + 'static) {
        let mut handlers = self.handlers();
        for object in self.list() {
            handler(&Change { key: &key_of(object.metadata()), old: None, new: Some(&object) });
        }
        handlers.push(Box::new(handler));
    }

    /// Waits for the initial list.
    pub async fn synced(&self) {
        let mut synced = self.shared.synced.subscribe();
        // An error means that the feed has ended, which happens only when the cluster stops.
        let _ = synced.wait_for(|synced| *synced).await;
    }

    /// Caches an object that was just written.
    pub(crate) fn observe(&self, object: &Object) -> Option<Arc<K>> {
        self.put(object)
    }

    /// The same for an object that is already typed.
    pub(crate) fn observe_as(&self, object: &Object, mut typed: K) {
        typed.metadata_mut().resource_version = Some(object.revision.to_string());
        self.change(object.key(), Some((object.revision, Arc::new(typed))));
    }

    /// Removes an object that was just deleted.
    pub(crate) fn observe_deletion(&self, object: &Object) {
        self.remove(object.key(), object.revision, true);
    }

    fn select(&self, index: impl Fn(&State<K>) -> &Index, value: &str) -> Vec<Arc<K>> {
        let state = self.state();
        let keys = index(&state).0.get(value).into_iter().flatten();
        keys.filter_map(|key| state.objects.get(key)).map(|entry| entry.object.clone()).collect()
    }

    fn state(&self) -> RwLockReadGuard<'_, State<K>> {
        self.shared.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn handlers(&self) -> MutexGuard<'_, Vec<Handler<K>>> {
        self.shared.handlers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists and watches until the cluster stops.
    pub(crate) async fn feed(self, server: Server, caller: Caller) {
        let target = Target::all(self.shared.resource.clone(), None);
        let options = ListOptions {
            field_selector: self.shared.field_selector.to_owned(),
            resource_version_match: "NotOlderThan".to_owned(),
            allow_bookmarks: true,
            send_initial_events: Some(true),
            ..ListOptions::default()
        };
        loop {
            match server.watch(&caller, &target, &options).await {
                Ok(mut events) => self.follow(&mut events).await,
                Err(error) => tracing::debug!(kind = K::KIND, %error, "watch failed"),
            }
            tokio::time::sleep(RESTART_DELAY).await;
        }
    }

    async fn follow(&self, events: &mut capstan_apiserver::ops::WatchStream) {
        let mut initial = Some(BTreeSet::new());
        while let Some(event) = events.next().await {
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    if let Some(listed) = &mut initial {
                        listed.insert(object.key().clone());
                    }
                    self.put(&object);
                }
                WatchEvent::Deleted(object) => self.remove(object.key(), object.revision, false),
                WatchEvent::Bookmark { revision, initial: true } => {
                    if let Some(listed) = initial.take() {
                        self.retain(&listed, revision);
                    }
                    self.shared.synced.send_replace(true);
                }
                WatchEvent::Bookmark { .. } => {}
                WatchEvent::Error(error) => {
                    tracing::debug!(kind = K::KIND, %error, "watch ended");
                    return;
                }
            }
        }
    }

    fn put(&self, object: &Object) -> Option<Arc<K>> {
        {
            let state = self.state();
            if let Some(entry) = state.objects.get(object.key()).filter(|entry| entry.revision >= object.revision) {
                return Some(entry.object.clone());
            }
            if state
                .deleted_revisions
                .get(object.key())
                .is_some_and(|deleted_revisions| *deleted_revisions >= object.revision)
            {
                return None;
            }
        }
        let mut typed: K = match object.parse_unmanaged() {
            Ok(typed) => typed,
            Err(error) => {
                tracing::warn!(kind = K::KIND, key = %object.key(), %error, "object not decodable");
                return None;
            }
        };
        typed.metadata_mut().managed_fields = None;
        typed.trim();
        // Parsed lists have spare capacity; a clone has none, and half the size.
        let typed = Arc::new(typed.clone());
        self.change(object.key(), Some((object.revision, typed)))
    }

    fn remove(&self, key: &Arc<str>, revision: u64, ahead_of_watch: bool) {
        {
            let mut state = self.shared.state.write().unwrap_or_else(PoisonError::into_inner);
            if ahead_of_watch {
                state.deleted_revisions.insert(key.clone(), revision);
            } else if state.deleted_revisions.get(key).is_some_and(|deleted_revisions| *deleted_revisions <= revision) {
                state.deleted_revisions.remove(key);
            }
            if state.objects.get(key).is_none_or(|entry| entry.revision > revision) {
                return;
            }
        }
        self.change(key, None);
    }

    /// Drops objects that a relist did not return, except those written after it.
    fn retain(&self, listed: &BTreeSet<Arc<str>>, revision: u64) {
        let missing: Vec<Arc<str>> = {
            let mut state = self.shared.state.write().unwrap_or_else(PoisonError::into_inner);
            state.deleted_revisions.retain(|_, deleted_revisions| *deleted_revisions > revision);
            let objects = state.objects.iter();
            objects
                .filter(|(key, e)| e.revision <= revision && !listed.contains(*key))
                .map(|(k, _)| k.clone())
                .collect()
        };
        for key in missing {
            self.change(&key, None);
        }
    }

    /// Applies one change and delivers it.
    fn change(&self, key: &Arc<str>, new: Option<(u64, Arc<K>)>) -> Option<Arc<K>> {
        let handlers = self.handlers();
        let (old, new) = {
            let mut state = self.shared.state.write().unwrap_or_else(PoisonError::into_inner);
            // Another write may have been applied while the object was parsed.
            if let (Some((revision, _)), Some(entry)) = (&new, state.objects.get(key))
                && entry.revision >= *revision
            {
                return Some(entry.object.clone());
            }
            state.replace(key, new)
        };
        if old.is_some() || new.is_some() {
            let change = Change { key, old: old.as_ref(), new: new.as_ref() };
            for handler in handlers.iter() {
                handler(&change);
            }
        }
        new
    }
}

impl<K: Kind> State<K> {
    fn replace(&mut self, key: &Arc<str>, new: Option<(u64, Arc<K>)>) -> (Option<Arc<K>>, Option<Arc<K>>) {
        let (old, new) = match new {
            Some((revision, object)) => {
                let entry = Entry { revision, object: object.clone() };
                (self.objects.insert(key.clone(), entry), Some(object))
            }
            None => (self.objects.remove(key), None),
        };
        let old = old.map(|entry| entry.object);
        type Value<K> = fn(&K) -> Option<&str>;
        let indexes: [(&mut Index, Value<K>); 3] = [
            (&mut self.by_controller, |object| controller_of(object.metadata()).map(|owner| owner.uid.as_str())),
            (&mut self.by_node, K::node),
            (&mut self.orphans, |object| match controller_of(object.metadata()) {
                None => object.metadata().namespace.as_deref(),
                Some(_) => None,
            }),
        ];
        for (index, of) in indexes {
            index.replace(key, old.as_deref().and_then(of), new.as_deref().and_then(of));
        }
        (old, new)
    }
}

impl Index {
    fn len(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum()
    }

    fn replace(&mut self, key: &Arc<str>, old: Option<&str>, new: Option<&str>) {
        if old == new {
            return;
        }
        if let Some(old) = old
            && let Some(keys) = self.0.get_mut(old)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.0.remove(old);
            }
        }
        if let Some(new) = new {
            self.0.entry(new.into()).or_default().insert(key.clone());
        }
    }
}

/// `NAMESPACE/NAME`, or `NAME` if cluster-scoped.
pub fn key_of(meta: &ObjectMeta) -> Arc<str> {
    let name = meta.name.as_deref().unwrap_or_default();
    match meta.namespace.as_deref() {
        Some(namespace) if !namespace.is_empty() => format!("{namespace}/{name}").into(),
        _ => name.into(),
    }
}

/// Namespace and name of a key.
pub fn split_key(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or(("", key))
}

/// The controller reference of an object.
pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.as_ref()?.iter().find(|owner| owner.controller == Some(true))
}
