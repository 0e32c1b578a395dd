//! Scheduling queue: active pods, pods in backoff, and unschedulable pods that wait for a cluster event.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::cycle::Rules;
use super::pod::PodInfo;

/// Initial backoff; it doubles with every failure.
const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
/// Maximum backoff.
const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// An unschedulable pod is retried after this time, even without an event.
const UNSCHEDULABLE_TIMEOUT: Duration = Duration::from_secs(300);

/// Pods that wait for a node.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    pods: HashMap<Arc<str>, PendingPod>,
    /// By priority, then by arrival.
    active: BTreeSet<(Reverse<i32>, u64, Arc<str>)>,
    /// By the end of their backoff.
    delayed: BTreeSet<(Instant, Arc<str>)>,
    /// Unschedulable pods, by the rules that rejected them.
    parked: HashMap<Rules, BTreeSet<Arc<str>>>,
    /// Unschedulable pods, by the time of their forced retry.
    expiring: BTreeSet<(Instant, Arc<str>)>,
    sequence: u64,
}

/// A pending pod.
#[derive(Debug)]
struct PendingPod {
    pod: Arc<PodInfo>,
    attempts: u32,
    /// End of the backoff after its last failure.
    not_before: Option<Instant>,
    position: QueuePosition,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueuePosition {
    /// It is being scheduled.
    Taken,
    Active(u64),
    Delayed(Instant),
    Parked(Rules, Instant),
}

impl Backlog {
    /// A pod was created or updated. `again`: the update may make it schedulable, so it is retried.
    pub(super) fn put(&mut self, pod: Arc<PodInfo>, again: bool, now: Instant) {
        let key = pod.key.clone();
        match self.pods.get_mut(&key) {
            None => {
                self.pods.insert(
                    key.clone(),
                    PendingPod { pod, attempts: 0, not_before: None, position: QueuePosition::Taken },
                );
                self.activate(&key, now);
            }
            Some(waiting) => {
                let before = waiting.pod.priority;
                let moved = pod.priority != before;
                waiting.pod = pod;
                if matches!(waiting.position, QueuePosition::Active(_)) && moved {
                    self.dequeue_with(&key, before);
                    self.activate(&key, now);
                } else if again && matches!(waiting.position, QueuePosition::Parked(..)) {
                    self.activate(&key, now);
                }
            }
        }
    }

    /// A pod was deleted, or needs no node any more.
    pub(super) fn remove(&mut self, key: &str) -> Option<Arc<PodInfo>> {
        self.dequeue(key);
        self.pods.remove(key).map(|waiting| waiting.pod)
    }

    /// Number of entries, in all orders.
    pub(super) fn len(&self) -> usize {
        let parked = self.parked.values().map(BTreeSet::len).sum::<usize>();
        self.pods.len() + self.active.len() + self.delayed.len() + parked + self.expiring.len()
    }

    /// The pending pod under a key.
    pub(super) fn get(&self, key: &str) -> Option<&Arc<PodInfo>> {
        self.pods.get(key).map(|waiting| &waiting.pod)
    }

    /// The pod to schedule next. It remains taken until it is put back with [`Backlog::park`] or [`Backlog::delay`], or
    /// removed.
    pub(super) fn take(&mut self, now: Instant) -> Option<Arc<PodInfo>> {
        self.promote(now);
        let (_, _, key) = self.active.pop_first()?;
        let waiting = self.pods.get_mut(&key)?;
        waiting.position = QueuePosition::Taken;
        waiting.attempts += 1;
        Some(waiting.pod.clone())
    }

    /// When the next delayed pod is due.
    pub(super) fn due(&self) -> Option<Instant> {
        let first = |set: &BTreeSet<(Instant, Arc<str>)>| set.first().map(|(at, _)| *at);
        [first(&self.delayed), first(&self.expiring)].into_iter().flatten().min()
    }

    /// Parks a pod until an event concerns one of these rules; any event, if there are none.
    pub(super) fn park(&mut self, key: &str, rules: Rules, now: Instant) {
        self.dequeue(key);
        let Some(waiting) = self.pods.get_mut(key) else { return };
        waiting.not_before = Some(now + delay(waiting.attempts));
        let (key, expires) = (waiting.pod.key.clone(), now + UNSCHEDULABLE_TIMEOUT);
        waiting.position = QueuePosition::Parked(rules, expires);
        self.parked.entry(rules).or_default().insert(key.clone());
        self.expiring.insert((expires, key));
    }

    /// Backs a pod off after a transient failure.
    pub(super) fn delay(&mut self, key: &str, now: Instant) {
        self.dequeue(key);
        let Some(waiting) = self.pods.get_mut(key) else { return };
        waiting.not_before = Some(now + delay(waiting.attempts));
        self.activate_later(key, now);
    }

    /// A cluster event may satisfy these rules: retries the pods that they rejected.
    pub(super) fn changed(&mut self, rules: Rules, now: Instant) {
        if self.parked.is_empty() {
            return;
        }
        let helped: Vec<Rules> =
            self.parked.keys().filter(|why| why.is_empty() || why.intersects(rules)).copied().collect();
        for why in helped {
            for key in self.parked.remove(&why).unwrap_or_default() {
                self.activate(&key, now);
            }
        }
    }

