//! Zones: if many nodes become unreachable at once, the network is the likely cause, and eviction slows down or stops.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use tokio::time::Instant;

use super::health::ready_status;

/// Interval between two evicted nodes in a zone.
const EVICTION_INTERVAL: Duration = Duration::from_secs(10);
/// The same in a large zone where most nodes are unreachable.
const SLOW_EVICTION_INTERVAL: Duration = Duration::from_secs(100);
/// A zone with more nodes is large.
const LARGE_ZONE_SIZE: usize = 50;

/// State of a zone.
#[derive(Clone, Copy, Debug, Default)]
struct Zone {
    ready: usize,
    unreachable: usize,
    /// When the next node may be evicted.
    next: Option<Instant>,
}

impl Zone {
    /// Interval between two evicted nodes; `None` if none may be evicted.
    fn eviction_interval(&self) -> Option<Duration> {
        let all = self.ready + self.unreachable;
        let most = self.unreachable > 2 && self.unreachable * 100 >= all * 55 && self.ready > 0;
        match most {
            false => Some(EVICTION_INTERVAL),
            true if all > LARGE_ZONE_SIZE => Some(SLOW_EVICTION_INTERVAL),
            true => None,
        }
    }
}

/// When a node may be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EvictionSlot {
    /// Now.
    Now,
    /// After this delay.
    After(Duration),
    /// Not in the current state of the zone.
    Never,
}

/// All zones.
#[derive(Debug, Default)]
pub(super) struct Zones(Mutex<HashMap<String, Zone>>);

fn name(node: &Node) -> String {
    let label = |key: &str| node.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map_or("", String::as_str);
    format!("{}:\0:{}", label("topology.kubernetes.io/region"), label("topology.kubernetes.io/zone"))
}

impl Zones {
    /// Updates the counts for a created, changed or deleted node. Returns whether the eviction rate of other nodes
    /// changed.
    pub(super) fn count(&self, old: Option<&Node>, new: Option<&Node>) -> bool {
        let mut zones = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let eviction_intervals = |zones: &HashMap<String, Zone>| {
            let touched =
                [old, new].map(|node| node.and_then(|node| zones.get(&name(node))).map(Zone::eviction_interval));
            (zones.values().all(|zone| zone.ready == 0), touched)
        };
        let before = eviction_intervals(&zones);
        for (node, up) in [(old, false), (new, true)] {
            let Some(node) = node else { continue };
            let zone = zones.entry(name(node)).or_default();
            let count = if ready_status(node) == "True" { &mut zone.ready } else { &mut zone.unreachable };
            *count = if up { *count + 1 } else { count.saturating_sub(1) };
        }
        zones.retain(|_, zone| zone.ready + zone.unreachable > 0);
        before != eviction_intervals(&zones)
    }

    /// Whether no node at all sends heartbeats: then the control plane is cut off.
    pub(super) fn all_unreachable(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().all(|zone| zone.ready == 0)
    }

    /// Whether an unreachable node may be evicted now. If so, the next one in its zone has to wait.
    pub(super) fn eviction_slot(&self, node: &Node) -> EvictionSlot {
        let mut zones = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if zones.values().all(|zone| zone.ready == 0) {
            return EvictionSlot::Never;
        }
        let Some(zone) = zones.get_mut(&name(node)) else { return EvictionSlot::Now };
        let Some(pace) = zone.eviction_interval() else { return EvictionSlot::Never };
        let now = Instant::now();
        match zone.next.filter(|next| *next > now) {
            Some(next) => EvictionSlot::After(next - now),
            None => {
                zone.next = Some(now + pace);
                EvictionSlot::Now
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(ready: &str) -> Node {
        let value = json!({"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready", "status": ready}]}});
        serde_json::from_value(value).unwrap()
    }

    fn zones(ready: usize, unreachable: usize) -> Zones {
        let zones = Zones::default();
        for (count, status) in [(ready, "True"), (unreachable, "Unknown")] {
            (0..count).for_each(|_| {
                zones.count(None, Some(&node(status)));
            });
        }
        zones
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_are_given_up_one_after_the_other() {
        let zones = zones(10, 3);
        assert_eq!(zones.eviction_slot(&node("Unknown")), EvictionSlot::Now);
        assert_eq!(zones.eviction_slot(&node("Unknown")), EvictionSlot::After(EVICTION_INTERVAL));
        tokio::time::advance(EVICTION_INTERVAL).await;
        assert_eq!(zones.eviction_slot(&node("Unknown")), EvictionSlot::Now);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_given_up_when_most_are_silent() {
        assert_eq!(zones(0, 3).eviction_slot(&node("Unknown")), EvictionSlot::Never);
        assert_eq!(zones(2, 4).eviction_slot(&node("Unknown")), EvictionSlot::Never);
        let large = zones(20, 60);
        assert_eq!(large.eviction_slot(&node("Unknown")), EvictionSlot::Now);
        assert_eq!(large.eviction_slot(&node("Unknown")), EvictionSlot::After(SLOW_EVICTION_INTERVAL));
    }
}
