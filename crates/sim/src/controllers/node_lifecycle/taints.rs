//! Taints derived from node conditions.

use std::sync::Arc;
use std::time::Duration;

use capstan_apiserver::error::Result;
use k8s_openapi::api::core::v1::{Node, Taint};

use super::super::common::Controller;
use super::health::{HeartbeatTracker, condition, ready_status};
use super::zones::EvictionSlot;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
const NO_SCHEDULE: &str = "NoSchedule";
const NO_EXECUTE: &str = "NoExecute";
/// Seconds between marking a node unreachable and the eviction of its pods.
const EVICTION_DELAY_SECONDS: i64 = 5;

/// Condition type, the status that is unhealthy, and the taint key for it.
const RULES: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
];

/// Sets the taints of a node. Returns the requeue delay.
pub(super) async fn sync(this: &Controller, tracker: &HeartbeatTracker, node: Arc<Node>) -> Result<Option<Duration>> {
    let old = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let (mut taints, mut wait) = (old.clone(), None);
    let bad = no_schedule(&node);
    let ours = |taint: &Taint| {
        taint.effect == NO_SCHEDULE && (taint.key == UNSCHEDULABLE || RULES.iter().any(|(_, _, key)| *key == taint.key))
    };
    taints.retain(|taint| !ours(taint) || bad.contains(&taint.key.as_str()));
    for key in bad {
        add(this, &mut taints, key, NO_SCHEDULE);
    }
    let unready = match ready_status(&node) {
        "False" => Some(NOT_READY),
        "Unknown" => Some(UNREACHABLE),
        _ => None,
    };
    let holds = |taint: &Taint| taint.effect == NO_EXECUTE && matches!(taint.key.as_str(), NOT_READY | UNREACHABLE);
    let tainted = taints.iter().any(holds);
    taints.retain(|taint| !holds(taint) || Some(taint.key.as_str()) == unready);
    if let Some(key) = unready {
        match eviction_slot(this, tracker, &node, tainted) {
            EvictionSlot::Now => add(this, &mut taints, key, NO_EXECUTE),
            EvictionSlot::After(left) => wait = Some(left),
            EvictionSlot::Never => taints.retain(|taint| !holds(taint)),
        }
    }
    if taints != old {
        this.writer.set_taints(&node, &taints).await?;
    }
    Ok(wait)
}

fn eviction_slot(this: &Controller, tracker: &HeartbeatTracker, node: &Node, tainted: bool) -> EvictionSlot {
    if tainted {
        return if tracker.zones.all_unreachable() { EvictionSlot::Never } else { EvictionSlot::Now };
    }
    // When many nodes become unreachable at once, all are marked before the first is evicted.
    let since = condition(node, "Ready").and_then(|ready| ready.last_transition_time.as_ref());
    let since = since.map_or(0, |time| time.0.as_second());
    let left = since + EVICTION_DELAY_SECONDS - this.now().0.as_second();
    if left > 0 {
        return EvictionSlot::After(Duration::from_secs(u64::try_from(left).unwrap_or(0)));
    }
    tracker.zones.eviction_slot(node)
}

fn no_schedule(node: &Node) -> Vec<&'static str> {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let has = |kind: &str, status: &str| conditions.iter().any(|one| one.type_ == kind && one.status == status);
    let mut keys: Vec<_> = RULES.iter().filter(|(kind, status, _)| has(kind, status)).map(|(_, _, key)| *key).collect();
    if node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true) {
        keys.push(UNSCHEDULABLE);
    }
    keys
}

fn add(this: &Controller, taints: &mut Vec<Taint>, key: &str, effect: &str) {
    if taints.iter().any(|taint| taint.key == key && taint.effect == effect) {
        return;
    }
    let time_added = Some(this.now());
    taints.push(Taint { key: key.to_owned(), effect: effect.to_owned(), time_added, value: None });
}
