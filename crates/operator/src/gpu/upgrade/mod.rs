//! The controller of driver upgrades: one pass over all nodes decides, and then every node gets its one patch and what
//! follows from it.
//!
//! [`scene`] is what a pass sees and decides, [`act`] does it, [`crew`] knows the pods of nodes that are being emptied,
//! [`board`] is where custom resources read how far their upgrade is. All that must not be forgotten is on the nodes.

mod act;
mod board;
mod crew;
mod scene;

use std::sync::Arc;
use std::time::Duration;

use capstan_operands::gpu::upgrade;
use capstan_plan::{Gvk, Live};
use capstan_runtime::kinds::{DRIVERS, NODE_PODS, VALIDATORS};
use capstan_runtime::{Action, Change, Controller, Error, Key};
use k8s_openapi::api::core::v1::Node;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::crew::Crew;
use super::{CROWD, Cx};

pub(super) use board::Board;

/// The only key: all nodes share their budgets.
fn everything() -> Key {
    Key::new("", "drivers")
}

/// Runs the controller until `stop`.
pub(super) fn start(tasks: &mut JoinSet<()>, cx: &Cx, stop: &CancellationToken) {
    let controller = Controller::bare("driver-upgrade", &cx.runtime);
    let (queue, cache) = (controller.queue(), cx.runtime.cache.clone());
    queue.add(everything());
    cx.runtime.cache.subscribe(move |change| {
        if cache.is_synced() && concerns(change) {
            // Passes over many nodes are further apart.
            let crowds = 1 + cache.count(&Gvk::of::<Node>()) / 1000;
            queue.add_after(everything(), CROWD * u32::try_from(crowds).unwrap_or(1));
        }
    });
    let (cx, crew) = (cx.clone(), Arc::new(Crew::default()));
    tasks.spawn(controller.run(stop.clone(), move |_| reconcile(cx.clone(), crew.clone())));
}

/// One pass.
async fn reconcile(cx: Cx, crew: Arc<Crew>) -> Result<Action, Error> {
    let now = cx.runtime.clock.now();
    let decided = scene::decide(&cx, &crew, now);
    crew.follow(&cx.runtime, &decided.to_empty);
    let wake = decided.wake.map(|wake| Duration::try_from(wake.duration_since(now)).unwrap_or_default());
    cx.settings.metrics.upgraded(decided.counts);
    cx.board.publish(decided.reports);
    let refused = act::act(&cx, &crew, decided.steps, decided.notes, decided.releases).await?;
    // What was refused is told at once.
    let again = wake.into_iter().chain(refused.then_some(CROWD)).min();
    Ok(again.map_or(Action::Wait, |again| Action::Again(again.max(CROWD))))
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
    match change.kind.kind {
        "ControllerRevision" | "NodeMaintenance" => true,
        "DaemonSet" => upgrade::is_driver(change.last()) && meta(),
        "ClusterPolicy" | "GPUCluster" | "NVIDIADriver" => meta(),
        "Node" => {
            let ready = |live: Option<&Live>| live.is_some_and(|live| upgrade::NodeView::of(&**live).ready);
            ready(change.old) != ready(change.new)
                || differs(|live| &live["spec"]["unschedulable"])
                || differs(|live| &live["metadata"]["annotations"])
                || differs(|live| &live["metadata"]["labels"])
        }
        _ => false,
    }
}
