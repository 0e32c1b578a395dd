//! Watches: the events that one watcher asked for, in order.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::Stream;

use super::Object;

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

/// A stream of events. It ends when the watcher is too slow, or is cut off.
#[derive(Debug)]
pub struct Watch {
    /// The objects as they were when the watch started, if that was asked for.
    pub initial: Vec<Arc<Object>>,
    /// Revision at which the watch started.
    pub revision: u64,
}

impl Watch {
    /// The revision that the watcher has seen everything of, if no event waits to be read.
    pub fn progress(&self) -> Option<u64> {
        Some(self.revision)
    }
}

impl Stream for Watch {
    type Item = Event;

    fn poll_next(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Event>> {
        Poll::Ready(None)
    }
}
