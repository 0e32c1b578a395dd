//! Driver upgrades, node by node, as a pure transition function over a journal in the nodes' metadata.
//!
//! [`step`] reads where every node is and says what to do next. Rules: the journal is written before anything is done,
//! so that a crash between any two writes loses nothing and repeats nothing; what is decided twice is the same twice; a
//! node whose loaded driver is the wanted one is never touched; no node waits without a reason and an end.
//!
//! Who acts must do what a [`Step`] says in its order: the patch, and only if that went through the rest.

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

pub use driver_revisions::{DriverRevisions, Note as RevisionNote, REJECTED, hold_back, is_driver, kept_revisions};
pub use evict::POLL_SECONDS;
pub use failure::Failure;
pub use governing_policies::GoverningPolicies;
pub use journal::{State, abandon};
pub use pods::{Keeper, PodView, claims_in_use, uses_gpu};
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

/// Reason of all events of upgrades.
pub const EVENT: &str = "GPUDriverUpgrade";

/// What to do on one node.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Which.
    pub node: String,
    /// First: the journal, and cordon or uncordon, in one write.
    pub patch: NodePatch,
    /// Version of the node that this was decided on: the patch must fail if there is a newer one.
    pub resource_version: String,
    /// Then: pods to evict.
    pub evict: Vec<Pod>,
    /// Then: the driver pod to delete.
    pub delete_driver: Option<Pod>,
    /// Then: what to ask the maintenance operator for.
    pub maintenance: Option<MaintenanceAction>,
    /// What to tell the user about the node.
    pub notes: Vec<Note>,
}

/// A pod to act on. The request has to name the UID.
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

/// What [`step`] decides.
#[derive(Clone, Debug, PartialEq)]
pub struct Pass {
    /// What to do, at most one per node.
    pub steps: Vec<Step>,
    /// When to look again though nothing changed.
    pub wake: Option<Timestamp>,
    /// Numbers for metrics.
    pub counts: Counts,
    /// What to show.
    pub summary: Summary,
    /// Why no further node begins, if none does.
    pub halted: Option<String>,
    /// What is expected of the nodes that go first, while others wait for them.
    pub canary: Option<String>,
    /// Revision of the DaemonSet to go back to, if the user wants that and the wanted driver has failed too often. Who
    /// goes back has to remember which one failed, or the next pass wants it again.
    pub roll_back_to: Option<String>,
}

/// The NVIDIADriver whose policy rules a node: the one that it moves to, if it does.
pub fn bucket<'a>(node: &Node<'a>) -> Option<&'a str> {
    let next = node.annotations.get(keys::NEXT_OWNER).filter(|owner| !owner.is_empty());
    next.or_else(|| node.labels.get(OWNER)).filter(|owner| !owner.is_empty())
}

/// What to do next on the nodes that one policy rules: these, and so many others that [rest](NodeView::rests).
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
    // Deadlines are over once they have passed, not when they are reached.
    let wake = wakes.min().and_then(|until| Timestamp::from_second(until + 1).ok());
    let counts = Counts::of(&works, resting, &fleet, free);
    let summary = Summary::of(&works, resting);
    let canary = expected.filter(|_| summary.states.contains_key(&State::Required));
    Pass { steps: works.into_iter().filter_map(finish).collect(), wake, counts, summary, halted, canary, roll_back_to }
}

/// A node that waits for its turn: when it comes, if it can.
fn consider<'a>(work: &mut Work<'a>) -> Option<(bool, i64, &'a str)> {
    if work.settled() {
        // Somebody went back to the driver that is loaded, or replaced the pod by hand.
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

/// Lets nodes begin, one after the other.
struct Queue<'a> {
    settings: &'a Settings,
    fleet: Fleet,
    free: usize,
    gate: Gate,
    halted: Option<&'a str>,
    /// How the fleet was when the last node found no place, and what that one was told.
    full: Option<(Fleet, Arc<str>)>,
}

impl Queue<'_> {
    fn serve(&mut self, work: &mut Work<'_>) {
        match self.admit(work) {
            Ok(canary) => begin(work, canary),
            Err(wait) => work.waits = Some(wait),
        }
    }

    /// Whether the node may begin, and if so, whether as a canary.
    fn admit(&mut self, work: &Work<'_>) -> Result<bool, Obstacle> {
        if let Some(why) = &self.settings.hold {
            return Err((format!("held back: {why}").into(), None));
        }
        // A further try of a node that was given back is part of what was begun.
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

    /// A node that others cordoned needs no place; one that we did needs one among those under way; the rest need one
    /// among those out of use, too. All take one.
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

/// Once no node waits or is under way, canaries are nodes like the others.
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
        notes: work.notes,
    };
    let idle =
        step.patch.is_empty() && step.evict.is_empty() && step.delete_driver.is_none() && step.maintenance.is_none();
    (!idle).then_some(step)
}
