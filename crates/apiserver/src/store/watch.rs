//! Watches: the events that one watcher asked for, in order.

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};

use futures::Stream;
use tokio::sync::mpsc;

use super::hub::{Bucket, Watcher, see};
use super::table::Table;
use super::{Object, Query, Selection, State, Store, list};
use crate::error::{Result, Status};

/// What happened to an object, as the watcher sees it through its selectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It came into view.
    Added,
    /// It changed.
    Modified,
    /// It went out of view.
    Deleted,
}

/// One event.
#[derive(Clone, Debug)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The object afterwards; for a deletion its last state, at the revision of the deletion.
    pub object: Arc<Object>,
    /// The object before.
    pub previous: Option<Arc<Object>>,
}

/// Where a watch starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With what happens from now on.
    Now,
    /// With all objects as they are now, as [`Watch::initial`].
    State,
    /// With what happened after this revision.
    After(u64),
}

/// A stream of events. It ends when the watcher is too slow.
#[derive(Debug)]
pub struct Watch {
    /// The objects as they were when the watch started, if that was asked for.
    pub initial: Vec<Arc<Object>>,
    /// Revision at which the watch started.
    pub revision: u64,
    /// What happened between the revision that was asked for and the start.
    backlog: VecDeque<Event>,
    queue: mpsc::Receiver<Event>,
    id: u64,
    bucket: Bucket,
    table: usize,
    state: Weak<Mutex<State>>,
}

impl Watch {
    pub(super) fn open(
        table: &mut Table,
        selection: Selection,
        start: Start,
        revision: u64,
        id: u64,
        lag: usize,
    ) -> Result<Self> {
        let (mut initial, mut backlog) = (Vec::new(), VecDeque::new());
        match start {
            Start::Now => {}
            Start::State => {
                let query = Query { selection: selection.clone(), ..Query::default() };
                initial = list::list(table, revision, &query)?.items;
            }
            Start::After(after) => {
                let compacted = table.log.compacted();
                if after < compacted {
                    return Err(Status::expired(format!("too old resource version: {after} ({compacted})")));
                }
                let events = table.log.after(after);
                backlog = events.filter_map(|event| see(&selection, event, &OnceCell::new())).collect();
            }
        }
        let bucket = Bucket::of(&selection);
        let (sender, queue) = mpsc::channel(lag);
        table.hub.add(bucket.clone(), Watcher { id, selection, queue: sender });
        Ok(Self { initial, revision, backlog, queue, id, bucket, table: usize::MAX, state: Weak::new() })
    }

    pub(super) fn attach(&mut self, store: &Store, table: usize) {
        (self.state, self.table) = (Arc::downgrade(&store.state), table);
    }

    /// The revision up to which the watcher has seen everything, if no event waits to be read.
    pub fn progress(&self) -> Option<u64> {
        let state = self.state.upgrade()?;
        let state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = self.backlog.is_empty() && self.queue.is_empty() && !self.queue.is_closed();
        idle.then_some(state.revision)
    }
}

impl Stream for Watch {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        match self.backlog.pop_front() {
            Some(event) => Poll::Ready(Some(event)),
            None => self.queue.poll_recv(cx),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(state) = self.state.upgrade() {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(table) = state.tables.get_mut(self.table) {
                table.hub.remove(&self.bucket, self.id);
            }
        }
    }
}
