//! What is to be written: decided when it is said, and kept until the server has taken it.
//!
//! What waits is bounded by the objects that it is about: beyond [`ROOM`] an object loses what it said before, never
//! what it said last. So that many objects change at once costs none of them its event.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use capstan_plan::{Note, Ref};
use jiff::Timestamp;
use tokio::time::Instant;

/// A note that goes on to hold is written again after this time, well before the server forgets the event.
pub(super) const REMIND: Duration = Duration::from_secs(20 * 60);

/// How many events one object may have in a burst, and how soon it may have one more.
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_secs(60);

/// Objects that are remembered.
const REMEMBERED: usize = 8192;

/// Notes that may wait before an object has to make room for what it says by itself.
const ROOM: usize = 8192;

/// Who says something about which object.
pub(super) struct Subject {
    pub(super) component: Arc<str>,
    pub(super) reference: Ref,
    pub(super) uid: String,
}

/// One thing to write.
pub(super) struct Due {
    key: Arc<str>,
    pub(super) subject: Arc<Subject>,
    pub(super) said: PendingEvent,
}

pub(super) struct PendingEvent {
    what: u64,
    pub(super) note: Note,
    pub(super) at: Timestamp,
    /// The same on a clock that only goes forward.
    pub(super) since: Instant,
}

/// All that is remembered and that waits, by [`key`].
#[derive(Default)]
pub(super) struct Backlog {
    memory: HashMap<Arc<str>, Memory>,
    waiting: HashMap<Arc<str>, Box<Waiting>>,
    /// The keys in `waiting`, each once: objects take turns.
    turns: VecDeque<Arc<str>>,
    notes: usize,
}

/// What was said about an object.
struct Memory {
    told: Vec<RecordedEvent>,
    /// What was said the last time.
    last: Vec<u64>,
    left: u32,
    refilled: Instant,
    touched: Instant,
}

/// An event that is written, or waits for it.
struct RecordedEvent {
    what: u64,
    /// As often as it was written.
    count: i32,
    at: Instant,
}

/// What is to be written about an object, the oldest first. Never empty.
struct Waiting {
    subject: Arc<Subject>,
    said: VecDeque<PendingEvent>,
}

/// What memory is kept under.
pub(super) fn key(component: &str, uid: &str) -> String {
    format!("{component}/{uid}")
}

impl Backlog {
    /// How many notes wait.
    pub(super) fn len(&self) -> usize {
        self.notes
    }

    /// Hears all there is to say about an object now: what is news waits from now on. Returns how many notes got lost.
    pub(super) fn hear(&mut self, subject: impl FnOnce() -> Subject, key: &str, notes: &[Note], at: Timestamp) -> u64 {
        if notes.is_empty() {
            // What is said next is news, even if it was said before.
            if let Some(memory) = self.memory.get_mut(key) {
                memory.last.clear();
            }
            return 0;
        }
        let (news, lost) = self.news(key, notes, at);
        if news.is_empty() { lost } else { lost + self.wait(key, subject, news) }
    }

    /// Which of them are news, and how many would have been if the object had not said too much already.
    fn news(&mut self, key: &str, notes: &[Note], at: Timestamp) -> (VecDeque<PendingEvent>, u64) {
        let since = Instant::now();
        let memory = self.remember(key, since);
        let (mut news, mut lost) = (VecDeque::new(), 0);
        let mut last = Vec::with_capacity(notes.len());
        for note in notes {
            let what = what(note);
            if last.contains(&what) {
                continue;
            }
            last.push(what);
            let told = memory.told.iter_mut().find(|told| told.what == what);
            let recently = told.as_ref().is_some_and(|told| since.duration_since(told.at) < REMIND);
            if recently && memory.last.contains(&what) {
                continue;
            }
            if memory.left == 0 {
                lost += 1;
                continue;
            }
            memory.left -= 1;
            match told {
                Some(told) => told.at = since,
                None => memory.told.push(RecordedEvent { what, count: 0, at: since }),
            }
            news.reserve_exact(1);
            news.push_back(PendingEvent {
                what,
                note: Note { message: cut(&note.message), ..note.clone() },
                at,
                since,
            });
        }
        memory.last = last;
        (news, lost)
    }

    fn remember(&mut self, key: &str, now: Instant) -> &mut Memory {
        self.make_room();
        let memory = self.memory.entry(key.into()).or_insert_with(|| Memory {
            told: Vec::with_capacity(1),
            last: Vec::new(),
            left: BURST,
            refilled: now,
            touched: now,
        });
        memory.touched = now;
        let refills = now.duration_since(memory.refilled).as_secs() / REFILL.as_secs();
        if refills > 0 {
            memory.left = BURST.min(memory.left.saturating_add(refills.try_into().unwrap_or(BURST)));
            memory.refilled = now;
        }
        memory.told.retain(|told| now.duration_since(told.at) < 3 * REMIND);
        memory
    }

    /// Forgets the objects that were silent for the longest.
    fn make_room(&mut self) {
        if self.memory.len() < REMEMBERED {
            return;
        }
        let mut touched: Vec<_> = self.memory.values().map(|memory| memory.touched).collect();
        touched.sort_unstable();
        let middle = touched[touched.len() / 2];
        self.memory.retain(|_, memory| memory.touched > middle);
    }

