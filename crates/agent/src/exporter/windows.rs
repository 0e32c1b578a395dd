//! Sliding windows: XID counts, and counts of samples with clock throttling.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use capstan_hw::gpu::nvidia::ThrottleReasons;
use tokio::time::Instant;

/// Events in a sliding window, by device. Bounded, so that an event storm cannot exhaust memory.
pub(super) struct Window<T> {
    span: Duration,
    events: VecDeque<(Instant, String, T)>,
}

/// Maximum number of events; the oldest are dropped.
const MAX_EVENTS: usize = 10_000;

impl<T: Ord + Clone> Window<T> {
    /// A window of this length.
    pub(super) fn new(span: Duration) -> Self {
        Self { span, events: VecDeque::new() }
    }

    /// Records an event.
    pub(super) fn record(&mut self, device: &str, what: T, now: Instant) {
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back((now, device.to_owned(), what));
    }

    /// Event counts of a device in the window.
    pub(super) fn counts(&mut self, device: &str, now: Instant) -> BTreeMap<T, u64> {
        while self.events.front().is_some_and(|(at, ..)| now.duration_since(*at) > self.span) {
            self.events.pop_front();
        }
        let mut counts = BTreeMap::new();
        for (_, _, what) in self.events.iter().filter(|(_, at, _)| at == device) {
            *counts.entry(what.clone()).or_default() += 1;
        }
        counts
    }

    /// Length in milliseconds, for the label.
    pub(super) fn millis(&self) -> u128 {
        self.span.as_millis()
    }
}

impl Window<&'static str> {
    /// Records every active throttle reason.
    pub(super) fn record_reasons(&mut self, device: &str, reasons: ThrottleReasons, now: Instant) {
        for name in reasons.names() {
            self.record(device, name, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_older_than_the_window_is_forgotten() {
        let mut window = Window::new(Duration::from_secs(300));
        window.record("a", 48u64, Instant::now());
        tokio::time::advance(Duration::from_secs(200)).await;
        window.record("a", 48, Instant::now());
        window.record("a", 79, Instant::now());
        window.record("b", 13, Instant::now());
        assert_eq!(window.counts("a", Instant::now()), BTreeMap::from([(48, 2), (79, 1)]));
        tokio::time::advance(Duration::from_secs(200)).await;
        assert_eq!(window.counts("a", Instant::now()), BTreeMap::from([(48, 1), (79, 1)]));
    }

    #[tokio::test(start_paused = true)]
    async fn every_reason_that_holds_counts() {
        let mut window = Window::new(Duration::from_secs(1));
        window.record_reasons("a", ThrottleReasons(0x4 | 0x40), Instant::now());
        assert_eq!(window.counts("a", Instant::now()), BTreeMap::from([("hw_thermal", 1), ("power_cap", 1)]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_storm_is_bounded() {
        let mut window = Window::new(Duration::from_secs(300));
        for _ in 0..MAX_EVENTS * 2 {
            window.record("a", 1u64, Instant::now());
        }
        assert_eq!(window.counts("a", Instant::now()).values().sum::<u64>(), MAX_EVENTS as u64);
    }
}
