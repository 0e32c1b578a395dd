//! Restart backoff of a kubelet: 10 s, doubling up to 5 min.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);

/// Backoff of one container or image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Backoff {
    delay: Option<Duration>,
    updated: Timestamp,
}

impl Backoff {
    /// Delay after a failure: zero after the first one, or after a long time without one.
    pub(super) fn delay(&self, failed: Timestamp) -> Duration {
        let has_reset = failed.duration_since(self.updated) > signed(2 * LONGEST);
        self.delay.filter(|_| !has_reset).unwrap_or_default()
    }

    /// Records an attempt.
    pub(super) fn attempt(&mut self, failed: Timestamp, now: Timestamp) {
        let before = self.delay(failed);
        self.delay = Some(if before.is_zero() { FIRST } else { (before * 2).min(LONGEST) });
        self.updated = now;
    }
}

/// A duration that can be added to timestamps.
pub(super) fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

/// Adds a duration to a time.
pub(super) fn after(time: Timestamp, duration: Duration) -> Timestamp {
    time.saturating_add(signed(duration)).unwrap_or(Timestamp::MAX)
}

/// Formats a duration as Go does: `10s`, `1m20s`, `5m0s`.
pub(super) fn go_duration(duration: Duration) -> String {
    let (seconds, millis) = (duration.as_secs(), duration.subsec_millis());
    let fraction = if millis == 0 { String::new() } else { format!(".{millis:03}").trim_end_matches('0').to_owned() };
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0) if millis > 0 => format!("{millis}ms"),
        (0, 0, s) => format!("{s}{fraction}s"),
        (0, m, s) => format!("{m}m{s}{fraction}s"),
        (h, m, s) => format!("{h}h{m}m{s}{fraction}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_and_are_forgotten_after_ten_minutes() {
        let mut backoff = Backoff::default();
        let mut now: Timestamp = "2025-01-01T00:00:00Z".parse().unwrap();
        let mut delays = Vec::new();
        for _ in 0..8 {
            let delay = backoff.delay(now);
            delays.push(delay.as_secs());
            backoff.attempt(now, after(now, delay));
            now = after(now, delay + Duration::from_secs(1));
        }
        assert_eq!(delays, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(backoff.delay(after(now, Duration::from_secs(601))), Duration::ZERO);
    }

    #[test]
    fn durations_are_written_as_go_does() {
        let cases = [(10_000, "10s"), (80_000, "1m20s"), (300_000, "5m0s"), (1_500, "1.5s"), (250, "250ms"), (0, "0s")];
        for (millis, text) in cases {
            assert_eq!(go_duration(Duration::from_millis(millis)), text);
        }
    }
}