    /// Lets notes wait. Returns how many gave way.
    fn wait(&mut self, key: &str, subject: impl FnOnce() -> Subject, news: VecDeque<PendingEvent>) -> u64 {
        let room = ROOM.saturating_sub(self.notes);
        self.notes += news.len();
        let Some(waiting) = self.waiting.get_mut(key) else {
            let key = self.memory.get_key_value(key).map_or_else(|| key.into(), |(key, _)| key.clone());
            let subject = Arc::new(subject());
            self.turns.push_back(key.clone());
            self.waiting.insert(key, Box::new(Waiting { subject, said: news }));
            return 0;
        };
        let before = waiting.said.len();
        let gone = news.len().saturating_sub(room).min(before);
        waiting.said.extend(news);
        for _ in 0..gone {
            // Of one reason the last counts, and of all the oldest counts least.
            let repeated = |index: &usize| {
                let reason = waiting.said[*index].note.reason;
                waiting.said.range(index + 1..).any(|later| later.note.reason == reason)
            };
            let index = (0..before).find(repeated).unwrap_or(0);
            let removed = waiting.said.remove(index);
            forget(self.memory.get_mut(key), removed.map(|said| said.what));
        }
        self.notes -= gone;
        gone as u64
    }

    /// What is to be written next.
    pub(super) fn next(&mut self) -> Option<Due> {
        let key = self.turns.pop_front()?;
        let waiting = self.waiting.get_mut(&key)?;
        let due = Due { key: key.clone(), subject: waiting.subject.clone(), said: waiting.said.pop_front()? };
        self.notes -= 1;
        if waiting.said.is_empty() {
            self.waiting.remove(&key);
        } else {
            self.turns.push_back(key);
        }
        if self.turns.is_empty() {
            // What many have needed is not kept for the few.
            (self.waiting, self.turns) = Default::default();
        }
        Some(due)
    }

    /// Takes back what could not be written yet: it is next when its object has its turn, after the others.
    pub(super) fn again(&mut self, Due { key, subject, said }: Due) {
        self.notes += 1;
        match self.waiting.get_mut(&key) {
            Some(waiting) => waiting.said.push_front(said),
            None => {
                self.turns.push_back(key.clone());
                self.waiting.insert(key, Box::new(Waiting { subject, said: [said].into() }));
            }
        }
    }

    /// How often it was written before.
    pub(super) fn count(&mut self, due: &Due) -> i32 {
        self.told(due).map_or(0, |told| told.count)
    }

    /// Remembers how often it was written by now.
    pub(super) fn written(&mut self, due: &Due, count: i32) {
        if let Some(told) = self.told(due) {
            told.count = count;
        }
    }

    /// Forgets what will not be written, so that it is news when it is said again.
    pub(super) fn given_up(&mut self, due: &Due) {
        forget(self.memory.get_mut(&due.key), Some(due.said.what));
    }

    fn told(&mut self, due: &Due) -> Option<&mut RecordedEvent> {
        self.memory.get_mut(&due.key)?.told.iter_mut().find(|told| told.what == due.said.what)
    }
}

fn forget(memory: Option<&mut Memory>, what: Option<u64>) {
    if let Some(memory) = memory {
        memory.told.retain(|told| Some(told.what) != what);
    }
}

/// What is said, in short.
fn what(note: &Note) -> u64 {
    let mut hasher = DefaultHasher::new();
    (note.reason, &note.message).hash(&mut hasher);
    hasher.finish()
}

/// Servers refuse a message of more than 1024 bytes.
fn cut(message: &str) -> String {
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
        backlog.hear(|| Subject { component, reference, uid }, &key, notes, Timestamp::UNIX_EPOCH)
    }

    fn all(backlog: &mut Backlog) -> Vec<(String, String)> {
        let due = std::iter::from_fn(|| backlog.next());
        due.map(|due| (due.subject.reference.name.clone(), due.said.note.message)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn however_many_wait_the_last_word_about_each_object_is_kept() {
        let (mut backlog, mut lost) = (Backlog::default(), 0);
        for round in 0..3 {
            for object in 0..ROOM {
                lost += say(&mut backlog, object, &[note("State", &format!("round {round}"))]);
            }
        }
        lost += say(&mut backlog, ROOM, &[note("State", "a new one")]);
        assert_eq!((backlog.len(), lost), (ROOM + 1, 2 * ROOM as u64));
        let said = all(&mut backlog);
        assert_eq!(said.iter().filter(|(_, message)| message == "round 2").count(), ROOM);
        assert_eq!(said.last(), Some(&(format!("uid-{ROOM}"), "a new one".into())));
        assert_eq!(backlog.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn without_room_an_object_keeps_one_of_each_reason_before_others_of_the_same() {
        let mut backlog = Backlog::default();
        for object in 0..ROOM - 2 {
            say(&mut backlog, object, &[note("State", "ready")]);
        }
        let lost = say(&mut backlog, ROOM, &[note("Cause", "no GPU"), note("State", "failed")]);
        assert_eq!((lost, say(&mut backlog, ROOM, &[note("State", "ready")])), (0, 1));
        let said = all(&mut backlog).into_iter().filter(|(name, _)| *name == format!("uid-{ROOM}"));
        assert_eq!(said.map(|(_, message)| message).collect::<Vec<_>>(), ["no GPU", "ready"]);
    }

    #[tokio::test(start_paused = true)]
    async fn objects_take_turns_and_what_failed_comes_after_the_others_in_its_order() {
        let mut backlog = Backlog::default();
        say(&mut backlog, 1, &[note("A", "first"), note("B", "second")]);
        say(&mut backlog, 2, &[note("A", "other")]);
        let failed = backlog.next().unwrap();
        assert_eq!(failed.said.note.message, "first");
        backlog.again(failed);
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
        backlog.given_up(&due);
        say(&mut backlog, 1, &[note("A", "first")]);
        assert_eq!(backlog.len(), 1);
    }

    #[test]
    fn a_long_message_is_cut_between_letters() {
        let cut = cut(&"ä".repeat(1000));
        assert!(cut.len() <= 1024 && cut.ends_with('…'));
        assert_eq!(super::cut("short"), "short");
    }
}
