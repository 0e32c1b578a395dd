//! The cluster's clock: wall time at the start plus tokio time since then. With tokio's clock paused, time is virtual.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A source of timestamps that follows tokio's clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Timestamp,
    since: Instant,
}

impl Clock {
    /// A clock that reads `start` now. Call it inside a tokio runtime.
    pub fn starting_at(start: Timestamp) -> Self {
        Self { start, since: Instant::now() }
    }

    /// A clock that reads the wall time now.
    pub fn real() -> Self {
        Self::starting_at(Timestamp::now())
    }

    /// The current time.
    pub fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.since.elapsed()).unwrap_or(SignedDuration::MAX);
        self.start.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
    }

    /// The current time in `metav1.Time` format: whole seconds, `Z`.
    pub fn rfc3339(&self) -> String {
        seconds(self.now())
    }

    /// The current time in `metav1.MicroTime` format.
    pub fn rfc3339_micro(&self) -> String {
        self.now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
    }
}

/// A timestamp in `metav1.Time` format: whole seconds.
pub fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
