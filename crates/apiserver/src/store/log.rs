//! The event log of a table: watches resume from it, and lists at an earlier revision are reconstructed from it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tokio::time::Instant;

use super::{Event, Object, Retention};

/// The events of a table, oldest first.
#[derive(Debug)]
pub(super) struct Log {
    events: VecDeque<(Instant, Event)>,
    /// Bytes of superseded objects, which only the log references.
    bytes: usize,
    /// Events up to this revision were compacted.
    compacted: u64,
}

impl Log {
    pub(super) fn new(compacted: u64) -> Self {
        Self { events: VecDeque::new(), bytes: 0, compacted }
    }

    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    /// The revision up to which history was compacted.
    pub(super) fn compacted(&self) -> u64 {
        self.compacted
    }

    pub(super) fn push(&mut self, event: Event, retention: &Retention) {
        self.bytes += weight(&event);
        self.events.push_back((Instant::now(), event));
        self.expire(retention);
    }

    /// Removes events beyond the retention limits.
    pub(super) fn expire(&mut self, retention: &Retention) {
        if self.events.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some((at, _)) = self.events.front() {
            let old = now.saturating_duration_since(*at) > retention.age;
            if !(old || self.events.len() > retention.events || self.bytes > retention.bytes) {
                break;
            }
            self.drop_oldest();
        }
    }

    /// Removes events up to `revision`.
    pub(super) fn compact(&mut self, revision: u64) {
        while self.events.front().is_some_and(|(_, event)| event.object.revision <= revision) {
            self.drop_oldest();
        }
        self.compacted = self.compacted.max(revision);
    }

    /// Events after `revision`, oldest first.
    pub(super) fn after(&self, revision: u64) -> impl Iterator<Item = &Event> {
        let start = self.events.partition_point(|(_, event)| event.object.revision <= revision);
        self.events.range(start..).map(|(_, event)| event)
    }

    /// Objects to substitute for the current ones to see the table at `revision`; `None` where the object did not
    /// exist.
    pub(super) fn undo(&self, revision: u64) -> BTreeMap<Arc<str>, Option<Arc<Object>>> {
        let mut before = BTreeMap::new();
        for event in self.after(revision) {
            // The first event after `revision` holds the state at `revision`.
            before.entry(event.object.key().clone()).or_insert_with(|| event.previous.clone());
        }
        before
    }

    fn drop_oldest(&mut self) {
        if let Some((_, event)) = self.events.pop_front() {
            self.bytes -= weight(&event);
            self.compacted = event.object.revision;
        }
    }
}

fn weight(event: &Event) -> usize {
    event.previous.as_ref().map_or(0, |previous| previous.len() + 512)
}
