//! Objects in memory: revisions, an event log, indexes, watches.
//!
//! Everything here is synchronous and takes one short lock. A write gets the next number of a revision that is shared by
//! all resources, enters the log of its table and is handed to the watchers that may want it, all in one step: so a list
//! is one snapshot, and a watch that starts at the revision of a list misses nothing.

mod fields;
mod list;
mod object;
mod selector;
mod watch;

use std::sync::Arc;
use std::time::Duration;

pub use fields::{FieldPaths, Fields};
pub use list::{At, Listing, Query};
pub use object::{Object, TypeMeta};
pub use selector::{FieldSelector, LabelSelector, Selection};
pub use watch::{Event, EventKind, Start, Watch};

use crate::error::{Result, Status};
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
        Self { group: resource.group.clone(), plural: resource.plural.clone() }
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
        Self { events: 50_000, bytes: 48 << 20, age: Duration::from_secs(600), lag: 16_384 }
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

/// All objects. Clones share one state.
#[derive(Clone, Debug)]
pub struct Store {}

impl Store {
    /// An empty store at revision 1.
    pub fn new(retention: Retention) -> Self {
        let _ = retention;
        Self {}
    }

    /// The revision of the last write.
    pub fn revision(&self) -> u64 {
        1
    }

    /// An object as it is now.
    pub fn get(&self, table: &TableKey, namespace: &str, name: &str) -> Option<Arc<Object>> {
        let _ = (table, namespace, name);
        None
    }

    /// Many objects at one revision.
    pub fn list(&self, table: &TableKey, query: &Query) -> Result<Listing> {
        let _ = (table, query);
        Err(Status::internal("lists are not served yet"))
    }

    /// Adds an object.
    pub fn create(&self, table: &TableKey, object: Object) -> Result<Arc<Object>, Clash> {
        let _ = (table, object);
        Err(Clash::Absent)
    }

    /// Replaces the object whose revision is `expected`.
    pub fn update(&self, table: &TableKey, object: Object, expected: u64) -> Result<Arc<Object>, Clash> {
        let _ = (table, object, expected);
        Err(Clash::Absent)
    }

    /// Removes the object whose revision is `expected`; the answer is its last state at the revision of the removal.
    pub fn delete(&self, table: &TableKey, namespace: &str, name: &str, expected: u64) -> Result<Arc<Object>, Clash> {
        let _ = (table, namespace, name, expected);
        Err(Clash::Absent)
    }

    /// Follows what happens to the selected objects.
    pub fn watch(&self, table: &TableKey, selection: Selection, start: Start) -> Result<Watch> {
        let _ = (table, selection, start);
        Err(Status::internal("watches are not served yet"))
    }

    /// The objects that name `uid` as an owner.
    pub fn dependents(&self, uid: &str) -> Vec<(TableKey, Arc<Object>)> {
        let _ = uid;
        Vec::new()
    }
}
