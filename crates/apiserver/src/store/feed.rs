//! What a garbage collector must know: which objects got owners, which are being deleted, which have gone. It comes from
//! the writes themselves, so that no table need be watched for it.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::{Object, State, TableKey};

/// News for the garbage collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// An object has new owners, or is being deleted.
    Look {
        /// Its table.
        table: TableKey,
        /// Its key in the table.
        key: Arc<str>,
    },
    /// An object has gone, and others name it as their owner.
    Gone {
        /// Its UID.
        uid: Arc<str>,
    },
    /// Owners have lost a dependent.
    Left {
        /// Their UIDs.
        owners: Arc<[Arc<str>]>,
    },
}

/// A stream of [`Note`]s. Notes are small, and there are no more of them than writes since they were last read.
#[derive(Debug)]
pub struct Feed(mpsc::UnboundedReceiver<Note>);

impl Feed {
    pub(super) fn new() -> (mpsc::UnboundedSender<Note>, Self) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (sender, Self(receiver))
    }

    /// The next note; nothing when the store has gone, or feeds somebody else.
    pub async fn next(&mut self) -> Option<Note> {
        self.0.recv().await
    }

    /// The next note if there is one already.
    pub fn try_next(&mut self) -> Option<Note> {
        self.0.try_recv().ok()
    }
}

impl State {
    /// Tells what there is to know about objects that are there already.
    pub(super) fn note_present(&mut self) {
        let concerned = |object: &&Arc<Object>| object.deleting || !object.owners.is_empty();
        let looks = self.tables.iter().flat_map(|table| {
            let objects = table.objects.values().filter(concerned);
            objects.map(|object| Note::Look { table: table.key.clone(), key: object.key().clone() })
        });
        let looks: Vec<Note> = looks.collect();
        looks.into_iter().for_each(|note| self.note(note));
    }

    pub(super) fn note_put(&mut self, id: usize, object: &Object, previous: Option<&Object>, same_owners: bool) {
        if self.feed.is_none() {
            return;
        }
        let adopted = !same_owners && !object.owners.is_empty();
        if adopted || object.deleting {
            self.note(Note::Look { table: self.tables[id].key.clone(), key: object.key().clone() });
        }
        if let Some(previous) = previous.filter(|previous| !same_owners && !previous.owners.is_empty()) {
            self.note(Note::Left { owners: previous.owners.clone() });
        }
    }

    pub(super) fn note_gone(&mut self, object: &Object) {
        if self.feed.is_none() {
            return;
        }
        if self.dependents.contains_key(&object.uid) {
            self.note(Note::Gone { uid: object.uid.clone() });
        }
        if !object.owners.is_empty() {
            self.note(Note::Left { owners: object.owners.clone() });
        }
    }

    fn note(&mut self, note: Note) {
        if self.feed.as_ref().is_some_and(|feed| feed.send(note).is_err()) {
            self.feed = None;
        }
    }
}
