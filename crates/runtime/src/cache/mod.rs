//! The cache: one trimmed copy of every object of interest, fed by one watch per kind for the whole process.
//!
//! A change is kept and handed to all subscribers in one step, so that nobody who was told of a change reads something
//! older. Subscribers are plain functions that only push keys into queues. Deletions are changes too, and so is
//! everything that vanished while a watch was down.

mod discovery;
mod feed;
mod follow;
mod index;
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

pub use follow::Followed;
pub use table::Key;
pub(crate) use table::{Replaced, Source, uid};
pub use view::View;

use table::Table;

/// What happened to an object: it is new without `old`, and gone without `new`.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// What it is.
    pub kind: &'static Kind,
    /// Its name.
    pub key: &'a Key,
    /// The object before.
    pub old: Option<&'a Live>,
    /// The object now.
    pub new: Option<&'a Live>,
    /// Whether it is known from a write of this process, and not from the watch.
    pub ours: bool,
}

impl Change<'_> {
    /// Whether it is about an object of type `K`; objects of slices of a kind are of no kind.
    pub fn is<K: kube::Resource<DynamicType = ()>>(&self) -> bool {
        self.kind.is(&Gvk::of::<K>())
    }

    /// The object as it was last seen.
    pub fn last(&self) -> &Live {
        self.new.or(self.old).expect("a change is about an object")
    }
}

/// An object that cannot be read at all. It is left out of the cache; everything else goes on.
#[derive(Clone, Debug)]
pub struct Poison {
    /// Which.
    pub reference: Ref,
    /// Its uid.
    pub uid: String,
    /// Why.
    pub reason: String,
}

