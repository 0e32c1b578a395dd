//! The event backlog: events are deduplicated when they are recorded, and held until the server has accepted them.
//!
//! The backlog is bounded by the number of objects: beyond [`MAX_PENDING`] an object drops its older pending events,
//! never the last one. Changes of many objects at once lose no event.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use capstan_plan::{Note, Ref};
use jiff::Timestamp;
use tokio::time::Instant;

/// A note that still applies is written again after this time, well before the event's TTL.
pub(super) const REFRESH_INTERVAL: Duration = Duration::from_secs(20 * 60);

/// Burst of events per object, and the interval after which one more is allowed.
const BURST: u32 = 25;
const REFILL_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum number of objects with a history.
const MAX_HISTORIES: usize = 8192;

/// Maximum number of pending events before an object drops its own older ones.
const MAX_PENDING: usize = 8192;

/// The component that reports, and the object that the event is about.
pub(super) struct Subject {
    pub(super) component: Arc<str>,
    pub(super) reference: Ref,
    pub(super) uid: String,
}

/// An event taken from the backlog, to be written.
pub(super) struct Due {
    key: Arc<str>,
    pub(super) subject: Arc<Subject>,
    pub(super) event: PendingEvent,
}

pub(super) struct PendingEvent {
    fingerprint: u64,
    pub(super) note: Note,
    pub(super) at: Timestamp,
    /// The same on a monotonic clock.
    pub(super) since: Instant,
}

/// Histories and pending events, by [`key`].
#[derive(Default)]
pub(super) struct Backlog {
    histories: HashMap<Arc<str>, History>,
    waiting: HashMap<Arc<str>, Box<PendingEvents>>,
    /// The keys in `waiting`, each once, for round-robin.
    round_robin: VecDeque<Arc<str>>,
    notes: usize,
}

/// The recorded events of an object.
struct History {
    recorded: Vec<RecordedEvent>,
    /// Fingerprints of the last recording.
    last: Vec<u64>,
    left: u32,
    refilled: Instant,
    touched: Instant,
}

/// An event that is written or pending.
struct RecordedEvent {
    fingerprint: u64,
    /// How often it was written.
    count: i32,
    at: Instant,
}

/// Pending events of an object, oldest first. Never empty.
struct PendingEvents {
    subject: Arc<Subject>,
    events: VecDeque<PendingEvent>,
}

/// The key of a history.
pub(super) fn key(component: &str, uid: &str) -> String {
    format!("{component}/{uid}")
}

impl Backlog {
    /// Number of pending events.
    pub(super) fn len(&self) -> usize {
        self.notes
    }

    /// Records the current notes of an object: new ones become pending. Returns how many events were dropped.
    pub(super) fn record(
        &mut self,
        subject: impl FnOnce() -> Subject,
        key: &str,
        notes: &[Note],
        at: Timestamp,
    ) -> u64 {
        if notes.is_empty() {
            // The next note is new, even if it was recorded before.
            if let Some(history) = self.histories.get_mut(key) {
                history.last.clear();
            }
            return 0;
        }
        let (new_events, dropped) = self.new_events(key, notes, at);
        if new_events.is_empty() { dropped } else { dropped + self.wait(key, subject, new_events) }
    }

    /// The notes that are new, and how many of them exceed the rate limit of the object.
    fn new_events(&mut self, key: &str, notes: &[Note], at: Timestamp) -> (VecDeque<PendingEvent>, u64) {
        let since = Instant::now();
        let history = self.history(key, since);
        let (mut new_events, mut dropped) = (VecDeque::new(), 0);
        let mut last = Vec::with_capacity(notes.len());
        for note in notes {
            let fingerprint = fingerprint(note);
            if last.contains(&fingerprint) {
                continue;
            }
            last.push(fingerprint);
            let recorded = history.recorded.iter_mut().find(|recorded| recorded.fingerprint == fingerprint);
            let recently =
                recorded.as_ref().is_some_and(|recorded| since.duration_since(recorded.at) < REFRESH_INTERVAL);
            if recently && history.last.contains(&fingerprint) {
                continue;
            }
            if history.left == 0 {
                dropped += 1;
                continue;
            }
            history.left -= 1;
            match recorded {
                Some(recorded) => recorded.at = since,
                None => history.recorded.push(RecordedEvent { fingerprint, count: 0, at: since }),
            }
            new_events.reserve_exact(1);
            new_events.push_back(PendingEvent {
                fingerprint,
                note: Note { message: truncate(&note.message), ..note.clone() },
                at,
                since,
            });
        }
        history.last = last;
        (new_events, dropped)
    }

