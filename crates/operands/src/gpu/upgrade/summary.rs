//! Summary of the fleet for the status, never a row per node.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;

use super::journal::State;
use super::keys;
use super::node::Work;
use super::slots::Fleet;
use crate::gpu::nodes::{Node, OWNER};

/// Number of example nodes.
const EXAMPLES: usize = 3;

/// Counts for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Nodes in progress.
    pub in_progress: usize,
    /// Nodes that are up to date.
    pub done: usize,
    /// Nodes that may start now.
    pub available: usize,
    /// Failed nodes.
    pub failed: usize,
    /// Nodes that wait for a slot.
    pub pending: usize,
}

impl Counts {
    pub(super) fn of(works: &[Work<'_>], resting: usize, fleet: &Fleet, available: usize) -> Self {
        let count = |state: State| works.iter().filter(|work| work.old.state == state).count();
        Self {
            in_progress: fleet.in_progress,
            done: resting + count(State::Done),
            available,
            failed: count(State::Failed),
            pending: count(State::Required),
        }
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.in_progress += other.in_progress;
        self.done += other.done;
        self.available += other.available;
        self.failed += other.failed;
        self.pending += other.pending;
    }
}

/// The summary of a pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Nodes per state, after this pass.
    pub states: BTreeMap<State, usize>,
    /// Nodes on which the target works.
    pub installed: usize,
    /// Nodes that need attention most: failed ones, then those that have waited longest.
    pub examples: Vec<Example>,
}

/// One node, and what it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// The node.
    pub node: String,
    /// Its state.
    pub state: State,
    /// What it waits for, or why it failed.
    pub reason: String,
    /// Since when.
    pub since: Option<Timestamp>,
}

impl Summary {
    pub(super) fn of(works: &[Work<'_>], resting: usize) -> Self {
        let mut states: BTreeMap<State, usize> = (resting > 0).then_some((State::Done, resting)).into_iter().collect();
        let works_there = |work: &&Work<'_>| {
            work.view.in_sync() && work.view.driver.as_ref().is_some_and(|driver| driver.health.ready)
        };
        let installed = resting + works.iter().filter(works_there).count();
        let mut waiting: Vec<&Work<'_>> = Vec::new();
        for work in works {
            *states.entry(work.journal.state).or_default() += 1;
            if work.journal.state == State::Failed || work.waits.is_some() {
                waiting.push(work);
            }
        }
        if waiting.len() > EXAMPLES {
            waiting.select_nth_unstable_by_key(EXAMPLES, |work| urgency(work));
            waiting.truncate(EXAMPLES);
        }
        waiting.sort_unstable_by_key(|work| urgency(work));
        let examples = waiting.into_iter().map(|work| Example {
            node: work.view.node.name.into(),
            state: work.journal.state,
            reason: work
                .journal
                .reason
                .clone()
                .or_else(|| Some(work.waits.as_ref()?.0.to_string()))
                .unwrap_or_default(),
            since: work.journal.since.and_then(|since| Timestamp::from_second(since).ok()),
        });
        Self { states, installed, examples: examples.collect() }
    }

    fn total(&self) -> usize {
        self.states.values().sum()
    }

    /// Whether the target works on all nodes.
    pub fn everywhere(&self) -> bool {
        self.installed == self.total()
    }

    /// Whether no node waits or is in progress.
    pub fn complete(&self) -> bool {
        self.states.keys().all(|state| matches!(state, State::Unset | State::Done))
    }
}

/// Sort key of examples, ascending.
fn urgency<'a>(work: &Work<'a>) -> (u8, Option<i64>, &'a str) {
    let rank = match work.journal.state {
        State::Failed => 0,
        State::Required => 2,
        _ => 1,
    };
    (rank, work.journal.since, work.view.node.name)
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the wanted driver works on {} of {} nodes", self.installed, self.total())?;
        let mut rest: Vec<_> =
            self.states.iter().filter(|(state, _)| !matches!(state, State::Done | State::Unset)).collect();
        rest.sort_by_key(|(state, count)| (Reverse(**count), **state));
        for (state, count) in rest {
            let label = if *state == State::Unknown { "unknown" } else { state.label() };
            write!(f, ", {count} {label}")?;
        }
        for example in &self.examples {
            let since = example.since.map(|since| format!(" since {since}")).unwrap_or_default();
            write!(f, "; {}{since}: {}", example.node, example.reason)?;
        }
        Ok(())
    }
}

/// Unfinished upgrades of nodes with an NVIDIADriver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unfinished {
    /// Nodes that wait for their turn.
    pub pending: usize,
    /// Nodes under way.
    pub active: usize,
    /// Nodes on which it failed.
    pub failed: usize,
}

impl Unfinished {
    /// Adds a node. Nodes without an owner, or excluded from upgrades, do not count.
    pub fn add(&mut self, node: &Node<'_>) {
        let owned = node.labels.get(OWNER).is_some_and(|owner| !owner.is_empty());
        if !owned || node.labels.is(keys::SKIP, "true") {
            return;
        }
        match State::of(node.labels) {
            State::Unset | State::Done => {}
            State::Required => self.pending += 1,
            State::Failed => self.failed += 1,
            _ => self.active += 1,
        }
    }

    /// Adds `other` that many times.
    pub(crate) fn add_all(&mut self, other: &Self, times: usize) {
        self.pending += other.pending * times;
        self.active += other.active * times;
        self.failed += other.failed * times;
    }

    /// Why a ClusterPolicy with NVIDIADrivers is not ready, if an upgrade is the cause: two messages.
    pub fn reasons(&self) -> Option<[String; 2]> {
        let Self { pending, active, failed } = self;
        (pending + active + failed > 0).then(|| {
            let counts =
                format!("nodes owned by NVIDIADrivers: {pending} pending, {active} in progress, {failed} failed");
            ["driver upgrade is not completed".into(), counts]
        })
    }
}
