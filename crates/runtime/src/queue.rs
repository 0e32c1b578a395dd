//! Keys to look at, each at most once at a time.
//!
//! A key that is added while it waits is there once; one that is added while it is worked on comes back afterwards.
//! Nothing polls: a worker waits for a notification or for the earliest delay. The size is bounded by the number of
//! keys.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::error::{Class, Streak};

/// A queue of keys. Clones share one state.
#[derive(Debug)]
pub struct Queue<K> {
    shared: Arc<Shared<K>>,
}

#[derive(Debug)]
struct Shared<K> {
    state: Mutex<State<K>>,
    changed: Notify,
}

#[derive(Debug)]
struct State<K> {
    ready: VecDeque<K>,
    /// What is in `ready`, or must come back after work.
    wanted: HashSet<K>,
    working: HashSet<K>,
    later: BTreeSet<(Instant, K)>,
    due: HashMap<K, Instant>,
    failures: HashMap<K, Streak>,
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<K: Clone + Eq + Hash + Ord> Default for Queue<K> {
    fn default() -> Self {
        let state = State {
            ready: VecDeque::new(),
            wanted: HashSet::new(),
            working: HashSet::new(),
            later: BTreeSet::new(),
            due: HashMap::new(),
            failures: HashMap::new(),
        };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), changed: Notify::new() }) }
    }
}

impl<K: Clone + Eq + Hash + Ord> Queue<K> {
    /// Adds a key to look at now. It does not wait for a delay that was set before, but failures are not forgotten.
    pub fn add(&self, key: K) {
        let mut state = self.state();
        state.add(key);
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Adds a key to look at after a while; of several delays the shortest counts.
    pub fn add_after(&self, key: K, delay: Duration) {
        let mut state = self.state();
        let due = Instant::now() + delay;
        if state.wanted.contains(&key) || state.due.get(&key).is_some_and(|old| *old <= due) {
            return;
        }
        if let Some(old) = state.due.insert(key.clone(), due) {
            state.later.remove(&(old, key.clone()));
        }
        state.later.insert((due, key));
        drop(state);
        self.shared.changed.notify_one();
    }

    /// The next key. It counts as worked on until [`done`](Self::done).
    pub async fn next(&self) -> K {
        loop {
            let changed = self.shared.changed.notified();
            let due = {
                let mut state = self.state();
                state.wake(Instant::now());
                if let Some(key) = state.pop() {
                    if !state.ready.is_empty() || !state.later.is_empty() {
                        // Another worker takes what is left, now or when it is due.
                        self.shared.changed.notify_one();
                    }
                    return key;
                }
                state.later.first().map(|(due, _)| *due)
            };
            match due {
                Some(due) => tokio::select! { () = changed => {}, () = sleep_until(due) => {} },
                None => changed.await,
            }
        }
    }

    /// Says that work on a key is over.
    pub fn done(&self, key: &K) {
        let mut state = self.state();
        state.working.remove(key);
        if state.wanted.contains(key) {
            state.ready.push_back(key.clone());
        }
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Counts a failure and says how many there were in a row.
    pub(crate) fn failed(&self, key: &K, class: Class) -> u32 {
        self.state().failures.entry(key.clone()).or_default().another(class)
    }

    /// Forgets the failures of a key, because it succeeded or is gone.
    pub fn succeeded(&self, key: &K) {
        self.state().failures.remove(key);
    }

    /// How many keys wait to be looked at now.
    pub fn depth(&self) -> usize {
        self.state().wanted.len()
    }

    /// Whether there is nothing to do now: no key waits and none is worked on.
    pub fn is_idle(&self) -> bool {
        let state = self.state();
        state.wanted.is_empty() && state.working.is_empty()
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash + Ord> State<K> {
    fn add(&mut self, key: K) {
        if let Some(due) = self.due.remove(&key) {
            self.later.remove(&(due, key.clone()));
        }
        if self.wanted.insert(key.clone()) && !self.working.contains(&key) {
            self.ready.push_back(key);
        }
    }

    /// Makes ready what is due.
    fn wake(&mut self, now: Instant) {
        while let Some((due, key)) = self.later.first()
            && *due <= now
        {
            let key = key.clone();
            self.add(key);
        }
    }

    fn pop(&mut self) -> Option<K> {
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
        let queue = Queue::default();
        queue.add("a");
        queue.add("a");
        assert_eq!((queue.depth(), queue.next().await), (1, "a"));
        queue.done(&"a");
        assert!(queue.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_is_added_during_work_comes_back_after_it() {
        let queue = Queue::default();
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
    async fn the_shortest_delay_counts_and_a_change_does_not_wait() {
        let (queue, start) = (Queue::default(), Instant::now());
        queue.add_after("a", seconds(10));
        queue.add_after("a", seconds(5));
        queue.add_after("a", seconds(20));
        assert_eq!(queue.next().await, "a");
        assert_eq!(start.elapsed(), seconds(5));
        queue.done(&"a");
        queue.add_after("a", seconds(5));
        queue.add("a");
        assert_eq!(queue.next().await, "a");
        assert_eq!(start.elapsed(), seconds(5));
        queue.done(&"a");
        assert!(tokio::time::timeout(seconds(60), queue.next()).await.is_err());
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