    fn history(&mut self, key: &str, now: Instant) -> &mut History {
        self.evict_histories();
        let history = self.histories.entry(key.into()).or_insert_with(|| History {
            recorded: Vec::with_capacity(1),
            last: Vec::new(),
            left: BURST,
            refilled: now,
            touched: now,
        });
        history.touched = now;
        let refills = now.duration_since(history.refilled).as_secs() / REFILL_INTERVAL.as_secs();
        if refills > 0 {
            history.left = BURST.min(history.left.saturating_add(refills.try_into().unwrap_or(BURST)));
            history.refilled = now;
        }
        history.recorded.retain(|recorded| now.duration_since(recorded.at) < 3 * REFRESH_INTERVAL);
        history
    }

    /// Evicts the least recently used half of the histories.
    fn evict_histories(&mut self) {
        if self.histories.len() < MAX_HISTORIES {
            return;
        }
        let mut touched: Vec<_> = self.histories.values().map(|history| history.touched).collect();
        touched.sort_unstable();
        let middle = touched[touched.len() / 2];
        self.histories.retain(|_, history| history.touched > middle);
    }

    /// Appends pending events. Returns how many older ones were dropped.
    fn wait(&mut self, key: &str, subject: impl FnOnce() -> Subject, new_events: VecDeque<PendingEvent>) -> u64 {
        let room = MAX_PENDING.saturating_sub(self.notes);
        self.notes += new_events.len();
        let Some(waiting) = self.waiting.get_mut(key) else {
            let key = self.histories.get_key_value(key).map_or_else(|| key.into(), |(key, _)| key.clone());
            let subject = Arc::new(subject());
            self.round_robin.push_back(key.clone());
            self.waiting.insert(key, Box::new(PendingEvents { subject, events: new_events }));
            return 0;
        };
        let before = waiting.events.len();
        let excess = new_events.len().saturating_sub(room).min(before);
        waiting.events.extend(new_events);
        for _ in 0..excess {
            // Drop events that a later one of the same reason supersedes first, then the oldest.
            let repeated = |index: &usize| {
                let reason = waiting.events[*index].note.reason;
                waiting.events.range(index + 1..).any(|later| later.note.reason == reason)
            };
            let index = (0..before).find(repeated).unwrap_or(0);
            let removed = waiting.events.remove(index);
            forget(self.histories.get_mut(key), removed.map(|event| event.fingerprint));
        }
        self.notes -= excess;
        excess as u64
    }

    /// Takes the next event to write.
    pub(super) fn next(&mut self) -> Option<Due> {
        let key = self.round_robin.pop_front()?;
        let waiting = self.waiting.get_mut(&key)?;
        let due = Due { key: key.clone(), subject: waiting.subject.clone(), event: waiting.events.pop_front()? };
        self.notes -= 1;
        if waiting.events.is_empty() {
            self.waiting.remove(&key);
        } else {
            self.round_robin.push_back(key);
        }
        if self.round_robin.is_empty() {
            // Release the capacity of a burst.
            (self.waiting, self.round_robin) = Default::default();
        }
        Some(due)
    }

    /// Puts an event back that could not be written yet: it is the next one of its object.
    pub(super) fn requeue(&mut self, Due { key, subject, event }: Due) {
        self.notes += 1;
        match self.waiting.get_mut(&key) {
            Some(waiting) => waiting.events.push_front(event),
            None => {
                self.round_robin.push_back(key.clone());
                self.waiting.insert(key, Box::new(PendingEvents { subject, events: [event].into() }));
            }
        }
    }

    /// How often the event was written before.
    pub(super) fn count(&mut self, due: &Due) -> i32 {
        self.recorded(due).map_or(0, |recorded| recorded.count)
    }

    /// Records how often the event was written.
    pub(super) fn written(&mut self, due: &Due, count: i32) {
        if let Some(recorded) = self.recorded(due) {
            recorded.count = count;
        }
    }

    /// Forgets an event that will not be written, so that it is new when it is recorded again.
    pub(super) fn discard(&mut self, due: &Due) {
        forget(self.histories.get_mut(&due.key), Some(due.event.fingerprint));
    }

    fn recorded(&mut self, due: &Due) -> Option<&mut RecordedEvent> {
        self.histories
            .get_mut(&due.key)?
            .recorded
            .iter_mut()
            .find(|recorded| recorded.fingerprint == due.event.fingerprint)
    }
}

