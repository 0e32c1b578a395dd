//! Driver upgrades, node by node, as a pure transition function over a journal in the nodes' metadata.
//!
//! [`step`] reads the state of every node and returns the next actions. Rules: the journal is written before any
//! action, so that a crash between any two writes loses and repeats nothing; decisions are idempotent; a node whose
//! loaded driver is up to date is never touched; no node waits without a reason and a deadline.
//!
//! A [`Step`] must be executed in order: the patch, and the rest only if that succeeded.

mod driver_revisions;
mod evict;
mod failure;
mod governing_policies;
mod journal;
pub mod keys;
mod node;
mod pods;
mod report;
mod requestor;
mod selector;
mod settings;
mod slots;
mod summary;
mod view;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use capstan_plan::Note;
use jiff::Timestamp;

pub use driver_revisions::{DriverRevisions, REJECTED, RevisionRejection, hold_back, is_driver, kept_revisions};
pub use evict::POLL_SECONDS;
pub use failure::Failure;
pub use governing_policies::GoverningPolicies;
pub use journal::{State, abandon};
pub use pods::{PodController, PodView, claims_in_use, uses_gpu};
pub use report::{CONDITION, Report, is_under_way, show};
pub use requestor::{Maintenance, MaintenanceAction, Requestor, release};
pub use selector::Selector;
pub use settings::{Amount, Canary, Drain, Eviction, PREFIX, Settings, Wait, drain_selector};
pub use slots::Fleet;
pub use summary::{Counts, Example, Summary, Unfinished};
pub use view::{DriverPod, Health, NodeView, PodName, Target, Validator, digest};

use self::node::{Obstacle, Work, advance, begin};
use self::slots::Gate;
use super::nodes::{Node, NodePatch, OWNER};

/// Event reason of upgrades.
pub const EVENT: &str = "GPUDriverUpgrade";

/// The actions on one node.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The node.
    pub node: String,
    /// First: the journal, and cordon or uncordon, in one patch.
    pub patch: NodePatch,
    /// resourceVersion of the node that was decided on, as precondition of the patch.
    pub resource_version: String,
    /// Then: pods to evict.
    pub evict: Vec<Pod>,
    /// Then: the driver pod to delete.
    pub delete_driver: Option<Pod>,
    /// Then: the NodeMaintenance action.
    pub maintenance: Option<MaintenanceAction>,
    /// Events about the node.
    pub events: Vec<Note>,
}

/// A pod to act on, with its UID as precondition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

impl From<PodName<'_>> for Pod {
    fn from(pod: PodName<'_>) -> Self {
        Self { namespace: pod.namespace.into(), name: pod.name.into(), uid: pod.uid.into() }
    }
}

/// The result of [`step`].
#[derive(Clone, Debug, PartialEq)]
pub struct Pass {
    /// The steps, at most one per node.
    pub steps: Vec<Step>,
    /// When to run the next pass without a change.
    pub wake: Option<Timestamp>,
    /// Counts for metrics.
    pub counts: Counts,
    /// The summary for the status.
    pub summary: Summary,
    /// Why no further node may start, if so.
    pub halted: Option<String>,
    /// What the canaries still have to prove, while others wait for them.
    pub canary: Option<String>,
    /// Revision to roll back to, if rollback is enabled and the target failed too often. The caller must record the
    /// rejection, or the next pass upgrades again.
    pub roll_back_to: Option<String>,
}

/// The NVIDIADriver that governs a node: the next owner, if it moves.
pub fn bucket<'a>(node: &Node<'a>) -> Option<&'a str> {
    let next = node.annotations.get(keys::NEXT_OWNER).filter(|owner| !owner.is_empty());
    next.or_else(|| node.labels.get(OWNER)).filter(|owner| !owner.is_empty())
}

/// The next actions on the nodes of one governing policy: these, and a number of [idle](NodeView::is_idle) ones.
pub fn step(settings: &Settings, views: &[NodeView<'_>], resting: usize, now: Timestamp) -> Pass {
    let now = now.as_second();
    let mut works: Vec<_> = views.iter().map(|view| Work::new(view, settings, now)).collect();
    let fleet = Fleet::count(settings, &works, resting);
    let total = works.len() + resting;
    let halted = slots::halted(settings, &works, total);
    let roll_back_to = slots::last_good(settings, &works, total);
    let gate = slots::canaries(settings, &works, total, now);
    let expected = gate.why().map(str::to_owned);
    let free = fleet.slots(settings.max_parallel, settings.max_unavailable);

    let mut turns = Vec::new();
    for (index, work) in works.iter_mut().enumerate() {
        if work.old.state == State::Required {
            if let Some(turn) = consider(work) {
                turns.push((turn, index));
            }
        } else {
            advance(work);
        }
    }
    turns.sort_unstable();
    let mut queue = Queue { settings, fleet, free, gate, halted: halted.as_deref(), full: None };
    for (_, index) in turns {
        queue.serve(&mut works[index]);
    }
    dismiss_canaries(&mut works);

    let wakes = works.iter().filter_map(|work| work.waits.as_ref()?.1).filter(|until| *until >= now);
    // Deadlines expire once they have passed, not when they are reached.
    let wake = wakes.min().and_then(|until| Timestamp::from_second(until + 1).ok());
    let counts = Counts::of(&works, resting, &fleet, free);
    let summary = Summary::of(&works, resting);
    let canary = expected.filter(|_| summary.states.contains_key(&State::Required));
    Pass { steps: works.into_iter().filter_map(finish).collect(), wake, counts, summary, halted, canary, roll_back_to }
}

/// Starts a waiting node if it gets a slot.
fn consider<'a>(work: &mut Work<'a>) -> Option<(bool, i64, &'a str)> {
    if work.is_up_to_date() {
        // The target was reverted to the loaded driver, or the pod was replaced manually.
        work.journal.requested = false;
        let done = !work.journal.cordoned_by_us();
        work.journal.enter(if done { State::Done } else { State::Validation }, work.now);
        advance(work);
        return None;
    }
    let obstacle = if work.skipped() {
        format!("is skipped: it has the label {}=true", keys::SKIP)
    } else if work.journal.next_owner.is_none() && work.view.driver.as_ref().is_none_or(|driver| driver.terminating) {
        "waits for its driver pod, which comes or goes".into()
    } else if !work.view.ready {
        "waits until the node is ready".into()
    } else {
        return Some(slots::turn(work));
    };
    work.waits = Some((obstacle.into(), None));
    None
}

