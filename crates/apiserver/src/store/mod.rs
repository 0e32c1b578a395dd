//! The object store: revisions, event log, indexes and watches in memory; persisted if [opened](Store::open).
//!
//! All calls are synchronous and take one short lock. A write gets the next revision, which all resources share, is
//! appended to the log of its table and delivered to matching watchers in one step: so a list is one snapshot, and a
//! watch that starts at the revision of a list misses no event.

mod counts;
mod disk;
mod field_selector;
mod fields;
mod gc_events;
mod list;
mod log;
mod object;
mod record;
mod selector;
mod table;
mod text;
mod watch;
mod watchers;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use disk::{Disk, Journal};
use table::Table;

pub use counts::Counts;
pub use disk::DiskError;
pub use fields::{FieldPaths, Fields};
pub use gc_events::{GcEvent, GcEvents};
pub(crate) use list::too_large;
pub use list::{ListRevision, Listing, Query};
pub use object::{Deletion, Object, TypeMeta};
pub use selector::{FieldSelector, LabelSelector, Selection};
pub use watch::{Event, EventKind, Start, Watch};

use crate::error::Result;
use crate::registry::Resource;

/// Key of a resource's table: all versions of a group and plural share it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableKey {
    /// API group, empty for the core group.
    pub group: Arc<str>,
    /// Plural resource name.
    pub plural: Arc<str>,
}

impl TableKey {
    /// The table of that group and plural.
    pub fn new(group: &str, plural: &str) -> Self {
        Self { group: group.into(), plural: plural.into() }
    }

    /// The table of a resource.
    pub fn of(resource: &Resource) -> Self {
        Self { group: resource.storage_group.clone(), plural: resource.plural.clone() }
    }
}

/// Limits of the retained history. A watch or list of an older revision fails with 410.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// Maximum number of events per table.
    pub events: usize,
    /// Maximum bytes of superseded objects per table.
    pub bytes: usize,
    /// Maximum age of events.
    pub age: Duration,
    /// Maximum number of events that a watcher may lag behind before it is terminated.
    pub lag: usize,
}

impl Default for Retention {
    fn default() -> Self {
        Self { events: 20_000, bytes: 48 << 20, age: Duration::from_secs(600), lag: 16_384 }
    }
}

/// Why a write failed.
#[derive(Clone, Debug)]
pub enum WriteError {
    /// The object does not exist.
    NotFound,
    /// The object exists already, or is at another revision than expected: its current state.
    Conflict(Arc<Object>),
}

/// The object store. Clones share one state.
#[derive(Clone, Debug)]
pub struct Store {
    state: Arc<Mutex<State>>,
    /// The file it is persisted to, if any.
    disk: Option<Arc<Disk>>,
}

#[derive(Debug)]
struct State {
    revision: u64,
    /// Everything up to this revision was compacted, in all tables.
    floor: u64,
    retention: Retention,
    ids: HashMap<TableKey, usize>,
    tables: Vec<Table>,
    /// Free slots of dropped tables.
    free: Vec<usize>,
    /// Revision at which the last table was dropped. A new table may have had history before that.
    dropped: u64,
    /// The next table whose log is expired.
    sweep: usize,
    /// Owner UID to its dependents: table and key.
    dependents: HashMap<Arc<str>, HashSet<(usize, Arc<str>)>>,
    next_watcher: u64,
    /// Events for the garbage collector.
    gc_events: Option<tokio::sync::mpsc::UnboundedSender<GcEvent>>,
    /// Queue of changes to persist.
    journal: Option<Journal>,
}

impl Default for Store {
    fn default() -> Self {
        Self::new(Retention::default())
    }
}

impl Store {
    /// An empty store at revision 1.
    pub fn new(retention: Retention) -> Self {
        Self { state: Arc::new(Mutex::new(State::new(1, 0, retention))), disk: None }
    }

    /// The revision of the last write.
    pub fn revision(&self) -> u64 {
        self.lock().revision
    }

