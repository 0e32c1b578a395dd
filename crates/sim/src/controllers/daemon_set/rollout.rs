//! From one template to the next: old pods go first, or with a surge new ones come first.

use std::sync::Arc;

use capstan_apiserver::error::Result;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;

use super::super::common::{Round, name_of, scaled};
use super::super::pods;
use super::Step;
use super::place::Place;

/// The pods on a node that are not being deleted: at most one old and one new.
struct Pair<'a> {
    new: Option<&'a Arc<Pod>>,
    old: Option<&'a Arc<Pod>>,
}

impl Step<'_> {
    /// Whether pods are replaced when the template changes.
    pub(super) fn rolls(&self) -> bool {
        let strategy = self.set.spec.update_strategy.as_ref();
        strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("OnDelete")
    }

    /// Whether new pods come before old ones go.
    pub(super) fn surges(&self) -> bool {
        self.rolls() && self.bounds.0 > 0
    }

    /// Replaces as many old pods as may be missing.
    pub(super) async fn roll(&mut self) -> Result<()> {
        let (surge, unavailable) = self.bounds;
        if surge == 0 { self.roll_down(unavailable).await } else { self.roll_up(surge).await }
    }

    async fn roll_down(&mut self, max_unavailable: usize) -> Result<()> {
        let (mut unavailable, mut replaced, mut candidates) = (0, Vec::new(), Vec::new());
        for pods in self.pods.values() {
            match self.pair(pods) {
                Some(Pair { new: None, old: Some(old) }) if self.is_available(old) => candidates.push(old.clone()),
                Some(Pair { new: None, old: Some(old) }) => {
                    // It does no work, so replacing it costs nothing.
                    replaced.push(old.clone());
                    unavailable += 1;
                }
                Some(Pair { new: Some(new), old: None }) if self.is_available(new) => {}
                _ => unavailable += 1,
            }
        }
        let room = max_unavailable.saturating_sub(unavailable);
        replaced.extend(candidates.into_iter().take(room));
        self.sync(replaced, Vec::new()).await
    }

    async fn roll_up(&mut self, max_surge: usize) -> Result<()> {
        let (mut surging, mut surplus, mut missing, mut candidates) = (0, Vec::new(), Vec::new(), Vec::new());
        for (node, place) in &self.nodes {
            let name = name_of(&**node);
            let Some(pods) = self.pods.get(name) else { continue };
            match self.pair(pods) {
                None => surging += 1,
                Some(Pair { old: None, .. }) => {}
                Some(Pair { new: None, old: Some(old) }) => {
                    if *place != Place::Wanted {
                        // No new pod belongs there.
                    } else if self.is_available(old) {
                        candidates.push(name.to_owned());
                    } else {
                        missing.push(name.to_owned());
                    }
                }
                Some(Pair { new: Some(new), old: Some(old) }) => {
                    if self.is_available(new) {
                        surplus.push(old.clone());
                    } else {
                        surging += 1;
                    }
                }
            }
        }
        missing.extend(candidates.into_iter().take(max_surge.saturating_sub(surging)));
        self.sync(surplus, missing).await
    }

    /// The old and the new pod on a node, or nothing if there are several of one sort.
    fn pair<'p>(&self, pods: &'p [Arc<Pod>]) -> Option<Pair<'p>> {
        let mut pair = Pair { new: None, old: None };
        for pod in pods.iter().filter(|pod| !pods::is_deleting(pod)) {
            let slot = if self.is_updated(pod) { &mut pair.new } else { &mut pair.old };
            if slot.replace(pod).is_some() {
                return None;
            }
        }
        Some(pair)
    }
}

/// Most nodes with a pod more, and most nodes without a pod, of `wanted` nodes.
pub(super) fn bounds(set: &DaemonSet, wanted: usize) -> (usize, usize) {
    let wanted = i32::try_from(wanted).unwrap_or(i32::MAX);
    let rolling = set.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    let surge = scaled(rolling.and_then(|rolling| rolling.max_surge.as_ref()), wanted, Round::Up);
    let unavailable = scaled(rolling.and_then(|rolling| rolling.max_unavailable.as_ref()), wanted, Round::Up);
    let unavailable = if surge == 0 { unavailable.max(1) } else { unavailable };
    (usize::try_from(surge).unwrap_or(0), usize::try_from(unavailable).unwrap_or(0))
}
