//! What happened in the last minutes: XIDs by number, and samples in which something held the clocks down.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use capstan_hw::gpu::nvidia::ThrottleReasons;
use tokio::time::Instant;

/// Occurrences in a sliding window, by device and by what happened. Bounded: a storm of faults costs no memory.
pub(super) struct Window<T> {
    span: Duration,
    seen: VecDeque<(Instant, String, T)>,
}

/// More than this many are forgotten from the oldest on.
const MOST: usize = 10_000;

impl<T: Ord + Clone> Window<T> {
    /// A window of this length.
    pub(super) fn new(span: Duration) -> Self {
        Self { span, seen: VecDeque::new() }
    }

    /// Notes something.
    pub(super) fn note(&mut self, device: &str, what: T, now: Instant) {
        if self.seen.len() == MOST {
            self.seen.pop_front();
        }
        self.seen.push_back((now, device.to_owned(), what));
    }

    /// How often each thing happened to a device in the window.
    pub(super) fn counts(&mut self, device: &str, now: Instant) -> BTreeMap<T, u64> {
        while self.seen.front().is_some_and(|(at, ..)| now.duration_since(*at) > self.span) {
            self.seen.pop_front();
        }
        let mut counts = BTreeMap::new();
        for (_, _, what) in self.seen.iter().filter(|(_, at, _)| at == device) {
            *counts.entry(what.clone()).or_default() += 1;
        }
        counts
    }

    /// Its length in milliseconds, as a label says it.
    pub(super) fn millis(&self) -> u128 {
        self.span.as_millis()
    }
}

impl Window<&'static str> {
    /// Notes every reason that holds.
    pub(super) fn note_reasons(&mut self, device: &str, reasons: ThrottleReasons, now: Instant) {
        for name in reasons.names() {
            self.note(device, name, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_older_than_the_window_is_forgotten() {
        let mut window = Window::new(Duration::from_secs(300));
        window.note("a", 48u64, Instant::now());
        tokio::time::advance(Duration::from_secs(200)).await;
        window.note("a", 48, Instant::now());
        window.note("a", 79, Instant::now());
        window.note("b", 13, Instant::now());
        assert_eq!(window.counts("a", Instant::now()), BTreeMap::from([(48, 2), (79, 1)]));
        tokio::time::advance(Duration::from_secs(200)).await;
        assert_eq!(window.counts("a", Instant::now()), BTreeMap::from([(48, 1), (79, 1)]));
    }

    #[tokio::test(start_paused = true)]
    async fn every_reason_that_holds_counts() {
        let mut window = Window::new(Duration::from_secs(1));
        window.note_reasons("a", ThrottleReasons(0x4 | 0x40), Instant::now());
        assert_eq!(window.counts("a", Instant::now()), BTreeMap::from([("hw_thermal", 1), ("power_cap", 1)]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_storm_is_bounded() {
        let mut window = Window::new(Duration::from_secs(300));
        for _ in 0..MOST * 2 {
            window.note("a", 1u64, Instant::now());
        }
        assert_eq!(window.counts("a", Instant::now()).values().sum::<u64>(), MOST as u64);
    }
}
