//! The controller of driver upgrades: one pass over all nodes decides, and then every node gets its one patch and what
//! follows from it.
//!
//! [`scene`] is what a pass sees and decides, of nodes that [`roll`] keeps up to date, [`act`] does it, [`crew`] knows the pods of nodes that are being emptied,
//! [`board`] is where custom resources read how far their upgrade is. All that must not be forgotten is on the nodes.

mod act;
mod board;
mod crew;
mod roll;
mod scene;

use std::sync::{Arc, Mutex, PoisonError};
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
use self::roll::{News, Roll};
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
    let news = Arc::new(News::default());
    let told = news.clone();
    cx.runtime.cache.subscribe(move |change| {
        told.note(change);
        if cache.is_synced() && concerns(change) {
            // Passes over many nodes are further apart: 0.5 s with 500 nodes, 2.75 s with 5,000, where each takes minutes.
            let crowds = 1 + cache.count(&Gvk::of::<Node>()) / 500;
            queue.add_after(everything(), CROWD * u32::try_from(crowds).unwrap_or(1));
        }
    });
    let (cx, known) = (cx.clone(), Arc::new(Known { news, ..Known::default() }));
    tasks.spawn(controller.run(stop.clone(), move |_| reconcile(cx.clone(), known.clone())));
}

/// What is kept between two passes, to save work. Whoever begins without it comes to the same.
#[derive(Default)]
struct Known {
    crew: Crew,
    news: Arc<News>,
    roll: Mutex<Roll>,
}

/// One pass.
async fn reconcile(cx: Cx, known: Arc<Known>) -> Result<Action, Error> {
    let (now, crew) = (cx.runtime.clock.now(), &known.crew);
    let decided = {
        let mut roll = known.roll.lock().unwrap_or_else(PoisonError::into_inner);
        scene::decide(&cx, crew, &mut roll, &known.news, now)
    };
    crew.follow(&cx.runtime, &decided.to_empty);
    let wake = decided.wake.map(|wake| Duration::try_from(wake.duration_since(now)).unwrap_or_default());
    cx.settings.metrics.upgraded(decided.counts);
    cx.board.publish(decided.reports);
    let refused = act::act(&cx, crew, decided.steps, decided.notes, decided.releases).await?;
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
