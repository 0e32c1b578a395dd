//! The time of day: the real one, or one that follows tokio's clock and so can be virtual.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A source of timestamps.
#[derive(Clone, Copy, Debug, Default)]
pub enum Clock {
    /// The clock of this machine.
    #[default]
    Real,
    /// A clock that showed `start` at `since` and goes as tokio's does.
    Virtual {
        /// What it showed.
        start: Timestamp,
        /// When it showed that.
        since: Instant,
    },
}

impl Clock {
    /// A clock that shows `start` now and then follows tokio's.
    pub fn starting_at(start: Timestamp) -> Self {
        Self::Virtual { start, since: Instant::now() }
    }

    /// The time.
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