    /// The current state of an object.
    pub fn get(&self, table: &TableKey, namespace: &str, name: &str) -> Option<Arc<Object>> {
        let state = self.lock();
        let objects = &state.tables[*state.ids.get(table)?].objects;
        if namespace.is_empty() {
            objects.get(name).cloned()
        } else {
            objects.get(format!("{namespace}/{name}").as_str()).cloned()
        }
    }

    /// Lists objects at one revision.
    pub fn list(&self, table: &TableKey, query: &Query) -> Result<Listing> {
        let mut state = self.lock();
        let (id, revision) = (state.table(table), state.revision);
        list::list(&state.tables[id], revision, query)
    }

    /// All selected objects of a table at the current revision.
    pub fn select(&self, table: &TableKey, selection: &Selection) -> Vec<Arc<Object>> {
        let query = Query { selection: selection.clone(), ..Query::default() };
        self.list(table, &query).map(|listing| listing.items).unwrap_or_default()
    }

    /// Creates an object.
    pub fn create(&self, table: &TableKey, object: Object) -> Result<Arc<Object>, WriteError> {
        let mut state = self.lock();
        let id = state.table(table);
        match state.tables[id].objects.get(&**object.key()) {
            Some(present) => Err(WriteError::Conflict(present.clone())),
            None => Ok(state.put(id, object, None)),
        }
    }

    /// Replaces the object whose revision is `expected`.
    pub fn update(&self, table: &TableKey, object: Object, expected: u64) -> Result<Arc<Object>, WriteError> {
        let mut state = self.lock();
        let id = state.table(table);
        let present = state.tables[id].objects.get(&**object.key()).cloned().ok_or(WriteError::NotFound)?;
        if present.revision != expected {
            return Err(WriteError::Conflict(present));
        }
        Ok(state.put(id, object, Some(present)))
    }

    /// Deletes the object whose revision is `expected`; returns its last state at the revision of the deletion.
    pub fn delete(
        &self,
        table: &TableKey,
        namespace: &str,
        name: &str,
        expected: u64,
    ) -> Result<Arc<Object>, WriteError> {
        let key = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
        let mut state = self.lock();
        let id = state.table(table);
        let present = state.tables[id].objects.get(key.as_str()).cloned().ok_or(WriteError::NotFound)?;
        if present.revision != expected {
            return Err(WriteError::Conflict(present));
        }
        Ok(state.remove(id, present))
    }

    /// Watches the selected objects.
    pub fn watch(&self, table: &TableKey, selection: Selection, start: Start) -> Result<Watch> {
        let mut state = self.lock();
        let id = state.table(table);
        state.next_watcher += 1;
        let (watcher, revision, lag) = (state.next_watcher, state.revision, state.retention.lag);
        let table = &mut state.tables[id];
        let mut watch = Watch::open(table, selection, start, revision, watcher, lag)?;
        watch.attach(self, id);
        Ok(watch)
    }

    /// The objects whose owner references have `uid`.
    pub fn dependents(&self, uid: &str) -> Vec<(TableKey, Arc<Object>)> {
        let state = self.lock();
        let entries = state.dependents.get(uid).into_iter().flatten();
        let object = |(id, key): &(usize, Arc<str>)| {
            let table = &state.tables[*id];
            table.objects.get(key).map(|object| (table.key.clone(), object.clone()))
        };
        entries.filter_map(object).collect()
    }

    /// Events for the garbage collector: for existing objects, then for each write. Opening a stream closes the
    /// previous one.
    pub fn gc_events(&self) -> GcEvents {
        let (sender, gc_events) = GcEvents::new();
        let mut state = self.lock();
        state.gc_events = Some(sender);
        state.emit_existing();
        gc_events
    }

    /// The tables that hold objects.
    pub fn tables(&self) -> Vec<TableKey> {
        self.lock().tables.iter().filter(|table| !table.objects.is_empty()).map(|table| table.key.clone()).collect()
    }

    /// Compacts history up to `revision`, in all tables.
    pub fn compact(&self, revision: u64) {
        let mut state = self.lock();
        state.floor = state.floor.max(revision.min(state.revision));
        let floor = state.floor;
        for table in &mut state.tables {
            table.log.compact(floor);
        }
    }