fn forget(history: Option<&mut History>, fingerprint: Option<u64>) {
    if let Some(history) = history {
        history.recorded.retain(|recorded| Some(recorded.fingerprint) != fingerprint);
    }
}

/// Fingerprint of a note.
fn fingerprint(note: &Note) -> u64 {
    let mut hasher = DefaultHasher::new();
    (note.reason, &note.message).hash(&mut hasher);
    hasher.finish()
}

/// Servers reject a message of more than 1024 bytes.
fn truncate(message: &str) -> String {
    const LIMIT: usize = 1024;
    if message.len() <= LIMIT {
        return message.into();
    }
    let end = (0..=LIMIT - '…'.len_utf8()).rev().find(|index| message.is_char_boundary(*index)).unwrap_or(0);
    format!("{}…", &message[..end])
}

#[cfg(test)]
mod tests {
    use capstan_plan::Severity;
    use k8s_openapi::api::core::v1::Node;

    use super::*;

    fn note(reason: &'static str, message: &str) -> Note {
        Note { severity: Severity::Normal, reason, message: message.into() }
    }

    fn say(backlog: &mut Backlog, object: usize, notes: &[Note]) -> u64 {
        let (component, uid): (Arc<str>, _) = ("test".into(), format!("uid-{object}"));
        let (key, reference) = (key(&component, &uid), Ref::of::<Node>("", &uid));
        backlog.record(|| Subject { component, reference, uid }, &key, notes, Timestamp::UNIX_EPOCH)
    }

    fn all(backlog: &mut Backlog) -> Vec<(String, String)> {
        let due = std::iter::from_fn(|| backlog.next());
        due.map(|due| (due.subject.reference.name.clone(), due.event.note.message)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn however_many_wait_the_last_word_about_each_object_is_kept() {
        let (mut backlog, mut dropped) = (Backlog::default(), 0);
        for round in 0..3 {
            for object in 0..MAX_PENDING {
                dropped += say(&mut backlog, object, &[note("State", &format!("round {round}"))]);
            }
        }
        dropped += say(&mut backlog, MAX_PENDING, &[note("State", "a new one")]);
        assert_eq!((backlog.len(), dropped), (MAX_PENDING + 1, 2 * MAX_PENDING as u64));
        let events = all(&mut backlog);
        assert_eq!(events.iter().filter(|(_, message)| message == "round 2").count(), MAX_PENDING);
        assert_eq!(events.last(), Some(&(format!("uid-{MAX_PENDING}"), "a new one".into())));
        assert_eq!(backlog.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn without_room_an_object_keeps_one_of_each_reason_before_others_of_the_same() {
        let mut backlog = Backlog::default();
        for object in 0..MAX_PENDING - 2 {
            say(&mut backlog, object, &[note("State", "ready")]);
        }
        let dropped = say(&mut backlog, MAX_PENDING, &[note("Cause", "no GPU"), note("State", "failed")]);
        assert_eq!((dropped, say(&mut backlog, MAX_PENDING, &[note("State", "ready")])), (0, 1));
        let events = all(&mut backlog).into_iter().filter(|(name, _)| *name == format!("uid-{MAX_PENDING}"));
        assert_eq!(events.map(|(_, message)| message).collect::<Vec<_>>(), ["no GPU", "ready"]);
    }

    #[tokio::test(start_paused = true)]
    async fn objects_take_turns_and_what_failed_comes_after_the_others_in_its_order() {
        let mut backlog = Backlog::default();
        say(&mut backlog, 1, &[note("A", "first"), note("B", "second")]);
        say(&mut backlog, 2, &[note("A", "other")]);
        let failed = backlog.next().unwrap();
        assert_eq!(failed.event.note.message, "first");
        backlog.requeue(failed);
        let messages: Vec<_> = all(&mut backlog).into_iter().map(|(_, message)| message).collect();
        assert_eq!(messages, ["other", "first", "second"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_given_up_is_news_when_it_is_said_again() {
        let mut backlog = Backlog::default();
        say(&mut backlog, 1, &[note("A", "first")]);
        let due = backlog.next().unwrap();
        say(&mut backlog, 1, &[note("A", "first")]);
        assert_eq!(backlog.len(), 0, "it is being written");
        backlog.discard(&due);
        say(&mut backlog, 1, &[note("A", "first")]);
        assert_eq!(backlog.len(), 1);
    }

    #[test]
    fn a_long_message_is_cut_between_letters() {
        let text = truncate(&"ä".repeat(1000));
        assert!(text.len() <= 1024 && text.ends_with('…'));
        assert_eq!(super::truncate("short"), "short");
    }
}
