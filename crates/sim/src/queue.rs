//! Work queues: keys to look at, each at most once at a time.
//!
//! A key that is added while it waits is there once. A key that is added while it is worked on comes back afterwards.
//! Nothing here polls: a worker waits for a notification or for the earliest delay.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// First delay after a failure; it doubles with every further one.
const FIRST_RETRY: Duration = Duration::from_millis(5);
/// Longest delay after failures.
const LAST_RETRY: Duration = Duration::from_secs(300);

/// What a queue may hold.
pub trait Item: Clone + Eq + Hash + Ord + Send + 'static {}

impl<T: Clone + Eq + Hash + Ord + Send + 'static> Item for T {}

/// A queue of keys. Clones share one state.
#[derive(Debug)]
pub struct Queue<K = Arc<str>> {
    shared: Arc<Shared<K>>,
}

#[derive(Debug)]
struct Shared<K> {
    state: Mutex<State<K>>,
    added: Notify,
}

#[derive(Debug)]
struct State<K> {
    ready: VecDeque<K>,
    /// Everything that is in `ready`, or was added while it was worked on.
    wanted: HashSet<K>,
    working: HashSet<K>,
    later: BTreeSet<(Instant, K)>,
    due: HashMap<K, Instant>,
    failures: HashMap<K, u32>,
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<K: Item> Default for Queue<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Item> Queue<K> {
    /// An empty queue.
    pub fn new() -> Self {
        let state = State {
            ready: VecDeque::new(),
            wanted: HashSet::new(),
            working: HashSet::new(),
            later: BTreeSet::new(),
            due: HashMap::new(),
            failures: HashMap::new(),
        };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), added: Notify::new() }) }
    }

    /// Adds a key, to be looked at as soon as a worker is free.
    pub fn add(&self, key: K) {
        if self.state().add(key) {
            self.shared.added.notify_one();
        }
    }

    /// Adds a key after a delay. Of several delays of one key the shortest counts.
    pub fn add_after(&self, key: K, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        self.state().add_at(key, Instant::now() + delay);
        self.shared.added.notify_one();
    }

    /// Adds a key that failed, after a delay that doubles with every failure.
    pub fn retry(&self, key: K) {
        let delay = {
            let mut state = self.state();
            let failures = state.failures.entry(key.clone()).or_default();
            let delay = FIRST_RETRY.saturating_mul(1 << (*failures).min(20)).min(LAST_RETRY);
            *failures += 1;
            delay
        };
        self.add_after(key, delay);
    }

    /// Forgets the failures of a key.
    pub fn forget(&self, key: &K) {
        self.state().failures.remove(key);
    }

    /// How often a key failed since it was last forgotten.
    pub fn failures(&self, key: &K) -> u32 {
        self.state().failures.get(key).copied().unwrap_or(0)
    }

    /// Waits for a key. Nobody else gets it until [`Queue::done`] is called with it.
    ///
    /// It does not let others run while there are keys. Work without a socket seldom waits for anything, so a worker
    /// whose queue never runs dry must give way by itself.
    pub async fn next(&self) -> K {
        loop {
            let due = {
                let mut state = self.state();
                state.promote(Instant::now());
                if let Some(key) = state.take() {
                    // Another worker may wait for the notification that this one used up, or for no delay at all.
                    if !state.ready.is_empty() || !state.later.is_empty() {
                        self.shared.added.notify_one();
                    }
                    return key;
                }
                state.later.first().map(|(due, _)| *due)
            };
            match due {
                None => self.shared.added.notified().await,
                Some(due) => {
                    tokio::select! {
                        () = self.shared.added.notified() => {}
                        () = tokio::time::sleep_until(due) => {}
                    }
                }
            }
        }
    }

    /// Says that a key was worked on.
    pub fn done(&self, key: &K) {
        let mut state = self.state();
        state.working.remove(key);
        if state.wanted.contains(key) {
            state.ready.push_back(key.clone());
            drop(state);
            self.shared.added.notify_one();
        }
    }

    /// How many keys wait or are worked on now, without those that wait for a delay.
    pub fn len(&self) -> usize {
        let state = self.state();
        state.ready.len() + state.working.len()
    }

    /// How many keys there are in any state: waiting, worked on, delayed, or remembered because they failed.
    pub fn held(&self) -> usize {
        let state = self.state();
        let keys = [&state.wanted, &state.working].into_iter().flatten().chain(state.due.keys());
        keys.chain(state.failures.keys()).collect::<HashSet<_>>().len()
    }

    /// Whether there is nothing to do now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Item> State<K> {
    /// Whether a worker must be woken.
    fn add(&mut self, key: K) -> bool {
        if !self.wanted.insert(key.clone()) || self.working.contains(&key) {
            return false;
        }
        self.ready.push_back(key);
        true
    }

    fn add_at(&mut self, key: K, at: Instant) {
        match self.due.get(&key) {
            Some(known) if *known <= at => return,
            Some(known) => {
                self.later.remove(&(*known, key.clone()));
            }
            None => {}
        }
        self.due.insert(key.clone(), at);
        self.later.insert((at, key));
    }

    fn promote(&mut self, now: Instant) {
        while self.later.first().is_some_and(|(due, _)| *due <= now) {
            let Some((_, key)) = self.later.pop_first() else { return };
            self.due.remove(&key);
            self.add(key);
        }
    }

    fn take(&mut self) -> Option<K> {
        let key = self.ready.pop_front()?;
        self.wanted.remove(&key);
        self.working.insert(key.clone());
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
        let queue = Queue::new();
        queue.add("a");
        queue.add("a");
        assert_eq!(queue.next().await, "a");
        assert_eq!(queue.len(), 1);
        queue.done(&"a");
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_is_added_during_work_comes_back() {
        let queue = Queue::new();
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
        let (queue, start) = (Queue::new(), Instant::now());
        queue.add_after("a", seconds(10));
        queue.add_after("a", seconds(5));
        queue.add_after("a", seconds(20));
        assert_eq!(queue.next().await, "a");
        assert_eq!(start.elapsed(), seconds(5));
        queue.done(&"a");
        assert!(tokio::time::timeout(seconds(60), queue.next()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn delays_double_until_forgotten() {
        let queue = Queue::new();
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
        let queue: Queue<u32> = Queue::new();
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