    /// Drops a table that is empty and has no watchers, with its history: its resource is no longer served.
    pub fn drop_table(&self, key: &TableKey) {
        let mut state = self.lock();
        let Some(id) = state.ids.get(key).copied() else { return };
        let table = &state.tables[id];
        if table.objects.is_empty() && table.watchers.len() == 0 {
            state.ids.remove(key);
            state.dropped = state.revision;
            state.tables[id] = Table::new(key.clone(), state.revision);
            state.free.push(id);
        }
    }

    /// Extracts the selectable fields of all objects in a table again: they have changed.
    pub fn reindex(&self, table: &TableKey, fields: &FieldPaths) {
        let mut state = self.lock();
        let id = state.table(table);
        state.tables[id].reindex(fields);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// An empty state at `revision`, compacted up to `floor`.
    fn new(revision: u64, floor: u64, retention: Retention) -> Self {
        Self {
            revision,
            floor,
            retention,
            ids: HashMap::new(),
            tables: Vec::new(),
            free: Vec::new(),
            dropped: 0,
            sweep: 0,
            dependents: HashMap::new(),
            next_watcher: 0,
            gc_events: None,
            journal: None,
        }
    }

    fn table(&mut self, key: &TableKey) -> usize {
        if let Some(id) = self.ids.get(key) {
            return *id;
        }
        let table = Table::new(key.clone(), self.floor.max(self.dropped));
        let id = match self.free.pop() {
            Some(id) => {
                self.tables[id] = table;
                id
            }
            None => {
                self.tables.push(table);
                self.tables.len() - 1
            }
        };
        self.ids.insert(key.clone(), id);
        id
    }

    /// Appends an event. A table without writes would never expire its log, so each write also expires the log of one
    /// other table.
    fn commit(&mut self, id: usize, event: Event) {
        if let Some(journal) = &self.journal {
            journal.record(&self.tables[id].key, &event);
        }
        self.tables[id].commit(event, &self.retention);
        self.sweep = (self.sweep + 1) % self.tables.len();
        self.tables[self.sweep].log.expire(&self.retention);
    }

    fn put(&mut self, id: usize, mut object: Object, previous: Option<Arc<Object>>) -> Arc<Object> {
        self.revision += 1;
        object.revision = self.revision;
        if let Some(previous) = &previous {
            object.share(previous);
        } else if let Some(sibling) = self.sibling(&object) {
            object.share_with_sibling(&sibling);
        }
        let object = Arc::new(object);
        let same_owners = previous.as_ref().is_some_and(|previous| Arc::ptr_eq(&previous.owners, &object.owners));
        if !same_owners {
            if let Some(previous) = &previous {
                self.disown(id, previous);
            }
            for owner in object.owners.iter() {
                self.dependents.entry(owner.clone()).or_default().insert((id, object.key().clone()));
            }
        }
        self.emit_put(id, &object, previous.as_deref(), same_owners);
        let kind = if previous.is_some() { EventKind::Modified } else { EventKind::Added };
        self.commit(id, Event { kind, object: object.clone(), previous });
        object
    }

    /// Another dependent of the same owner, to share strings with: a thousand pods of a ReplicaSet have the same
    /// labels.
    fn sibling(&self, object: &Object) -> Option<Arc<Object>> {
        let (id, key) = self.dependents.get(object.owners.first()?)?.iter().next()?;
        self.tables[*id].objects.get(key).cloned()
    }

    fn remove(&mut self, id: usize, present: Arc<Object>) -> Arc<Object> {
        self.revision += 1;
        self.disown(id, &present);
        self.emit_deleted(&present);
        let object = Arc::new(present.at(self.revision));
        let event = Event { kind: EventKind::Deleted, object: object.clone(), previous: Some(present) };
        self.commit(id, event);
        object
    }

    fn disown(&mut self, id: usize, object: &Object) {
        for owner in object.owners.iter() {
            if let Some(entries) = self.dependents.get_mut(owner) {
                entries.remove(&(id, object.key().clone()));
                if entries.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