/// Admits nodes, one after the other.
struct Queue<'a> {
    settings: &'a Settings,
    fleet: Fleet,
    free: usize,
    gate: Gate,
    halted: Option<&'a str>,
    /// Fleet counts when the last node got no slot, and its reason.
    full: Option<(Fleet, Arc<str>)>,
}

impl Queue<'_> {
    fn serve(&mut self, work: &mut Work<'_>) {
        match self.admit(work) {
            Ok(canary) => begin(work, canary),
            Err(wait) => work.waits = Some(wait),
        }
    }

    /// Whether the node may start, and if so, whether as a canary.
    fn admit(&mut self, work: &Work<'_>) -> Result<bool, Obstacle> {
        if let Some(why) = &self.settings.hold {
            return Err((format!("held back: {why}").into(), None));
        }
        // A retry of an uncordoned node is part of what was started.
        let again = work.old.attempts > 0 || work.old.cordoned_by_us();
        if let Some(why) = self.halted.filter(|_| !again) {
            return Err((why.into(), None));
        }
        let canary = match &self.gate {
            _ if again || slots::is_canary(work) => work.old.canary.is_some(),
            Gate::Open => false,
            Gate::Canaries(0, why) => return Err((why.as_str().into(), None)),
            Gate::Canaries(..) => true,
            Gate::Closed(why, until) => return Err((why.as_str().into(), *until)),
        };
        self.take_slot(work)?;
        if let Gate::Canaries(left, _) = &mut self.gate {
            *left = left.saturating_sub(1);
        }
        Ok(canary)
    }

    /// A node that others cordoned needs no slot; one that we cordoned needs one of `maxParallel`; the rest need one of
    /// `maxUnavailable`, too. All take one.
    fn take_slot(&mut self, work: &Work<'_>) -> Result<(), Obstacle> {
        if self.settings.requestor.is_some() {
            return Ok(());
        }
        let most = self.settings.max_parallel;
        let parallel = if most == 0 { usize::MAX } else { most.saturating_sub(self.fleet.in_progress) };
        let full = match (work.old.unschedulable, work.old.cordoned_by_us()) {
            (true, false) => false,
            (true, true) => parallel == 0,
            (false, _) => parallel == 0 || self.free == 0,
        };
        if full {
            let known = self.full.take().filter(|(fleet, _)| *fleet == self.fleet);
            let (_, why) = self.full.insert(known.unwrap_or_else(|| (self.fleet, self.no_slot().into())));
            return Err((why.clone(), None));
        }
        self.fleet.in_progress += 1;
        if !work.old.unschedulable {
            self.free -= 1;
            self.fleet.unavailable += 1;
        }
        Ok(())
    }

    fn no_slot(&self) -> String {
        let Fleet { total, in_progress, unavailable, .. } = self.fleet;
        let most = self.settings.max_unavailable.map_or(total, |amount| amount.of(total));
        if most == 0 {
            return "waits for ever: upgradePolicy.maxUnavailable lets no node be out of use; raise it".into();
        }
        let parallel = match self.settings.max_parallel {
            0 => "any number".into(),
            most => most.to_string(),
        };
        format!("waits for its turn: {in_progress} under way of {parallel}, {unavailable} out of use of {most}")
    }
}

/// Once no node waits or is in progress, canaries become normal nodes.
fn dismiss_canaries(works: &mut [Work<'_>]) {
    let busy = |work: &Work<'_>| !matches!(work.journal.state, State::Unset | State::Done);
    if works.iter().any(busy) {
        return;
    }
    for work in works.iter_mut().filter(|work| work.journal.canary.is_some()) {
        (work.journal.canary, work.journal.since) = (None, None);
    }
}

fn finish(work: Work<'_>) -> Option<Step> {
    let step = Step {
        node: work.view.node.name.into(),
        patch: work.journal.changes(&work.old),
        resource_version: work.view.resource_version.into(),
        evict: work.evict.into_iter().map(Pod::from).collect(),
        delete_driver: work.delete_driver.map(Pod::from),
        maintenance: work.maintenance,
        events: work.events,
    };
    let idle =
        step.patch.is_empty() && step.evict.is_empty() && step.delete_driver.is_none() && step.maintenance.is_none();
    (!idle).then_some(step)
}
