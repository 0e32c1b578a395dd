//! The driver upgrade controller: one pass over all nodes decides, and then every node gets one patch and its follow-up
//! actions.
//!
//! [`pass`] decides on nodes that [`nodes`] keeps up to date, [`act`] executes, [`draining`] watches the pods of nodes
//! that are being drained, [`reports`] publishes progress to the custom resources. All persistent state is on the
//! nodes.

mod act;
mod draining;
mod nodes;
mod pass;
mod reports;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use capstan_api::foreign::NodeMaintenance;
use capstan_api::gpu::{ClusterPolicy, GpuCluster, NvidiaDriver};
use capstan_operands::gpu::upgrade;
use capstan_plan::{Gvk, Live};
use capstan_runtime::kinds::{DRIVERS, NODE_PODS, VALIDATORS};
use capstan_runtime::{Action, Change, Controller, Error, Key, Requeue};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::Node;
use serde_json::Value;

use self::draining::DrainingPods;
use self::nodes::{ChangedNodes, KnownNodes};
use super::{Cx, NODE_DEBOUNCE};
use crate::product::Launch;

pub(super) use reports::UpgradeReports;

/// The only key: all nodes share the budget.
fn upgrade_key() -> Key {
    Key::new("", "drivers")
}

/// Starts the controller.
pub(super) fn start(launch: &mut Launch<'_>, cx: &Arc<Cx>) {
    let (cx, cache) = (cx.clone(), cx.runtime.cache.clone());
    let known = Arc::new(Known::default());
    let changed = known.changed.clone();
    let affected = move |change: &Change<'_>| {
        changed.record(change);
        if !cache.is_synced() || !affects_upgrades(change) {
            return Vec::new();
        }
        // The debounce grows with the fleet: 0.5 s with 500 nodes, 2.75 s with 5,000, where an upgrade takes minutes
        // per node.
        let times = 1 + cache.count(&Gvk::of::<Node>()) / 500;
        vec![Requeue::after(upgrade_key(), NODE_DEBOUNCE * u32::try_from(times).unwrap_or(1))]
    };
    let controller = Controller::bare("driver-upgrade", &cx.runtime).watching(affected);
    controller.queue().add(upgrade_key());
    launch.run(controller, move |_| reconcile(cx.clone(), known.clone()));
}

/// State between two passes, to save work; it can be rebuilt from the cache.
#[derive(Default)]
struct Known {
    draining: DrainingPods,
    changed: Arc<ChangedNodes>,
    nodes: Mutex<KnownNodes>,
}

/// One pass.
async fn reconcile(cx: Arc<Cx>, known: Arc<Known>) -> Result<Action, Error> {
    let (now, draining) = (cx.runtime.clock.now(), &known.draining);
    let decided = {
        let mut nodes = known.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        pass::decide(&cx, draining, &mut nodes, &known.changed, now)
    };
    draining.watch(&cx.runtime, &decided.to_drain);
    let requeue_after = decided.requeue_at.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
    cx.settings.metrics.record_upgrades(decided.counts);
    cx.reports.publish(decided.reports);
    let refused = act::act(&cx, draining, decided.steps, decided.rejections, decided.releases).await?;
    // A rejected eviction is reported at once.
    let again = requeue_after.into_iter().chain(refused.then_some(NODE_DEBOUNCE)).min();
    Ok(again.map_or(Action::AwaitChange, |again| Action::Requeue(again.max(NODE_DEBOUNCE))))
}

/// Whether a change may affect upgrades.
fn affects_upgrades(change: &Change<'_>) -> bool {
    if [DRIVERS, VALIDATORS, NODE_PODS.slice].contains(&change.kind.slice) {
        return true;
    }
    fn read(live: Option<&Live>, field: fn(&Value) -> &Value) -> Option<&Value> {
        live.map(|live| field(live))
    }
    let differs = |field: fn(&Value) -> &Value| read(change.old, field) != read(change.new, field);
    let meta = || {
        differs(|live| &live["metadata"]["generation"])
            || differs(|live| &live["metadata"]["annotations"])
            || differs(|live| &live["metadata"]["deletionTimestamp"])
    };
    if change.is::<ControllerRevision>() || change.is::<NodeMaintenance>() {
        return true;
    }
    if change.is::<DaemonSet>() {
        return upgrade::is_driver(change.last()) && meta();
    }
    if change.is::<Node>() {
        let ready = |live: Option<&Live>| live.is_some_and(|live| upgrade::NodeView::of(&**live).ready);
        return ready(change.old) != ready(change.new)
            || differs(|live| &live["spec"]["unschedulable"])
            || differs(|live| &live["metadata"]["annotations"])
            || differs(|live| &live["metadata"]["labels"]);
    }
    (change.is::<ClusterPolicy>() || change.is::<GpuCluster>() || change.is::<NvidiaDriver>()) && meta()
}
