//! The controller of driver upgrades: one pass over all nodes decides, and then every node gets its one patch and what
//! follows from it.
//!
//! [`pass`] is what a pass sees and decides, of nodes that [`nodes`] keeps up to date, [`act`] does it, [`draining`] knows
//! the pods of nodes that are being emptied, [`reports`] is where custom resources read how far their upgrade is. All that
//! must not be forgotten is on the nodes.

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

/// The only key: all nodes share their budgets.
fn everything() -> Key {
    Key::new("", "drivers")
}

/// Starts the controller.
pub(super) fn start(launch: &mut Launch<'_>, cx: &Arc<Cx>) {
    let (cx, cache) = (cx.clone(), cx.runtime.cache.clone());
    let known = Arc::new(Known::default());
    let changed = known.changed.clone();
    let affected = move |change: &Change<'_>| {
        changed.note(change);
        if !cache.is_synced() || !concerns(change) {
            return Vec::new();
        }
        // Passes over many nodes are further apart: 0.5 s with 500 nodes, 2.75 s with 5,000, where each takes minutes.
        let times = 1 + cache.count(&Gvk::of::<Node>()) / 500;
        vec![Requeue::after(everything(), NODE_DEBOUNCE * u32::try_from(times).unwrap_or(1))]
    };
    let controller = Controller::bare("driver-upgrade", &cx.runtime).watching(affected);
    controller.queue().add(everything());
    launch.run(controller, move |_| reconcile(cx.clone(), known.clone()));
}

/// What is kept between two passes, to save work. Whoever begins without it comes to the same.
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
    draining.follow(&cx.runtime, &decided.to_empty);
    let wake = decided.wake.map(|wake| Duration::try_from(wake.duration_since(now)).unwrap_or_default());
    cx.settings.metrics.upgraded(decided.counts);
    cx.reports.publish(decided.reports);
    let refused = act::act(&cx, draining, decided.steps, decided.notes, decided.releases).await?;
    // What was refused is told at once.
    let again = wake.into_iter().chain(refused.then_some(NODE_DEBOUNCE)).min();
    Ok(again.map_or(Action::Wait, |again| Action::Again(again.max(NODE_DEBOUNCE))))
}

/// Whether a change may matter for upgrades.
fn concerns(change: &Change<'_>) -> bool {
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
