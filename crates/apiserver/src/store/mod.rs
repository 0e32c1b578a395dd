//! Objects in memory: revisions, an event log, indexes, watches; and on disk, for a store that was [opened](Store::open).
//!
//! Everything here is synchronous and takes one short lock. A write gets the next number of a revision that is shared by
//! all resources, enters the log of its table and is handed to the watchers that may want it, all in one step: so a list
//! is one snapshot, and a watch that starts at the revision of a list misses nothing.

mod disk;
mod feed;
mod field_selector;
mod fields;
mod hub;
mod list;
mod log;
mod object;
mod record;
mod selector;
mod table;
mod text;
mod watch;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use disk::{Disk, Journal};
use table::Table;

pub use disk::DiskError;
pub use feed::{Feed, Note};
pub use fields::{FieldPaths, Fields};
pub(crate) use list::too_large;
pub use list::{At, Listing, Query};
pub use object::{Deletion, Object, TypeMeta};
pub use selector::{FieldSelector, LabelSelector, Selection};
pub use watch::{Event, EventKind, Start, Watch};

use crate::error::Result;
use crate::registry::Resource;

/// The table of a resource: all versions of a group and plural share it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableKey {
    /// API group, empty for the core group.
    pub group: Arc<str>,
    /// Plural.
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

/// How much history a store keeps. A watch or a list that asks for more is answered with 410.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// Most events per table.
    pub events: usize,
    /// Most bytes of superseded objects per table.
    pub bytes: usize,
    /// Events older than this go.
    pub age: Duration,
    /// Most events that a watcher may lag behind before it is ended.
    pub lag: usize,
}

impl Default for Retention {
    fn default() -> Self {
        Self { events: 20_000, bytes: 48 << 20, age: Duration::from_secs(600), lag: 16_384 }
    }
}

/// Why a write did not happen.
#[derive(Clone, Debug)]
pub enum Clash {
    /// There is no such object.
    Absent,
    /// The object is there already, or is not what the writer saw: this is what is there.
    Present(Arc<Object>),
}

/// Counts of what a store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Objects.
    pub objects: usize,
    /// Bytes of their texts.
    pub bytes: usize,
    /// Events in the logs.
    pub events: usize,
    /// Watchers.
    pub watchers: usize,
    /// Tables.
    pub tables: usize,
    /// Owners with dependents.
    pub owners: usize,
}

/// All objects. Clones share one state.
#[derive(Clone, Debug)]
pub struct Store {
    state: Arc<Mutex<State>>,
    /// The file behind it, if there is one.
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
    /// Tables of resources that are served no more: their places are used again.
    free: Vec<usize>,
    /// The revision at which the last table was dropped. A new table may have had a past before that.
    dropped: u64,
    /// The table whose log is looked at next for what is too old.
    sweep: usize,
    /// Owner's UID to the objects that name it: table and key.
    dependents: HashMap<Arc<str>, HashSet<(usize, Arc<str>)>>,
    next_watcher: u64,
    /// Who hears about owners and deletions.
    feed: Option<tokio::sync::mpsc::UnboundedSender<Note>>,
    /// Where changes go that are to be on disk.
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

    /// An object as it is now.
    pub fn get(&self, table: &TableKey, namespace: &str, name: &str) -> Option<Arc<Object>> {
        let state = self.lock();
        let objects = &state.tables[*state.ids.get(table)?].objects;
        if namespace.is_empty() {
            objects.get(name).cloned()
        } else {
            objects.get(format!("{namespace}/{name}").as_str()).cloned()
        }
    }

    /// Many objects at one revision.
    pub fn list(&self, table: &TableKey, query: &Query) -> Result<Listing> {
        let mut state = self.lock();
        let (id, revision) = (state.table(table), state.revision);
        list::list(&state.tables[id], revision, query)
    }

    /// Everything in a table that is selected, now.
    pub fn select(&self, table: &TableKey, selection: &Selection) -> Vec<Arc<Object>> {
        let query = Query { selection: selection.clone(), ..Query::default() };
        self.list(table, &query).map(|listing| listing.items).unwrap_or_default()
    }

    /// Adds an object.
    pub fn create(&self, table: &TableKey, object: Object) -> Result<Arc<Object>, Clash> {
        let mut state = self.lock();
        let id = state.table(table);
        match state.tables[id].objects.get(&**object.key()) {
            Some(present) => Err(Clash::Present(present.clone())),
            None => Ok(state.put(id, object, None)),
        }
    }

