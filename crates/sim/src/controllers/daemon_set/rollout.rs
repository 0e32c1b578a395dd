//! Rolling update: old pods are deleted first, or with `maxSurge` new ones are created first.

use capstan_apiserver::error::Result;
use k8s_openapi::api::apps::v1::DaemonSet;

use super::super::common::{Round, scaled};
use super::Step;
use super::eligibility::Eligibility;
use super::set_index::IndexedPod;

/// The pods on a node without a deletion timestamp: at most one old and one new.
struct Pair<'a> {
    new: Option<&'a IndexedPod>,
    old: Option<&'a IndexedPod>,
}

impl<'a> Pair<'a> {
    /// The old and the new pod on a node; `None` if there are several of either.
    fn of(pods: &'a [IndexedPod]) -> Option<Self> {
        let mut pair = Self { new: None, old: None };
        for indexed in pods.iter().filter(|indexed| !indexed.is_deleting) {
            let slot = if indexed.is_updated { &mut pair.new } else { &mut pair.old };
            if slot.replace(indexed).is_some() {
                return None;
            }
        }
        Some(pair)
    }
}

impl Step<'_> {
    /// Whether the update strategy is `RollingUpdate`.
    pub(super) fn is_rolling_update(&self) -> bool {
        let strategy = self.set.spec.update_strategy.as_ref();
        strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("OnDelete")
    }

    /// Whether new pods are created before old ones are deleted.
    pub(super) fn has_surge(&self) -> bool {
        self.is_rolling_update() && self.bounds.0 > 0
    }

    /// Replaces as many old pods as `maxUnavailable` or `maxSurge` allows.
    pub(super) async fn roll(&mut self) -> Result<()> {
        let (surge, unavailable) = self.bounds;
        if surge == 0 { self.roll_down(unavailable).await } else { self.roll_up(surge).await }
    }

    async fn roll_down(&mut self, max_unavailable: usize) -> Result<()> {
        let (mut unavailable, mut replaced, mut candidates) = (0, Vec::new(), Vec::new());
        for node_entry in self.set_index.entries.values().filter(|node_entry| !node_entry.pods.is_empty()) {
            match Pair::of(&node_entry.pods) {
                Some(Pair { new: None, old: Some(old) }) if self.is_available(old) => candidates.push(&old.key),
                Some(Pair { new: None, old: Some(old) }) => {
                    // It is unavailable already, so replacing it costs nothing.
                    replaced.push(&old.key);
                    unavailable += 1;
                }
                Some(Pair { new: Some(new), old: None }) if self.is_available(new) => {}
                _ => unavailable += 1,
            }
        }
        let room = max_unavailable.saturating_sub(unavailable);
        replaced.extend(candidates.into_iter().take(room));
        let replaced = self.read(replaced);
        self.sync(replaced, Vec::new()).await
    }

    async fn roll_up(&mut self, max_surge: usize) -> Result<()> {
        let (mut surging, mut surplus, mut missing, mut candidates) = (0, Vec::new(), Vec::new(), Vec::new());
        for (node, eligibility, pods) in self.set_index.nodes() {
            match Pair::of(pods) {
                None => surging += 1,
                Some(Pair { old: None, .. }) => {}
                Some(Pair { new: None, old: Some(old) }) => {
                    if eligibility != Eligibility::ShouldRun {
                        // No new pod may run there.
                    } else if self.is_available(old) {
                        candidates.push(node.clone());
                    } else {
                        missing.push(node.clone());
                    }
                }
                Some(Pair { new: Some(new), old: Some(old) }) => {
                    if self.is_available(new) {
                        surplus.push(&old.key);
                    } else {
                        surging += 1;
                    }
                }
            }
        }
        missing.extend(candidates.into_iter().take(max_surge.saturating_sub(surging)));
        let surplus = self.read(surplus);
        self.sync(surplus, missing).await
    }
}

/// `maxSurge` and `maxUnavailable` as counts of `wanted` nodes.
pub(super) fn bounds(set: &DaemonSet, wanted: usize) -> (usize, usize) {
    let wanted = i32::try_from(wanted).unwrap_or(i32::MAX);
    let rolling = set.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    let surge = scaled(rolling.and_then(|rolling| rolling.max_surge.as_ref()), wanted, Round::Up);
    let unavailable = scaled(rolling.and_then(|rolling| rolling.max_unavailable.as_ref()), wanted, Round::Up);
    let unavailable = if surge == 0 { unavailable.max(1) } else { unavailable };
    (usize::try_from(surge).unwrap_or(0), usize::try_from(unavailable).unwrap_or(0))
}
