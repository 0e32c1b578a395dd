//! Watches: the ordered event stream of one watcher.

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};

use futures::Stream;
use tokio::sync::mpsc;

use super::table::Table;
use super::watchers::{Bucket, Watcher, filter_event};
use super::{Object, Query, Selection, State, Store, list};
use crate::error::{Result, Status};

/// Type of a watch event, relative to the watcher's selectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The object was created, or started to match.
    Added,
    /// The object changed and still matches.
    Modified,
    /// The object was deleted, or no longer matches.
    Deleted,
}

/// One event.
#[derive(Clone, Debug)]
pub struct Event {
    /// Event type.
    pub kind: EventKind,
    /// The new state; for a deletion the last state, at the revision of the deletion.
    pub object: Arc<Object>,
    /// The previous state.
    pub previous: Option<Arc<Object>>,
}

/// Where a watch starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With events from now on.
    Now,
    /// With all current objects, as [`Watch::initial`].
    State,
    /// With events after this revision.
    After(u64),
}

/// A stream of events. It ends when the watcher lags too far behind.
#[derive(Debug)]
pub struct Watch {
    /// The objects when the watch started, if requested.
    pub initial: Vec<Arc<Object>>,
    /// Revision at which the watch started.
    pub revision: u64,
    /// Events between the requested revision and the start.
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
                backlog = events.filter_map(|event| filter_event(&selection, event, &OnceCell::new())).collect();
            }
        }
        let bucket = Bucket::of(&selection);
        let (sender, queue) = mpsc::channel(lag);
        table.watchers.add(bucket.clone(), Watcher { id, selection, queue: sender });
        Ok(Self { initial, revision, backlog, queue, id, bucket, table: usize::MAX, state: Weak::new() })
    }

    pub(super) fn attach(&mut self, store: &Store, table: usize) {
        (self.state, self.table) = (Arc::downgrade(&store.state), table);
    }

    /// The revision up to which all events were delivered, if none is queued.
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
                table.watchers.remove(&self.bucket, self.id);
            }
        }
    }
}