type Subscriber = Box<dyn Fn(&Change<'_>) + Send + Sync>;
type PoisonHandler = Box<dyn Fn(&Poison) + Send + Sync>;

/// Everything that this process knows of the cluster. Clones share one state.
#[derive(Clone)]
pub struct Cache {
    shared: Arc<Shared>,
}

struct Shared {
    kinds: &'static [Kind],
    tables: Vec<Feed>,
    /// Read while a change is kept and handed out, written to subscribe: nobody misses a change.
    subscribers: RwLock<Vec<Subscriber>>,
    on_poison: RwLock<Vec<PoisonHandler>>,
    server: watch::Sender<Option<ServerVersion>>,
    /// What [`Cache::served`] says: every decision asks.
    served: RwLock<Arc<BTreeSet<Gvk>>>,
    /// Rises whenever a kind becomes complete or is found to be absent.
    progress: watch::Sender<u64>,
    ready: AtomicBool,
    rediscover: Notify,
    metrics: Metrics,
}

/// One kind: its objects and what is known of its watch.
struct Feed {
    table: Table,
    /// Held while a change is kept and handed out, so that changes arrive in order.
    order: Mutex<()>,
    /// Whether the server was found to lack the kind, or to keep it from us.
    absent: AtomicBool,
    /// Field selector, where it is not that of the kind.
    narrowed: Option<String>,
    /// The version that is watched: that of the kind, or an older one where the server lacks it.
    version: Mutex<&'static str>,
}

impl Feed {
    fn new(kind: &'static Kind, narrowed: Option<String>) -> Self {
        let (table, version) = (Table::new(kind), Mutex::new(kind.version));
        Self { table, order: Mutex::default(), absent: AtomicBool::new(false), narrowed, version }
    }

    fn version(&self) -> &'static str {
        *self.version.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the server has the kind in its own version.
    fn is_current(&self) -> bool {
        self.version() == self.table.kind.version
    }

    /// Where its objects are.
    fn path(&self) -> String {
        self.table.kind.path_in(self.version(), "")
    }

    fn field_selector(&self) -> Option<String> {
        self.narrowed.clone().or_else(|| self.table.kind.field_selector().map(Into::into))
    }
}

impl Cache {
    /// An empty cache of the kinds in `table`; [`crate::kinds::KINDS`] is the table of the operator.
    pub fn new(table: &'static [Kind], metrics: Metrics) -> Self {
        let shared = Shared {
            kinds: table,
            tables: table.iter().map(|kind| Feed::new(kind, None)).collect(),
            subscribers: RwLock::default(),
            on_poison: RwLock::default(),
            server: watch::Sender::new(None),
            served: RwLock::default(),
            progress: watch::Sender::new(0),
            ready: AtomicBool::new(false),
            rediscover: Notify::new(),
            metrics,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Starts to follow the server until `stop`.
    pub fn start(&self, client: Client, stop: CancellationToken) {
        tokio::spawn(discovery::run(self.clone(), client, stop));
    }

    /// Calls `handler` for every object there is, and then for every change. It must not block, nor subscribe.
    pub fn subscribe(&self, handler: impl Fn(&Change<'_>) + Send + Sync + 'static) {
        let mut subscribers = self.shared.subscribers.write().unwrap_or_else(PoisonError::into_inner);
        for feed in &self.shared.tables {
            for object in feed.table.all() {
                let (kind, key) = (feed.table.kind, &Key::of(&object));
                handler(&Change { kind, key, old: None, new: Some(&object), ours: false });
            }
        }
        subscribers.push(Box::new(handler));
    }

    /// Calls `handler` for every object that cannot be read.
    pub fn on_poison(&self, handler: impl Fn(&Poison) + Send + Sync + 'static) {
        self.shared.on_poison.write().unwrap_or_else(PoisonError::into_inner).push(Box::new(handler));
    }

    /// The row of a kind.
    pub fn kind(&self, gvk: &Gvk) -> Result<&'static Kind, Error> {
        kinds::find(self.shared.kinds, gvk).ok_or_else(|| Error::UnknownKind(format!("{gvk:?}")))
    }

    /// The object of that identity.
    pub fn get(&self, reference: &Ref) -> Option<Live> {
        self.table(&reference.gvk)?.get(&Key::new(&reference.namespace, &reference.name))
    }

    /// The object of type `K` of that name, decoded. One that does not fit the type is an error, as it is there.
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

    /// All objects of a kind, in the order of their keys.
    pub fn all(&self, gvk: &Gvk) -> Vec<Live> {
        self.table(gvk).map(Table::all).unwrap_or_default()
    }

    /// All objects of a kind that is kept packed, as they are kept: to look at all of them, and to make none anew.
    pub fn packed(&self, gvk: &Gvk) -> Vec<Packed> {
        self.table(gvk).map(Table::packed).unwrap_or_default()
    }

    /// One object of such a kind.
    pub fn packed_one(&self, gvk: &Gvk, key: &Key) -> Option<Packed> {
        self.table(gvk)?.packed_one(key)
    }

    /// All objects of a slice of such a kind.
    pub fn packed_slice(&self, slice: &str) -> Vec<Packed> {
        self.sliced(slice).map(Table::packed).unwrap_or_default()
    }

    /// How many objects of a kind there are.
    pub fn count(&self, gvk: &Gvk) -> usize {
        self.table(gvk).map_or(0, Table::len)
    }

    /// Names of all objects of a kind.
    pub fn keys(&self, gvk: &Gvk) -> Vec<Key> {
        self.table(gvk).map(Table::keys).unwrap_or_default()
    }

    /// The objects of a kind in a namespace.
    pub fn in_namespace(&self, gvk: &Gvk, namespace: &str) -> Vec<Live> {
        self.table(gvk).map(|table| table.in_namespace(namespace)).unwrap_or_default()
    }

    /// The objects of a kind in a namespace in which some text is `text`, and maybe others: what need not be read is not.
    pub fn mentioning(&self, gvk: &Gvk, namespace: &str, text: &str) -> Vec<Live> {
        self.table(gvk).map(|table| table.mentioning(namespace, text)).unwrap_or_default()
    }

    /// The pods of a slice that are on a node.
    pub fn on_node(&self, slice: &str, node: &str) -> Vec<Live> {
        self.sliced(slice).map(|table| table.on_node(node)).unwrap_or_default()
    }

    /// The same as they are kept, of a slice that is kept packed.
    pub fn packed_on_node(&self, slice: &str, node: &str) -> Vec<Packed> {
        self.sliced(slice).map(|table| table.packed_on_node(node)).unwrap_or_default()
    }

    /// What the owner with this uid controls, of all kinds.
    pub fn owned_by(&self, uid: &str) -> LiveObjects {
        self.view().owned_by(uid).live()
    }

    /// What a decision may look at, to be chosen.
    pub fn view(&self) -> View<'_> {
        View::new(self)
    }

    /// Version of the server; none before it was asked.
    pub fn server(&self) -> Option<ServerVersion> {
        *self.shared.server.borrow()
    }

    /// The kinds that the server serves and whose objects are all here.
    pub fn served(&self) -> Arc<BTreeSet<Gvk>> {
        self.shared.served.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes which these are now.
    fn note_served(&self) {
        let mut served = self.shared.served.write().unwrap_or_else(PoisonError::into_inner);
        let feeds = self.shared.tables.iter().filter(|feed| feed.is_current()).map(|feed| &feed.table);
        let whole = feeds.filter(|table| table.kind.slice.is_empty() && table.synced());
        *served = Arc::new(whole.map(|table| table.kind.gvk()).collect());
    }

    /// Waits until other kinds are served than `known`, and says which.
    pub async fn served_other_than(&self, known: &BTreeSet<Gvk>) -> Arc<BTreeSet<Gvk>> {
        let mut progress = self.shared.progress.subscribe();
        // The sender lives as long as `self`.
        let _ = progress.wait_for(|_| *self.served() != *known).await;
        self.served()
    }

    /// Whether every kind was complete once, or is known to be absent. It stays so: a watch that is down is no reason
    /// to take this process out of service.
    pub fn is_synced(&self) -> bool {
        self.shared.ready.load(Ordering::Acquire)
    }

    /// Waits for [`is_synced`](Self::is_synced).
    pub async fn synced(&self) {
        let mut progress = self.shared.progress.subscribe();
        // The sender lives as long as `self`.
        let _ = progress.wait_for(|_| self.is_synced()).await;
    }

    /// Kinds for which [`is_synced`](Self::is_synced) still waits.
    pub fn missing(&self) -> Vec<&'static Kind> {
        let waits = |feed: &&Feed| !feed.table.synced() && !feed.absent.load(Ordering::Acquire);
        self.shared.tables.iter().filter(waits).map(|feed| feed.table.kind).collect()
    }

    /// How many objects are kept.
    pub fn len(&self) -> usize {
        self.shared.tables.iter().map(|feed| feed.table.len()).sum()
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes in the answer to a write, so that the next decision sees it before the watch tells.
    pub(crate) fn wrote(&self, kind: &'static Kind, object: Value) {
        if let Some(feed) = self.feed(kind) {
            self.changes(feed, true, || feed.table.put(Source::Write, object).into_iter().collect());
        }
    }

    /// Takes in that a write of ours deleted an object.
    pub(crate) fn deleted(&self, kind: &'static Kind, object: &Value) {
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

    /// Keeps what changed and hands it out, in one step.
    fn change(&self, feed: &Feed, edit: impl FnOnce() -> Option<Replaced>) {
        self.changes(feed, false, || edit().into_iter().collect());
    }

    fn changes(&self, feed: &Feed, ours: bool, edit: impl FnOnce() -> Vec<Replaced>) {
        let subscribers = self.shared.subscribers.read().unwrap_or_else(PoisonError::into_inner);
        let _order = feed.order.lock().unwrap_or_else(PoisonError::into_inner);
        let replaced = edit();
        for Replaced { key, old, new } in &replaced {
            let change = Change { kind: feed.table.kind, key, old: old.as_ref(), new: new.as_ref(), ours };
            for subscriber in subscribers.iter() {
                // A subscriber that panics must not end the watch of everybody.
                if catch_unwind(AssertUnwindSafe(|| subscriber(&change))).is_err() {
                    tracing::error!(kind = %feed.table.kind, object = %key, "cache subscriber panicked");
                }
            }
        }
        if !replaced.is_empty() {
            self.shared.metrics.cached(feed.table.kind.label(), feed.table.len());
        }
    }

    fn poisoned(&self, poison: &Poison) {
        tracing::warn!(object = %poison.reference, reason = poison.reason, "object not decodable; skipped");
        let handlers = self.shared.on_poison.read().unwrap_or_else(PoisonError::into_inner);
        handlers.iter().for_each(|handler| handler(poison));
    }

    fn set_absent(&self, feed: &Feed, absent: bool) {
        feed.absent.store(absent, Ordering::Release);
        self.progressed();
    }

    fn progressed(&self) {
        self.note_served();
        if self.missing().is_empty() {
            self.shared.ready.store(true, Ordering::Release);
        }
        self.shared.progress.send_modify(|count| *count += 1);
    }

    fn optional(&self) -> impl Iterator<Item = &Feed> {
        self.shared.tables.iter().filter(|feed| feed.table.kind.presence == Presence::Optional)
    }
}
