//! Exponential backoff per key, for failures that repeat in the same place.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Delays that double from `first` up to `last`, and reset after twice the longest delay without a failure.
#[derive(Debug)]
pub(crate) struct Backoff<K> {
    first: Duration,
    last: Duration,
    entries: Mutex<HashMap<K, Entry>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    delay: Duration,
    since: Instant,
}

impl<K: Eq + Hash> Backoff<K> {
    /// Delays between `first` and `last`.
    pub(crate) fn new(first: Duration, last: Duration) -> Self {
        Self { first, last, entries: Mutex::new(HashMap::new()) }
    }

    /// `None` if the key may be retried now, which counts as one more failure; otherwise the remaining delay.
    pub(crate) fn next(&self, key: K) -> Option<Duration> {
        let now = Instant::now();
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|_, entry| now - entry.since < self.last * 2);
        match entries.get_mut(&key) {
            Some(entry) if now < entry.since + entry.delay => Some(entry.since + entry.delay - now),
            Some(entry) => {
                *entry = Entry { delay: (entry.delay * 2).min(self.last), since: now };
                None
            }
            None => {
                entries.insert(key, Entry { delay: self.first, since: now });
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn delays_double_and_start_again() {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(4));
        assert_eq!(backoff.next("a"), None);
        for wait in [1, 2, 4, 4] {
            assert_eq!(backoff.next("a"), Some(Duration::from_secs(wait)));
            tokio::time::advance(Duration::from_secs(wait)).await;
            assert_eq!(backoff.next("a"), None);
        }
        tokio::time::advance(Duration::from_secs(8)).await;
        assert_eq!(backoff.next("a"), None);
        assert_eq!(backoff.next("a"), Some(Duration::from_secs(1)));
    }
}