    fn promote(&mut self, now: Instant) {
        while self.delayed.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, key)) = self.delayed.pop_first() else { return };
            self.activate(&key, now);
        }
        while self.expiring.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, key)) = self.expiring.pop_first() else { return };
            self.activate(&key, now);
        }
    }

    fn activate(&mut self, key: &str, now: Instant) {
        self.dequeue(key);
        self.activate_later(key, now);
    }

    /// Makes a pod active, or keeps it in backoff if its last failure is too recent.
    fn activate_later(&mut self, key: &str, now: Instant) {
        let Some(waiting) = self.pods.get_mut(key) else { return };
        let key = waiting.pod.key.clone();
        match waiting.not_before.filter(|at| *at > now) {
            Some(at) => {
                waiting.position = QueuePosition::Delayed(at);
                self.delayed.insert((at, key));
            }
            None => {
                self.sequence += 1;
                waiting.position = QueuePosition::Active(self.sequence);
                self.active.insert((Reverse(waiting.pod.priority), self.sequence, key));
            }
        }
    }

    fn dequeue(&mut self, key: &str) {
        if let Some(waiting) = self.pods.get(key) {
            self.dequeue_with(key, waiting.pod.priority);
        }
    }

    fn dequeue_with(&mut self, key: &str, priority: i32) {
        let Some(waiting) = self.pods.get_mut(key) else { return };
        let key = waiting.pod.key.clone();
        match std::mem::replace(&mut waiting.position, QueuePosition::Taken) {
            QueuePosition::Taken => {}
            QueuePosition::Active(sequence) => drop(self.active.remove(&(Reverse(priority), sequence, key))),
            QueuePosition::Delayed(at) => drop(self.delayed.remove(&(at, key))),
            QueuePosition::Parked(rules, expires) => {
                if let Some(keys) = self.parked.get_mut(&rules) {
                    keys.remove(&key);
                    if keys.is_empty() {
                        self.parked.remove(&rules);
                    }
                }
                self.expiring.remove(&(expires, key));
            }
        }
    }
}

fn delay(attempts: u32) -> Duration {
    INITIAL_BACKOFF.saturating_mul(1 << attempts.saturating_sub(1).min(10)).min(MAX_BACKOFF)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::cycle::Rule;
    use super::*;

    const FIT: Rules = Rules::of(&[Rule::NodeResourcesFit]);
    const AFFINITY: Rules = Rules::of(&[Rule::NodeAffinity]);

    fn pod(name: &str, priority: i32) -> Arc<PodInfo> {
        let value = json!({"metadata": {"name": name}, "spec": {"containers": [], "priority": priority}});
        Arc::new(PodInfo::new(Arc::new(serde_json::from_value(value).unwrap())))
    }

    fn names(backlog: &mut Backlog, now: Instant) -> Vec<String> {
        std::iter::from_fn(|| backlog.take(now)).map(|pod| pod.key.to_string()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_most_important_goes_first_then_who_came_first() {
        let (mut backlog, now) = (Backlog::default(), Instant::now());
        for (name, priority) in [("a", 0), ("b", 10), ("c", 0), ("d", 10)] {
            backlog.put(pod(name, priority), true, now);
        }
        backlog.put(pod("c", 5), false, now);
        assert_eq!(names(&mut backlog, now), ["b", "d", "c", "a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_failed_waits_for_a_change_that_may_help() {
        let (mut backlog, now) = (Backlog::default(), Instant::now());
        backlog.put(pod("a", 0), true, now);
        backlog.take(now);
        backlog.park("a", FIT, now);
        backlog.changed(AFFINITY, now);
        assert!(backlog.take(now + UNSCHEDULABLE_TIMEOUT / 2).is_none());
        backlog.changed(FIT, now);
        assert!(backlog.take(now).is_none(), "it failed a moment ago");
        assert_eq!(backlog.due(), Some(now + INITIAL_BACKOFF));
        assert_eq!(names(&mut backlog, now + INITIAL_BACKOFF), ["a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_is_looked_at_after_a_while_in_any_case() {
        let (mut backlog, now) = (Backlog::default(), Instant::now());
        backlog.put(pod("a", 0), true, now);
        backlog.take(now);
        backlog.park("a", FIT, now);
        assert_eq!(backlog.due(), Some(now + UNSCHEDULABLE_TIMEOUT));
        assert_eq!(names(&mut backlog, now + UNSCHEDULABLE_TIMEOUT), ["a"]);
        assert_eq!(backlog.due(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn delays_double_up_to_a_limit() {
        let (mut backlog, mut now) = (Backlog::default(), Instant::now());
        backlog.put(pod("a", 0), true, now);
        let mut waits = Vec::new();
        for _ in 0..6 {
            backlog.take(now).unwrap();
            backlog.delay("a", now);
            let due = backlog.due().unwrap();
            waits.push((due - now).as_secs());
            now = due;
        }
        assert_eq!(waits, [1, 2, 4, 8, 10, 10]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_went_is_forgotten_everywhere() {
        let (mut backlog, now) = (Backlog::default(), Instant::now());
        for name in ["a", "b", "c"] {
            backlog.put(pod(name, 0), true, now);
        }
        backlog.take(now);
        backlog.park("a", FIT, now);
        backlog.take(now);
        backlog.delay("b", now);
        for name in ["a", "b", "c"] {
            assert!(backlog.remove(name).is_some());
        }
        backlog.changed(FIT, now);
        assert!(
            backlog.pods.is_empty() && backlog.due().is_none() && backlog.take(now + UNSCHEDULABLE_TIMEOUT).is_none()
        );
    }
}
