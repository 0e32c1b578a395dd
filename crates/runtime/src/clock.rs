//! Wall-clock time: the real one, or a virtual one that follows tokio's clock.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A source of timestamps.
#[derive(Clone, Copy, Debug, Default)]
pub enum Clock {
    /// The system clock.
    #[default]
    Real,
    /// A clock that was `start` at `since` and advances with tokio's clock.
    Virtual {
        /// Its start time.
        start: Timestamp,
        /// When it was started.
        since: Instant,
    },
}

impl Clock {
    /// A clock that starts at `start` now and follows tokio's clock.
    pub fn starting_at(start: Timestamp) -> Self {
        Self::Virtual { start, since: Instant::now() }
    }

    /// The current time.
    pub fn now(&self) -> Timestamp {
        match self {
            Self::Real => Timestamp::now(),
            Self::Virtual { start, since } => {
                let elapsed = SignedDuration::try_from(since.elapsed()).unwrap_or(SignedDuration::MAX);
                start.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
            }
        }
    }
}
