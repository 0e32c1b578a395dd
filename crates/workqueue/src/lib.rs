//! Work queues of controllers: keys to reconcile, each processed at most once at a time.
//!
//! A key that is added while it is queued stays queued once; one that is added while it is processed is requeued
//! afterwards. Nothing polls: a worker waits for a notification or for the earliest delay. The size is bounded by the
//! number of keys. What differs between the operator's queues and those of the embedded cluster is a [`Policy`].

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test"))]

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// What differs between queues.
pub trait Policy {
    /// The failure record of a key.
    type Failures: Default;
    /// Whether adding a key cancels its pending delay.
    const ADD_CANCELS_DELAY: bool;
}

/// The policy of client-go: failures are counted, and adding a key does not cancel its delay.
#[derive(Clone, Copy, Debug)]
pub struct ClientGo;

impl Policy for ClientGo {
    type Failures = u32;
    const ADD_CANCELS_DELAY: bool = false;
}

/// A queue of keys. Clones share one state.
pub struct Queue<K = Arc<str>, P: Policy = ClientGo> {
    shared: Arc<Shared<K, P::Failures>>,
}

struct Shared<K, F> {
    state: Mutex<State<K, F>>,
    added: Notify,
}

struct State<K, F> {
    ready: VecDeque<K>,
    /// Keys in `ready`, and keys to requeue after processing (client-go's dirty set).
    dirty: HashSet<K>,
    processing: HashSet<K>,
    delayed: BTreeSet<(Instant, K)>,
    due: HashMap<K, Instant>,
    failures: HashMap<K, F>,
}

impl<K, P: Policy> Clone for Queue<K, P> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<K, P: Policy> fmt::Debug for Queue<K, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

impl<K, P: Policy> Default for Queue<K, P> {
    fn default() -> Self {
        let state = State {
            ready: VecDeque::new(),
            dirty: HashSet::new(),
            processing: HashSet::new(),
            delayed: BTreeSet::new(),
            due: HashMap::new(),
            failures: HashMap::new(),
        };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), added: Notify::new() }) }
    }
}

impl<K: Clone + Eq + Hash + Ord, P: Policy> Queue<K, P> {
    /// Adds a key, to be processed as soon as a worker is free. Its failures are kept.
    pub fn add(&self, key: K) {
        let mut state = self.state();
        if P::ADD_CANCELS_DELAY {
            state.cancel_delay(&key);
        }
        if state.add(key) {
            drop(state);
            self.shared.added.notify_one();
        }
    }

    /// Adds a key after a delay. Of several delays of one key the shortest counts.
    pub fn add_after(&self, key: K, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        let mut state = self.state();
        if P::ADD_CANCELS_DELAY && state.dirty.contains(&key) {
            return;
        }
        if state.add_at(key, Instant::now() + delay) {
            drop(state);
            self.shared.added.notify_one();
        }
    }

    /// Waits for a key. No other worker gets it until [`Queue::done`] is called with it.
    ///
    /// It does not yield while there are keys. Work without a socket seldom awaits anything, so a worker whose queue
    /// never runs dry must yield by itself.
    pub async fn next(&self) -> K {
        loop {
            let due = {
                let mut state = self.state();
                state.promote(Instant::now());
                if let Some(key) = state.take() {
                    // Another worker may wait for the notification that this one consumed, or for no delay at all.
                    if !state.ready.is_empty() || !state.delayed.is_empty() {
                        self.shared.added.notify_one();
                    }
                    return key;
                }
                state.delayed.first().map(|(due, _)| *due)
            };
            match due {
                None => self.shared.added.notified().await,
                Some(due) => tokio::select! {
                    () = self.shared.added.notified() => {}
                    () = sleep_until(due) => {}
                },
            }
        }
    }

    /// Marks a key as processed.
    pub fn done(&self, key: &K) {
        let mut state = self.state();
        state.processing.remove(key);
        if state.dirty.contains(key) {
            state.ready.push_back(key.clone());
            drop(state);
            self.shared.added.notify_one();
        }
    }

    /// Updates the failure record of a key.
    pub fn record_failure<R>(&self, key: &K, record: impl FnOnce(&mut P::Failures) -> R) -> R {
        record(self.state().failures.entry(key.clone()).or_default())
    }

    /// Forgets the failures of a key, because it succeeded or is gone.
    pub fn forget(&self, key: &K) {
        self.state().failures.remove(key);
    }

    /// Number of queued keys, without delayed ones.
    pub fn depth(&self) -> usize {
        self.state().dirty.len()
    }

    /// Whether no key is queued or processed.
    pub fn is_idle(&self) -> bool {
        let state = self.state();
        state.dirty.is_empty() && state.processing.is_empty()
    }

    /// Number of keys in any state: queued, processing, delayed, or with failures.
    pub fn held(&self) -> usize {
        let state = self.state();
        let keys = [&state.dirty, &state.processing].into_iter().flatten().chain(state.due.keys());
        keys.chain(state.failures.keys()).collect::<HashSet<_>>().len()
    }

