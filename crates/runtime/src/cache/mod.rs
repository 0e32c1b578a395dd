//! The cache: one trimmed copy of every object of interest, fed by one watch per kind for the whole process.
//!
//! A change is stored and delivered to all subscribers in one step, so that no subscriber reads an older state than the
//! change it got. Subscribers are plain functions that only add keys to queues. Deletions are changes too, and so is
//! every object that a relist no longer has.

mod discovery;
mod feed;
mod index;
mod scoped;
mod table;
mod view;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use capstan_plan::{Gvk, Live, LiveObjects, Packed, Ref, ServerVersion};
use kube::Client;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::kinds::{self, Kind, Presence};
use crate::metrics::Metrics;

pub use scoped::ScopedWatch;
pub use table::Key;
pub(crate) use table::{Replaced, Source, uid};
pub use view::View;

use table::Table;

/// A change of an object: created if `old` is `None`, deleted if `new` is `None`.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// Its kind.
    pub kind: &'static Kind,
    /// Its name.
    pub key: &'a Key,
    /// The object before.
    pub old: Option<&'a Live>,
    /// The object now.
    pub new: Option<&'a Live>,
    /// Whether it is the response to our own write, not a watch event.
    pub own_write: bool,
}

impl Change<'_> {
    /// Whether the object is a `K`; objects of slices match no type.
    pub fn is<K: kube::Resource<DynamicType = ()>>(&self) -> bool {
        self.kind.is(&Gvk::of::<K>())
    }

    /// The latest known state of the object.
    pub fn last(&self) -> &Live {
        self.new.or(self.old).expect("a change is about an object")
    }
}

/// An object that cannot be decoded. It is left out of the cache.
#[derive(Clone, Debug)]
pub struct UndecodableObject {
    /// Its identity.
    pub reference: Ref,
    /// Its uid.
    pub uid: String,
    /// The decoding error.
    pub reason: String,
}

