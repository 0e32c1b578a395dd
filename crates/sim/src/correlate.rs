//! Event correlation: repeats are counted, similar events aggregated and floods dropped, with the limits of client-go.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use jiff::Timestamp;

/// Number of different messages about one subject within [`AGGREGATION_INTERVAL`] before further ones are aggregated.
const MAX_SIMILAR_EVENTS: usize = 10;
/// Seconds without a similar event after which aggregation ends.
const AGGREGATION_INTERVAL: f64 = 600.0;
/// Burst of events per source and object.
const BURST: f64 = 25.0;
/// Seconds per further event.
const REFILL_SECONDS: f64 = 300.0;
/// Size of each cache generation: at least the last 4096 entries are retained, at most twice as many.
const CACHE_GENERATION_SIZE: usize = 4096;

/// The fields of an event that matter for correlation.
pub(crate) struct ObservedEvent<'a> {
    /// Reporting component and object.
    pub(crate) source: String,
    /// Part of the object.
    pub(crate) field_path: &'a str,
    /// Type and reason.
    pub(crate) reason: String,
    /// Message.
    pub(crate) message: &'a str,
    /// Time of the event.
    pub(crate) at: Timestamp,
}

/// The event to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Deduplication key.
    pub(crate) key: String,
    /// The existing event, if it was reported before.
    pub(crate) name: Option<String>,
    /// The aggregate message, if it differs from the reported one.
    pub(crate) combined: Option<String>,
    /// `count` of the event.
    pub(crate) count: i32,
}

/// Caches of reported events.
#[derive(Default)]
pub(crate) struct Correlator {
    groups: GenerationalCache<String, Group>,
    known: GenerationalCache<String, Known>,
    sources: GenerationalCache<String, Bucket>,
}

#[derive(Default)]
struct Group {
    messages: HashSet<String>,
    last: Option<Timestamp>,
}

#[derive(Default)]
struct Known {
    name: Option<String>,
    count: i32,
}

#[derive(Default)]
struct Bucket {
    used: f64,
    last: Option<Timestamp>,
}

impl Correlator {
    /// The event to write for an observation; `None` if the source exceeds its rate limit.
    pub(crate) fn correlate(&mut self, event: &ObservedEvent<'_>) -> Option<Plan> {
        let similar = format!("{}\0{}", event.source, event.reason);
        let group = self.groups.entry(similar.clone());
        if since(group.last, event.at) > AGGREGATION_INTERVAL {
            group.messages.clear();
        }
        group.last = Some(event.at);
        let many = group.messages.len() >= MAX_SIMILAR_EVENTS - 1 && !group.messages.contains(event.message);
        let (key, combined) = if many {
            (similar, Some(format!("(combined from similar events): {}", event.message)))
        } else {
            group.messages.insert(event.message.to_owned());
            (format!("{similar}\0{}\0{}", event.field_path, event.message), None)
        };
        let known = self.known.entry(key.clone());
        known.count += 1;
        let plan = Plan { key, name: known.name.clone(), combined, count: known.count };
        self.sources.entry(event.source.clone()).take(event.at).then_some(plan)
    }

    /// Records the name of a written event.
    pub(crate) fn record_written(&mut self, key: String, name: String) {
        self.known.entry(key).name = Some(name);
    }
}

impl Bucket {
    fn take(&mut self, at: Timestamp) -> bool {
        self.used = (self.used - since(self.last, at) / REFILL_SECONDS).max(0.0);
        self.last = Some(at);
        let free = self.used + 1.0 <= BURST;
        if free {
            self.used += 1.0;
        }
        free
    }
}

fn since(before: Option<Timestamp>, now: Timestamp) -> f64 {
    before.map_or(0.0, |before| now.duration_since(before).as_secs_f64())
}

/// A cache of recent entries with two generations, so that eviction costs nothing per use.
struct GenerationalCache<K, V> {
    new: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K, V> Default for GenerationalCache<K, V> {
    fn default() -> Self {
        Self { new: HashMap::new(), old: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash, V: Default> GenerationalCache<K, V> {
    fn entry(&mut self, key: K) -> &mut V {
        if !self.new.contains_key(&key) {
            if self.new.len() >= CACHE_GENERATION_SIZE {
                self.old = std::mem::take(&mut self.new);
            }
            let value = self.old.remove(&key).unwrap_or_default();
            self.new.insert(key.clone(), value);
        }
        self.new.get_mut(&key).expect("inserted above")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn correlate(
        correlator: &mut Correlator,
        second: i64,
        reason: &str,
        message: &str,
    ) -> Option<(bool, i32, Option<String>)> {
        let at = Timestamp::from_second(second).unwrap();
        let event = ObservedEvent { source: "s".into(), field_path: "", reason: reason.into(), message, at };
        let plan = correlator.correlate(&event)?;
        correlator.record_written(plan.key, "name".into());
        Some((plan.name.is_some(), plan.count, plan.combined))
    }

    #[test]
    fn repeats_are_counted() {
        let mut correlator = Correlator::default();
        assert_eq!(correlate(&mut correlator, 0, "r", "a"), Some((false, 1, None)));
        assert_eq!(correlate(&mut correlator, 1, "r", "a"), Some((true, 2, None)));
        assert_eq!(correlate(&mut correlator, 1, "r", "b"), Some((false, 1, None)));
        assert_eq!(correlate(&mut correlator, 1, "other", "a"), Some((false, 1, None)));
    }

    #[test]
    fn from_the_tenth_on_similar_ones_are_combined_until_it_is_quiet() {
        let mut correlator = Correlator::default();
        for index in 0..9 {
            assert_eq!(correlate(&mut correlator, 0, "r", &index.to_string()), Some((false, 1, None)));
        }
        let combined = |text: &str| Some(format!("(combined from similar events): {text}"));
        assert_eq!(correlate(&mut correlator, 1, "r", "x"), Some((false, 1, combined("x"))));
        assert_eq!(correlate(&mut correlator, 2, "r", "y"), Some((true, 2, combined("y"))));
        assert_eq!(correlate(&mut correlator, 700, "r", "z"), Some((false, 1, None)));
    }

    #[test]
    fn a_flood_is_cut_and_every_five_minutes_one_is_let_through() {
        let mut correlator = Correlator::default();
        let through = (0..100).filter(|_| correlate(&mut correlator, 0, "r", "a").is_some()).count();
        assert_eq!(through, 25);
        assert_eq!(correlate(&mut correlator, 299, "r", "a"), None);
        assert_eq!(correlate(&mut correlator, 301, "r", "a"), Some((true, 102, None)));
    }
}
