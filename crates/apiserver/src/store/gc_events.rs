//! Events for the garbage collector: objects with new owners, terminating objects, deleted owners. They are emitted by
//! the writes themselves, so that the collector needs no watch per table.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::{Object, State, TableKey};

/// An event for the garbage collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GcEvent {
    /// An object has new owner references, or is terminating.
    Enqueue {
        /// Its table.
        table: TableKey,
        /// Its key in the table.
        key: Arc<str>,
    },
    /// An object with dependents was deleted.
    OwnerDeleted {
        /// Its UID.
        uid: Arc<str>,
    },
    /// Owners lost a dependent.
    DependentRemoved {
        /// Their UIDs.
        owners: Arc<[Arc<str>]>,
    },
}

/// A stream of [`GcEvent`]s. Unbounded, but with at most a few small events per write since the last read.
#[derive(Debug)]
pub struct GcEvents(mpsc::UnboundedReceiver<GcEvent>);

impl GcEvents {
    pub(super) fn new() -> (mpsc::UnboundedSender<GcEvent>, Self) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (sender, Self(receiver))
    }

    /// The next event; `None` when the store was dropped or another stream was opened.
    pub async fn next(&mut self) -> Option<GcEvent> {
        self.0.recv().await
    }

    /// The next event, if one is queued.
    pub fn try_next(&mut self) -> Option<GcEvent> {
        self.0.try_recv().ok()
    }
}

impl State {
    /// Emits events for existing objects that have owners or are terminating.
    pub(super) fn emit_existing(&mut self) {
        let relevant = |object: &&Arc<Object>| object.deleting || !object.owners.is_empty();
        let events = self.tables.iter().flat_map(|table| {
            let objects = table.objects.values().filter(relevant);
            objects.map(|object| GcEvent::Enqueue { table: table.key.clone(), key: object.key().clone() })
        });
        let events: Vec<GcEvent> = events.collect();
        events.into_iter().for_each(|event| self.emit(event));
    }

    pub(super) fn emit_put(&mut self, id: usize, object: &Object, previous: Option<&Object>, same_owners: bool) {
        if self.gc_events.is_none() {
            return;
        }
        let adopted = !same_owners && !object.owners.is_empty();
        if adopted || object.deleting {
            self.emit(GcEvent::Enqueue { table: self.tables[id].key.clone(), key: object.key().clone() });
        }
        if let Some(previous) = previous.filter(|previous| !same_owners && !previous.owners.is_empty()) {
            self.emit(GcEvent::DependentRemoved { owners: previous.owners.clone() });
        }
    }

    pub(super) fn emit_deleted(&mut self, object: &Object) {
        if self.gc_events.is_none() {
            return;
        }
        if self.dependents.contains_key(&object.uid) {
            self.emit(GcEvent::OwnerDeleted { uid: object.uid.clone() });
        }
        if !object.owners.is_empty() {
            self.emit(GcEvent::DependentRemoved { owners: object.owners.clone() });
        }
    }

    fn emit(&mut self, event: GcEvent) {
        if self.gc_events.as_ref().is_some_and(|gc_events| gc_events.send(event).is_err()) {
            self.gc_events = None;
        }
    }
}