type Subscriber = Box<dyn Fn(&Change<'_>) + Send + Sync>;
type UndecodableHandler = Box<dyn Fn(&UndecodableObject) + Send + Sync>;

/// The cached state of the cluster. Clones share one state.
#[derive(Clone)]
pub struct Cache {
    shared: Arc<Shared>,
}

struct Shared {
    kinds: &'static [Kind],
    tables: Vec<Feed>,
    /// Locked for reading while a change is stored and delivered, for writing to subscribe: no subscriber misses a
    /// change.
    subscribers: RwLock<Vec<Subscriber>>,
    on_undecodable: RwLock<Vec<UndecodableHandler>>,
    server: watch::Sender<Option<ServerVersion>>,
    /// Value of [`Cache::served`], precomputed because every reconcile reads it.
    served: RwLock<Arc<BTreeSet<Gvk>>>,
    /// Incremented whenever a kind syncs or is found to be absent.
    progress: watch::Sender<u64>,
    ready: AtomicBool,
    rediscover: Notify,
    metrics: Metrics,
}

/// One kind: its objects and the state of its watch.
struct Feed {
    table: Table,
    /// Locked while a change is stored and delivered, so that changes arrive in order.
    order: Mutex<()>,
    /// Whether the server does not serve the kind, or forbids to watch it.
    absent: AtomicBool,
    /// Field selector, where it differs from that of the kind.
    field_selector: Option<String>,
    /// The watched API version: that of the kind, or an older one where the server does not serve it.
    version: Mutex<&'static str>,
}

impl Feed {
    fn new(kind: &'static Kind, field_selector: Option<String>) -> Self {
        let (table, version) = (Table::new(kind), Mutex::new(kind.version));
        Self { table, order: Mutex::default(), absent: AtomicBool::new(false), field_selector, version }
    }

    fn version(&self) -> &'static str {
        *self.version.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the kind is watched in its preferred version.
    fn is_current(&self) -> bool {
        self.version() == self.table.kind.version
    }

    /// URL path of its objects.
    fn path(&self) -> String {
        self.table.kind.path_in(self.version(), "")
    }

    fn field_selector(&self) -> Option<String> {
        self.field_selector.clone().or_else(|| self.table.kind.field_selector().map(Into::into))
    }
}

impl Cache {
    /// An empty cache of the kinds in `table`; [`crate::kinds::KINDS`] is the table of the operator.
    pub fn new(table: &'static [Kind], metrics: Metrics) -> Self {
        let shared = Shared {
            kinds: table,
            tables: table.iter().map(|kind| Feed::new(kind, None)).collect(),
            subscribers: RwLock::default(),
            on_undecodable: RwLock::default(),
            server: watch::Sender::new(None),
            served: RwLock::default(),
            progress: watch::Sender::new(0),
            ready: AtomicBool::new(false),
            rediscover: Notify::new(),
            metrics,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Starts discovery and watches, until `stop`.
    pub fn start(&self, client: Client, stop: CancellationToken) {
        tokio::spawn(discovery::run(self.clone(), client, stop));
    }

    /// Calls `handler` for every cached object, and then for every change. It must not block, nor subscribe.
    pub fn subscribe(&self, handler: impl Fn(&Change<'_>) + Send + Sync + 'static) {
        let mut subscribers = self.shared.subscribers.write().unwrap_or_else(PoisonError::into_inner);
        for feed in &self.shared.tables {
            for object in feed.table.all() {
                let (kind, key) = (feed.table.kind, &Key::of(&object));
                handler(&Change { kind, key, old: None, new: Some(&object), own_write: false });
            }
        }
        subscribers.push(Box::new(handler));
    }

    /// Calls `handler` for every object that cannot be decoded.
    pub fn on_undecodable(&self, handler: impl Fn(&UndecodableObject) + Send + Sync + 'static) {
        self.shared.on_undecodable.write().unwrap_or_else(PoisonError::into_inner).push(Box::new(handler));
    }

    /// The row of a kind in the table of kinds.
    pub fn kind(&self, gvk: &Gvk) -> Result<&'static Kind, Error> {
        kinds::find(self.shared.kinds, gvk).ok_or_else(|| Error::UnknownKind(format!("{gvk:?}")))
    }

    /// The object with this identity.
    pub fn get(&self, reference: &Ref) -> Option<Live> {
        self.table(&reference.gvk)?.get(&Key::new(&reference.namespace, &reference.name))
    }

    /// The object of type `K` with this key, decoded. One that does not fit the type is an error, because it exists.
    pub fn typed<K>(&self, key: &Key) -> Result<Option<K>, Error>
    where
        K: kube::Resource<DynamicType = ()> + DeserializeOwned,
    {
        let gvk = Gvk::of::<K>();
        let Some(read) = self.table(&gvk).and_then(|table| table.typed(key)) else { return Ok(None) };
        let undecodable = |error: serde_json::Error| {
            let reference = Box::new(Ref { gvk, namespace: key.namespace.to_string(), name: key.name.to_string() });
            let uid = self.get(&reference).map(|object| uid(&object).to_owned()).unwrap_or_default();
            Error::Undecodable { reference, uid, reason: error.to_string() }
        };
        read.map(Some).map_err(undecodable)
    }

    /// All objects of a kind, ordered by key.
    pub fn all(&self, gvk: &Gvk) -> Vec<Live> {
        self.table(gvk).map(Table::all).unwrap_or_default()
    }

    /// All objects of a packed kind, as stored: iterating them decodes nothing.
    pub fn packed(&self, gvk: &Gvk) -> Vec<Packed> {
        self.table(gvk).map(Table::packed).unwrap_or_default()
    }

    /// One object of a packed kind.
    pub fn packed_one(&self, gvk: &Gvk, key: &Key) -> Option<Packed> {
        self.table(gvk)?.packed_one(key)
    }

    /// All objects of a packed slice.
    pub fn packed_slice(&self, slice: &str) -> Vec<Packed> {
        self.sliced(slice).map(Table::packed).unwrap_or_default()
    }

    /// Number of objects of a kind.
    pub fn count(&self, gvk: &Gvk) -> usize {
        self.table(gvk).map_or(0, Table::len)
    }

    /// Keys of all objects of a kind.
    pub fn keys(&self, gvk: &Gvk) -> Vec<Key> {
        self.table(gvk).map(Table::keys).unwrap_or_default()
    }

    /// The objects of a kind in a namespace.
    pub fn in_namespace(&self, gvk: &Gvk, namespace: &str) -> Vec<Live> {
        self.table(gvk).map(|table| table.in_namespace(namespace)).unwrap_or_default()
    }

    /// The objects of a kind in a namespace that contain the string `text`, and maybe others: a cheap prefilter before
    /// decoding.
    pub fn mentioning(&self, gvk: &Gvk, namespace: &str, text: &str) -> Vec<Live> {
        self.table(gvk).map(|table| table.mentioning(namespace, text)).unwrap_or_default()
    }

    /// The pods of a slice that are bound to a node.
    pub fn on_node(&self, slice: &str, node: &str) -> Vec<Live> {
        self.sliced(slice).map(|table| table.on_node(node)).unwrap_or_default()
    }

    /// The same as stored, of a packed slice.
    pub fn packed_on_node(&self, slice: &str, node: &str) -> Vec<Packed> {
        self.sliced(slice).map(|table| table.packed_on_node(node)).unwrap_or_default()
    }

    /// The objects that the owner with this uid controls, of all kinds.
    pub fn owned_by(&self, uid: &str) -> LiveObjects {
        self.view().owned_by(uid).live()
    }

    /// A snapshot builder: selects the objects that a plan reads.
    pub fn view(&self) -> View<'_> {
        View::new(self)
    }

    /// Version of the API server; `None` before discovery.
    pub fn server(&self) -> Option<ServerVersion> {
        *self.shared.server.borrow()
    }

    /// The kinds that the server serves and that have synced.
    pub fn served(&self) -> Arc<BTreeSet<Gvk>> {
        self.shared.served.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Recomputes [`Cache::served`].
    fn update_served(&self) {
        let mut served = self.shared.served.write().unwrap_or_else(PoisonError::into_inner);
        let feeds = self.shared.tables.iter().filter(|feed| feed.is_current()).map(|feed| &feed.table);
        let synced = feeds.filter(|table| table.kind.slice.is_empty() && table.synced());
        *served = Arc::new(synced.map(|table| table.kind.gvk()).collect());
    }

    /// Waits until the served kinds differ from `known`, and returns them.
    pub async fn served_other_than(&self, known: &BTreeSet<Gvk>) -> Arc<BTreeSet<Gvk>> {
        let mut progress = self.shared.progress.subscribe();
        // The sender lives as long as `self`.
        let _ = progress.wait_for(|_| *self.served() != *known).await;
        self.served()
    }

    /// Whether every kind has synced once, or is absent. It never becomes false again: a failing watch is no reason to
    /// become unready.
    pub fn is_synced(&self) -> bool {
        self.shared.ready.load(Ordering::Acquire)
    }

    /// Waits for [`is_synced`](Self::is_synced).
    pub async fn synced(&self) {
        let mut progress = self.shared.progress.subscribe();
        // The sender lives as long as `self`.
        let _ = progress.wait_for(|_| self.is_synced()).await;
    }

    /// Kinds that [`is_synced`](Self::is_synced) still waits for.
    pub fn missing(&self) -> Vec<&'static Kind> {
        let pending = |feed: &&Feed| !feed.table.synced() && !feed.absent.load(Ordering::Acquire);
        self.shared.tables.iter().filter(pending).map(|feed| feed.table.kind).collect()
    }

    /// Number of cached objects.
    pub fn len(&self) -> usize {
        self.shared.tables.iter().map(|feed| feed.table.len()).sum()
    }

    /// Whether the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Stores the response to a write, so that the next reconcile sees it before the watch event arrives.
    pub(crate) fn record_write(&self, kind: &'static Kind, object: Value) {
        if let Some(feed) = self.feed(kind) {
            self.changes(feed, true, || feed.table.put(Source::Write, object).into_iter().collect());
        }
    }

    /// Removes an object that our own write deleted.
    pub(crate) fn record_deletion(&self, kind: &'static Kind, object: &Value) {
        if let Some(feed) = self.feed(kind) {
            self.changes(feed, true, || feed.table.remove(Source::Write, object).into_iter().collect());
        }
    }

    fn table(&self, gvk: &Gvk) -> Option<&Table> {
        self.shared.tables.iter().map(|feed| &feed.table).find(|table| table.kind.is(gvk))
    }

    fn sliced(&self, slice: &str) -> Option<&Table> {
        self.shared.tables.iter().map(|feed| &feed.table).find(|table| table.kind.slice == slice)
    }

    fn feed(&self, kind: &'static Kind) -> Option<&Feed> {
        self.shared.tables.iter().find(|feed| std::ptr::eq(feed.table.kind, kind))
    }

    /// Stores a change and delivers it, in one step.
    fn change(&self, feed: &Feed, edit: impl FnOnce() -> Option<Replaced>) {
        self.changes(feed, false, || edit().into_iter().collect());
    }

    fn changes(&self, feed: &Feed, own_write: bool, edit: impl FnOnce() -> Vec<Replaced>) {
        let subscribers = self.shared.subscribers.read().unwrap_or_else(PoisonError::into_inner);
        let _order = feed.order.lock().unwrap_or_else(PoisonError::into_inner);
        let replaced = edit();
        for Replaced { key, old, new } in &replaced {
            let change = Change { kind: feed.table.kind, key, old: old.as_ref(), new: new.as_ref(), own_write };
            for subscriber in subscribers.iter() {
                // A panicking subscriber must not end the watch.
                if catch_unwind(AssertUnwindSafe(|| subscriber(&change))).is_err() {
                    tracing::error!(kind = %feed.table.kind, object = %key, "cache subscriber panicked");
                }
            }
        }
        if !replaced.is_empty() {
            self.shared.metrics.cached(feed.table.kind.label(), feed.table.len());
        }
    }

    fn undecodable(&self, object: &UndecodableObject) {
        tracing::warn!(object = %object.reference, reason = object.reason, "object not decodable; skipped");
        let handlers = self.shared.on_undecodable.read().unwrap_or_else(PoisonError::into_inner);
        handlers.iter().for_each(|handler| handler(object));
    }

    fn set_absent(&self, feed: &Feed, absent: bool) {
        feed.absent.store(absent, Ordering::Release);
        self.notify_progress();
    }

    fn notify_progress(&self) {
        self.update_served();
        if self.missing().is_empty() {
            self.shared.ready.store(true, Ordering::Release);
        }
        self.shared.progress.send_modify(|count| *count += 1);
    }

    fn optional(&self) -> impl Iterator<Item = &Feed> {
        self.shared.tables.iter().filter(|feed| feed.table.kind.presence == Presence::Optional)
    }
}
