//! watch: initial state, events, bookmarks, timeouts.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use tokio::time::{Instant, sleep_until};

use super::read::{forbidden, refuse, revision, selection, unsupported_match};
use super::server::Profile;
use super::{Caller, ListOptions, Server, Target, WatchEvent, WatchStream, convert};
use crate::error::{Cause, Result};
use crate::faults::{Command, Faults, Pass, WatchRegistration};
use crate::store::{Event, EventKind, Selection, Start, Store, Watch};

/// Interval of bookmarks on an idle watch.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// Time of the last bookmark before a watch ends.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// Minimum duration of a watch without `timeoutSeconds`; the duration is random up to twice this.
const MIN_WATCH_DURATION: Duration = Duration::from_secs(1800);

/// Watches objects.
pub(super) fn watch(
    server: &Server,
    caller: &Caller,
    target: &Target,
    options: &ListOptions,
    pass: Pass,
) -> Result<WatchStream> {
    check(options)?;
    let profile = server.profile(&target.resource);
    let selection = selection(&profile, target, options)?;
    let (start, end_of_initial) = start(options)?;
    let known = match start {
        Start::After(revision) => Some(revision),
        _ => None,
    };
    let opened =
        too_early(server, options).and_then(|()| server.store().watch(&profile.table, selection.clone(), start));
    let watch = match opened {
        Ok(watch) => watch,
        // Once a watch is accepted, errors are sent as events.
        Err(status) => return Ok(stream::iter([WatchEvent::Error(status)]).boxed()),
    };
    let timeout = options.timeout.unwrap_or_else(|| {
        let share = (server.ids().next() % 1000) as f64 / 1000.0;
        MIN_WATCH_DURATION.mul_f64(1.0 + share)
    });
    let now = Instant::now();
    let mut running = Running {
        ready: VecDeque::new(),
        registration: server.faults().register_watch(caller, target),
        faults: server.faults().clone(),
        store: server.store().clone(),
        profile,
        selection,
        // A revision that the watcher already has needs no bookmark.
        last_bookmark: known.unwrap_or(watch.revision),
        events: Some(watch),
        bookmarks: options.allow_bookmarks,
        bookmark_at: next_bookmark(now + timeout),
        end_at: now + timeout,
        left: pass.end_after,
    };
    running.begin(end_of_initial);
    Ok(stream::unfold(running, |mut running| async move { running.next().await.map(|event| (event, running)) }).boxed())
}

/// Bookmarks are sent periodically, and shortly before the end.
fn next_bookmark(end: Instant) -> Instant {
    let (now, last) = (Instant::now(), end.checked_sub(LAST_BOOKMARK).unwrap_or(end));
    if last > now { last.min(now + BOOKMARK_INTERVAL) } else { end + BOOKMARK_INTERVAL }
}

/// Fails if initial events are requested at a future revision.
fn too_early(server: &Server, options: &ListOptions) -> Result<()> {
    let (least, now) = (revision(&options.resource_version)?.unwrap_or(0), server.store().revision());
    let early = options.send_initial_events == Some(true) && least > now;
    if early { Err(crate::store::too_large(least, now)) } else { Ok(()) }
}

/// Where a watch starts, and whether its initial events end with a bookmark.
fn start(options: &ListOptions) -> Result<(Start, bool)> {
    let revision = revision(&options.resource_version)?.unwrap_or(0);
    Ok(match options.send_initial_events {
        Some(true) => (Start::State, options.allow_bookmarks),
        Some(false) if revision == 0 => (Start::Now, false),
        _ if revision == 0 => (Start::State, options.allow_bookmarks),
        _ => (Start::After(revision), false),
    })
}

fn check(options: &ListOptions) -> Result<()> {
    let mut causes: Vec<Cause> = Vec::new();
    let matching = options.resource_version_match.as_str();
    let field = "resourceVersionMatch";
    if options.send_initial_events.is_some() && matching != "NotOlderThan" {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        causes.push(forbidden(field, why));
    }
    if options.send_initial_events.is_none() && !matching.is_empty() {
        let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
        causes.push(forbidden(field, why));
    }
    if !matches!(matching, "" | "NotOlderThan") {
        causes.push(unsupported_match(matching, r#""NotOlderThan""#));
    }
    if !options.continue_token.is_empty() {
        causes.push(forbidden(field, "resourceVersionMatch is forbidden when continue is provided"));
    }
    refuse(causes)
}

/// A running watch.
struct Running {
    /// Events to send first.
    ready: VecDeque<WatchEvent>,
    /// The event source; `None` after the end.
    events: Option<Watch>,
    registration: WatchRegistration,
    faults: Faults,
    store: Store,
    profile: Arc<Profile>,
    selection: Selection,
    bookmarks: bool,
    bookmark_at: Instant,
    last_bookmark: u64,
    end_at: Instant,
    /// Number of events until an injected fault ends the watch.
    left: Option<usize>,
}

enum Next {
    Event(Option<Event>),
    Command(Option<Command>),
    Bookmark,
    End,
}

impl Running {
    /// Queues the initial events.
    fn begin(&mut self, bookmark: bool) {
        let Some(watch) = &mut self.events else { return };
        let (initial, revision) = (std::mem::take(&mut watch.initial), watch.revision);
        let profile = self.profile.clone();
        self.ready.extend(initial.iter().map(|object| WatchEvent::Added(convert::serve(&profile, object))));
        if bookmark {
            self.ready.push_back(WatchEvent::Bookmark { revision, initial: true });
        }
    }

    async fn next(&mut self) -> Option<WatchEvent> {
        loop {
            self.faults.running().await;
            if self.left == Some(0) {
                return None;
            }
            if let Some(event) = self.ready.pop_front() {
                self.left = self.left.map(|left| left - 1);
                return Some(event);
            }
            let watch = self.events.as_mut()?;
            let next = tokio::select! {
                biased;
                command = self.registration.commands.recv() => Next::Command(command),
                event = watch.next() => Next::Event(event),
                () = sleep_until(self.end_at) => Next::End,
                () = sleep_until(self.bookmark_at), if self.bookmarks => Next::Bookmark,
            };
            match next {
                Next::Event(Some(event)) => self.ready.push_back(self.event(event)),
                Next::Event(None) | Next::Command(None | Some(Command::End)) => return None,
                Next::Command(Some(Command::Replay(after))) => self.replay(after),
                Next::Bookmark => {
                    self.bookmark_at = next_bookmark(self.end_at);
                    self.bookmark();
                }
                Next::End => return None,
            }
        }
    }

    fn event(&self, event: Event) -> WatchEvent {
        let object = convert::serve(&self.profile, &event.object);
        match event.kind {
            EventKind::Added => WatchEvent::Added(object),
            EventKind::Modified => WatchEvent::Modified(object),
            EventKind::Deleted => WatchEvent::Deleted(object),
        }
    }

    fn bookmark(&mut self) {
        let progress = self.events.as_ref().and_then(Watch::progress);
        if let Some(revision) = progress.filter(|revision| *revision > self.last_bookmark) {
            self.last_bookmark = revision;
            self.ready.push_back(WatchEvent::Bookmark { revision, initial: false });
        }
    }

    fn replay(&mut self, after: u64) {
        match self.store.watch(&self.profile.table, self.selection.clone(), Start::After(after)) {
            Ok(watch) => self.events = Some(watch),
            Err(status) => {
                self.events = None;
                self.ready.push_back(WatchEvent::Error(status));
            }
        }
    }
}
