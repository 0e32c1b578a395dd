//! The work queue of the operator's controllers.
//!
//! Adding a key cancels its pending delay, and failures are counted by class: see [`Streak`].

use capstan_workqueue::Policy;

use crate::error::Streak;

/// A queue of keys to reconcile. Clones share one state.
pub type Queue<K> = capstan_workqueue::Queue<K, Reconciles>;

/// The policy of the operator's queues.
#[derive(Clone, Copy, Debug)]
pub struct Reconciles;

impl Policy for Reconciles {
    type Failures = Streak;
    const ADD_CANCELS_DELAY: bool = true;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

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
