//! The upgrade budget: how many nodes may start now and which, canaries first, and when to halt.

use jiff::Timestamp;

use super::failure::Failure;
use super::journal::State;
use super::keys;
use super::node::Work;
use super::settings::{Amount, Settings};

/// Node counts for the budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fleet {
    /// Nodes, without those in requestor mode.
    pub total: usize,
    /// Nodes in progress.
    pub in_progress: usize,
    /// Nodes that wait for a slot.
    pub required: usize,
    /// Nodes that are unavailable, or about to be.
    pub unavailable: usize,
}

impl Fleet {
    pub(super) fn count(settings: &Settings, works: &[Work<'_>], resting: usize) -> Self {
        let mut fleet = Self { total: resting, ..Self::default() };
        for work in works {
            let journal = &work.old;
            let state = journal.state;
            if matches!(state, State::Maintenance | State::PostMaintenance) {
                continue;
            }
            fleet.total += 1;
            fleet.unavailable += usize::from(journal.unschedulable || !work.view.ready || state == State::Cordon);
            fleet.required += usize::from(state == State::Required);
            let idle = matches!(state, State::Unset | State::Done | State::Required);
            fleet.in_progress += usize::from(!idle && (state != State::Failed || journal.keeps_slot(settings)));
        }
        fleet
    }

    /// Number of free slots. Unavailable nodes need none.
    pub fn slots(&self, max_parallel: usize, max_unavailable: Option<Amount>) -> usize {
        let most = max_unavailable.map_or(self.total, |amount| amount.of(self.total));
        let free = if max_parallel == 0 { self.required } else { max_parallel.saturating_sub(self.in_progress) };
        free.min(most.saturating_sub(self.unavailable))
    }
}

/// Whether nodes may start at all.
pub(super) enum Gate {
    Open,
    /// So many canaries may start; the others wait for this reason.
    Canaries(usize, String),
    /// None may, for this reason; until a deadline, if only time is missing.
    Closed(String, Option<i64>),
}

impl Gate {
    /// The reason of the wait.
    pub(super) fn why(&self) -> Option<&str> {
        match self {
            Self::Open => None,
            Self::Canaries(_, why) | Self::Closed(why, _) => Some(why),
        }
    }
}

/// Whether the canaries have passed.
pub(super) fn canaries(settings: &Settings, works: &[Work<'_>], total: usize, now: i64) -> Gate {
    let Some(canary) = settings.canary else { return Gate::Open };
    let size = canary.size.of(total).max(1);
    let chosen: Vec<_> = works.iter().filter(|work| is_canary(work)).collect();
    if chosen.len() < size {
        let why = format!("waits for {size} canaries");
        return Gate::Canaries(size - chosen.len(), why);
    }
    let done: Vec<_> = chosen.iter().filter(|work| work.old.state == State::Done).collect();
    if done.len() < chosen.len() {
        return Gate::Closed(format!("waits for canaries: {} of {} are done", done.len(), chosen.len()), None);
    }
    let until = done.iter().filter_map(|work| work.old.since).max().unwrap_or(now) + canary.soak;
    if until > now {
        let when = Timestamp::from_second(until).unwrap_or(Timestamp::MAX);
        return Gate::Closed(format!("waits for canaries to prove themselves until {when}"), Some(until));
    }
    Gate::Open
}

/// Whether the node is a canary of the current target. Excluded nodes are not.
pub(super) fn is_canary(work: &Work<'_>) -> bool {
    let wanted = work.view.wanted.map(|wanted| wanted.revision);
    let kept_out = work.skipped() && work.old.state != State::Done;
    work.old.canary.is_some() && work.old.canary.as_deref() == wanted && !kept_out
}

/// Nodes on which the target failed, and has not succeeded since.
pub(super) fn failures<'a, 'b>(works: &'a [Work<'b>]) -> impl Iterator<Item = &'a Work<'b>> {
    works.iter().filter(|work| {
        let wanted = work.view.wanted.map(|wanted| wanted.revision);
        let current = work.old.target.is_none() || work.old.target.as_deref() == wanted;
        current && (work.old.state == State::Failed || work.old.attempts > 0)
    })
}

/// Why no further node may start, if too many failed.
pub(super) fn halted(settings: &Settings, works: &[Work<'_>], total: usize) -> Option<String> {
    let most = settings.max_failures?.of(total);
    let failed = failures(works).count();
    (failed > most).then(|| format!("halted: failed on {failed} of {total} nodes, more than {most}"))
}

/// The revision to roll back to: the previous one of most nodes on which the target failed. `None` unless the driver is
/// the likely cause of more failures than tolerated.
pub(super) fn last_good(settings: &Settings, works: &[Work<'_>], total: usize) -> Option<String> {
    let most = settings.max_failures.map_or(0, |amount| amount.of(total));
    let blamed = |work: &&Work<'_>| work.old.reason.as_deref().is_some_and(Failure::by_driver);
    let mut froms: Vec<_> = failures(works).filter(blamed).filter_map(|work| work.old.from.as_deref()).collect();
    if !settings.rollback || froms.len() <= most {
        return None;
    }
    froms.sort_unstable();
    let count = |from: &str| froms.iter().filter(|one| **one == from).count();
    froms.iter().max_by_key(|from| count(from)).map(|from| (*from).to_owned())
}

/// Sort key: unavailable nodes first, then by the order annotation, then by name.
pub(super) fn turn<'a>(work: &Work<'a>) -> (bool, i64, &'a str) {
    let order = work.view.node.annotations.get(keys::ORDER).and_then(|order| order.trim().parse().ok());
    (!work.old.unschedulable, order.unwrap_or(i64::MAX), work.view.node.name)
}