    fn state(&self) -> MutexGuard<'_, State<K, P::Failures>> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Initial backoff; it doubles with every failure.
const FIRST_BACKOFF: Duration = Duration::from_millis(5);
/// Maximum backoff.
const MAX_BACKOFF: Duration = Duration::from_secs(300);

impl<K: Clone + Eq + Hash + Ord> Queue<K> {
    /// Requeues a failed key with exponential backoff (client-go's AddRateLimited).
    pub fn retry(&self, key: K) {
        let failures = self.record_failure(&key, |failures| {
            *failures += 1;
            *failures
        });
        self.add_after(key, FIRST_BACKOFF.saturating_mul(1 << (failures - 1).min(20)).min(MAX_BACKOFF));
    }

    /// Failures of a key since [`Queue::forget`].
    pub fn failures(&self, key: &K) -> u32 {
        self.state().failures.get(key).copied().unwrap_or(0)
    }
}

impl<K: Clone + Eq + Hash + Ord, F> State<K, F> {
    /// Returns whether a worker must be notified.
    fn add(&mut self, key: K) -> bool {
        if !self.dirty.insert(key.clone()) || self.processing.contains(&key) {
            return false;
        }
        self.ready.push_back(key);
        true
    }

    fn cancel_delay(&mut self, key: &K) {
        if let Some(due) = self.due.remove(key) {
            self.delayed.remove(&(due, key.clone()));
        }
    }

    /// Returns whether a worker must be notified, to wait for this delay instead of a later one.
    fn add_at(&mut self, key: K, at: Instant) -> bool {
        if self.due.get(&key).is_some_and(|known| *known <= at) {
            return false;
        }
        self.cancel_delay(&key);
        self.due.insert(key.clone(), at);
        self.delayed.insert((at, key));
        true
    }

    /// Moves due keys to `ready`.
    fn promote(&mut self, now: Instant) {
        while self.delayed.first().is_some_and(|(due, _)| *due <= now) {
            let Some((_, key)) = self.delayed.pop_first() else { return };
            self.due.remove(&key);
            self.add(key);
        }
    }

    fn take(&mut self) -> Option<K> {
        let key = self.ready.pop_front()?;
        self.dirty.remove(&key);
        self.processing.insert(key.clone());
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_waits_once() {
        let queue = Queue::<_>::default();
        queue.add("a");
        queue.add("a");
        assert_eq!((queue.depth(), queue.next().await), (1, "a"));
        assert!(!queue.is_idle());
        queue.done(&"a");
        assert!(queue.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_is_added_during_work_comes_back() {
        let queue = Queue::<_>::default();
        queue.add("a");
        assert_eq!(queue.next().await, "a");
        queue.add("a");
        queue.add("b");
        assert_eq!(queue.next().await, "b");
        assert!(tokio::time::timeout(seconds(1), queue.next()).await.is_err());
        queue.done(&"a");
        assert_eq!(queue.next().await, "a");
    }

    #[tokio::test(start_paused = true)]
    async fn the_shortest_delay_counts() {
        let (queue, start) = (Queue::<_>::default(), Instant::now());
        queue.add_after("a", seconds(10));
        queue.add_after("a", seconds(5));
        queue.add_after("a", seconds(20));
        assert_eq!(queue.next().await, "a");
        assert_eq!(start.elapsed(), seconds(5));
        queue.done(&"a");
        assert!(tokio::time::timeout(seconds(60), queue.next()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn an_add_leaves_a_delay_in_place() {
        let (queue, start) = (Queue::<_>::default(), Instant::now());
        queue.add_after("a", seconds(5));
        queue.add("a");
        assert_eq!(queue.next().await, "a");
        queue.done(&"a");
        assert_eq!(queue.next().await, "a");
        assert_eq!(start.elapsed(), seconds(5));
    }

    /// A queue whose adds cancel delays.
    struct Cancelling;

    impl Policy for Cancelling {
        type Failures = u32;
        const ADD_CANCELS_DELAY: bool = true;
    }

    #[tokio::test(start_paused = true)]
    async fn an_add_cancels_a_delay_where_the_policy_says_so() {
        let (queue, start) = (Queue::<_, Cancelling>::default(), Instant::now());
        queue.add_after("a", seconds(5));
        queue.add("a");
        queue.add_after("a", seconds(5));
        assert_eq!((queue.next().await, start.elapsed()), ("a", seconds(0)));
        queue.done(&"a");
        assert!(tokio::time::timeout(seconds(60), queue.next()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn delays_double_until_forgotten() {
        let queue = Queue::<_>::default();
        let mut waits = Vec::new();
        for _ in 0..4 {
            let start = Instant::now();
            queue.retry("a");
            queue.next().await;
            queue.done(&"a");
            waits.push(start.elapsed().as_millis());
        }
        assert_eq!(waits, [5, 10, 20, 40]);
        queue.forget(&"a");
        assert_eq!(queue.failures(&"a"), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn several_workers_share_the_keys() {
        let queue: Queue<u32> = Queue::default();
        let mut workers = tokio::task::JoinSet::new();
        for _ in 0..3 {
            let queue = queue.clone();
            workers.spawn(async move { queue.next().await });
        }
        tokio::task::yield_now().await;
        queue.add(1);
        queue.add(2);
        queue.add_after(3, seconds(1));
        let mut got = workers.join_all().await;
        got.sort_unstable();
        assert_eq!(got, [1, 2, 3]);
    }
}