    /// Replaces the object whose revision is `expected`.
    pub fn update(&self, table: &TableKey, object: Object, expected: u64) -> Result<Arc<Object>, Clash> {
        let mut state = self.lock();
        let id = state.table(table);
        let present = state.tables[id].objects.get(&**object.key()).cloned().ok_or(Clash::Absent)?;
        if present.revision != expected {
            return Err(Clash::Present(present));
        }
        Ok(state.put(id, object, Some(present)))
    }

    /// Removes the object whose revision is `expected`; the answer is its last state at the revision of the removal.
    pub fn delete(&self, table: &TableKey, namespace: &str, name: &str, expected: u64) -> Result<Arc<Object>, Clash> {
        let key = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
        let mut state = self.lock();
        let id = state.table(table);
        let present = state.tables[id].objects.get(key.as_str()).cloned().ok_or(Clash::Absent)?;
        if present.revision != expected {
            return Err(Clash::Present(present));
        }
        Ok(state.remove(id, present))
    }

    /// Follows what happens to the selected objects.
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

    /// The objects that name `uid` as an owner.
    pub fn dependents(&self, uid: &str) -> Vec<(TableKey, Arc<Object>)> {
        let state = self.lock();
        let entries = state.dependents.get(uid).into_iter().flatten();
        let object = |(id, key): &(usize, Arc<str>)| {
            let table = &state.tables[*id];
            table.objects.get(key).map(|object| (table.key.clone(), object.clone()))
        };
        entries.filter_map(object).collect()
    }

    /// What a garbage collector must know: about what is there, and from now on. Only the last feed that was asked for is
    /// fed.
    pub fn feed(&self) -> Feed {
        let (sender, feed) = Feed::new();
        let mut state = self.lock();
        state.feed = Some(sender);
        state.note_present();
        feed
    }

    /// The tables that hold objects.
    pub fn tables(&self) -> Vec<TableKey> {
        self.lock().tables.iter().filter(|table| !table.objects.is_empty()).map(|table| table.key.clone()).collect()
    }

    /// Forgets history up to `revision`, in all tables.
    pub fn compact(&self, revision: u64) {
        let mut state = self.lock();
        state.floor = state.floor.max(revision.min(state.revision));
        let floor = state.floor;
        for table in &mut state.tables {
            table.log.compact(floor);
        }
    }

    /// Forgets a table that is empty and that nobody watches, with its past: the resource is served no more.
    pub fn drop_table(&self, key: &TableKey) {
        let mut state = self.lock();
        let Some(id) = state.ids.get(key).copied() else { return };
        let table = &state.tables[id];
        if table.objects.is_empty() && table.hub.len() == 0 {
            state.ids.remove(key);
            state.dropped = state.revision;
            state.tables[id] = Table::new(key.clone(), state.revision);
            state.free.push(id);
        }
    }

    /// Reads the fields of all objects in a table anew: what selectors may ask for has changed.
    pub fn reindex(&self, table: &TableKey, fields: &FieldPaths) {
        let mut state = self.lock();
        let id = state.table(table);
        state.tables[id].reindex(fields);
    }

    /// How much the store holds.
    pub fn counts(&self) -> Counts {
        let state = self.lock();
        let whole = Counts { tables: state.ids.len(), owners: state.dependents.len(), ..Counts::default() };
        state.tables.iter().fold(whole, |sum, table| Counts {
            objects: sum.objects + table.objects.len(),
            bytes: sum.bytes + table.objects.values().map(|object| object.len()).sum::<usize>(),
            events: sum.events + table.log.len(),
            watchers: sum.watchers + table.hub.len(),
            ..sum
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// No objects yet, at that revision, with nothing known up to `floor`.
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
            feed: None,
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

    /// Takes over an event. A table that nobody writes to would keep its past for ever, so each write looks at the log
    /// of one other table as well.
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
        self.note_put(id, &object, previous.as_deref(), same_owners);
        let kind = if previous.is_some() { EventKind::Modified } else { EventKind::Added };
        self.commit(id, Event { kind, object: object.clone(), previous });
        object
    }

    /// Another object with the same owner: a thousand pods of a set have the same labels.
    fn sibling(&self, object: &Object) -> Option<Arc<Object>> {
        let (id, key) = self.dependents.get(object.owners.first()?)?.iter().next()?;
        self.tables[*id].objects.get(key).cloned()
    }

    fn remove(&mut self, id: usize, present: Arc<Object>) -> Arc<Object> {
        self.revision += 1;
        self.disown(id, &present);
        self.note_gone(&present);
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
