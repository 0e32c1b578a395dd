//! The upgrade state machine of one node.
//!
//! [`advance`] moves the journal as far as possible without waiting, so that one patch writes it, and returns the
//! actions. Every wait has a reason and a deadline, after which the upgrade fails with that reason, is retried, and
//! meanwhile uncordons a node whose old driver still works.

use std::sync::Arc;

use capstan_plan::{Note, Severity};

use super::EVENT;
use super::evict::{drain, pod_deletion, wait_for_jobs};
use super::failure::Failure;
use super::journal::{Journal, State};
use super::keys;
use super::pods::PodView;
use super::requestor::{self, MaintenanceAction};
use super::settings::Settings;
use super::view::{NodeView, PodName};

/// What a node waits for, and its deadline. Shared by thousands of nodes.
pub(super) type Obstacle = (Arc<str>, Option<i64>);

/// A node being processed.
pub(super) struct Work<'a> {
    pub(super) view: &'a NodeView<'a>,
    pub(super) settings: &'a Settings,
    pub(super) now: i64,
    /// The stored journal.
    pub(super) old: Journal,
    /// The new journal.
    pub(super) journal: Journal,
    pub(super) evict: Vec<PodName<'a>>,
    pub(super) delete_driver: Option<PodName<'a>>,
    pub(super) maintenance: Option<MaintenanceAction>,
    pub(super) events: Vec<Note>,
    /// What it waits for, and its deadline.
    pub(super) waits: Option<Obstacle>,
}

impl<'a> Work<'a> {
    pub(super) fn new(view: &'a NodeView<'a>, settings: &'a Settings, now: i64) -> Self {
        let old = Journal::read(&view.node);
        Self {
            view,
            settings,
            now,
            journal: old.clone(),
            old,
            evict: Vec::new(),
            delete_driver: None,
            maintenance: None,
            events: Vec::new(),
            waits: None,
        }
    }

    /// The pods on the node. A list from before the cordon is not used: pods may have been scheduled since.
    pub(super) fn pods(&self) -> Option<&'a [PodView<'a>]> {
        self.view.pods.as_deref().filter(|_| self.old.unschedulable)
    }

    /// Whether the driver is up to date, and no upgrade is requested.
    pub(super) fn is_up_to_date(&self) -> bool {
        let journal = &self.journal;
        self.view.in_sync() && !journal.safe_load && journal.next_owner.is_none() && !self.to_restart()
    }

    fn to_restart(&self) -> bool {
        let uid = self.view.driver.as_ref().map(|driver| driver.pod.uid);
        self.journal.restart.is_some() && self.journal.restart.as_deref() == uid
    }

    fn driver_ready(&self) -> bool {
        self.view.driver.as_ref().is_some_and(|driver| driver.health.ready && !driver.terminating)
    }

    pub(super) fn skipped(&self) -> bool {
        self.view.node.labels.is(keys::SKIP, "true")
    }

    pub(super) fn enter(&mut self, state: State) -> bool {
        self.journal.enter(state, self.now);
        true
    }

    pub(super) fn say(&mut self, severity: Severity, message: String) {
        self.events.push(Note { severity, reason: EVENT, message });
    }

    pub(super) fn wait(&mut self, why: String, until: Option<i64>) -> bool {
        self.waits = Some((why.into(), until));
        false
    }

    /// Uncordons the node, unless it was cordoned before.
    fn uncordon(&mut self) {
        if !self.journal.initial && !self.journal.requestor {
            self.journal.unschedulable = false;
        }
    }

    pub(super) fn fail(&mut self, failure: Failure, message: &str) -> bool {
        let attempts = self.journal.attempts + 1;
        let again = match self.retry_at(attempts, self.now) {
            Some(at) => format!("tries again in {} s", at - self.now),
            None => format!("does not try again: correct it, then annotate the node with {}=true", keys::REQUESTED),
        };
        // The old driver still works: uncordon until the next attempt.
        if self.journal.state.before_restart() && self.driver_ready() {
            self.uncordon();
        }
        self.say(Severity::Warning, format!("driver upgrade failed, {}: {message}; {again}", failure.word()));
        self.journal.attempts = attempts;
        // The target failed; only another target is worth an immediate retry.
        self.journal.target = self.view.wanted.map(|wanted| wanted.revision.to_owned());
        self.journal.reason = Some(format!("{}: {message}", failure.word()));
        self.journal.restart = None;
        self.enter(State::Failed);
        false
    }

    /// When to retry a node after this many failures, the last one at `since`.
    fn retry_at(&self, attempts: u32, since: i64) -> Option<i64> {
        let factor = 1_i64.checked_shl(attempts.saturating_sub(1).min(16))?;
        (attempts <= self.settings.retries).then(|| since + self.settings.backoff * factor)
    }

    /// When the state was entered. A state written by another operator counts from when we first saw it.
    pub(super) fn since(&mut self) -> i64 {
        *self.journal.since.get_or_insert(self.now)
    }
}

/// Advances as far as possible.
pub(super) fn advance(work: &mut Work<'_>) {
    // Bounded by the number of states: a cycle would be a bug, not an endless loop.
    for _ in 0..=State::ALL.len() {
        if !next(work) {
            break;
        }
    }
}

/// One transition; false if there is none now.
fn next(work: &mut Work<'_>) -> bool {
    let state = work.journal.state;
    if state.before_restart() {
        if work.skipped() {
            work.say(Severity::Normal, format!("label {} ends the upgrade of this node", keys::SKIP));
            return cancel(work);
        }
        if !work.old.unschedulable && state != State::Cordon && !work.journal.unschedulable {
            work.say(Severity::Warning, "somebody uncordoned the node: its upgrade waits for another turn".into());
            return cancel(work);
        }
        if work.is_up_to_date() && work.driver_ready() {
            return work.enter(State::Validation);
        }
    }
    match state {
        State::Unset | State::Done => quiet(work),
        State::Required => false,
        State::Cordon => {
            work.journal.unschedulable = true;
            work.enter(State::WaitForJobs)
        }
        State::WaitForJobs => wait_for_jobs(work),
        State::PodDeletion => pod_deletion(work),
        State::Drain => drain(work),
        State::Maintenance => maintenance(work),
        State::PostMaintenance => work.enter(State::PodRestart),
        State::PodRestart => pod_restart(work),
        State::Validation => validation(work),
        State::Uncordon => uncordon(work),
        State::Failed => failed(work),
        State::Unknown => {
            let found = work.view.node.labels.get(keys::STATE).unwrap_or_default().to_owned();
            work.say(
                Severity::Warning,
                format!("label {}: {found:?} is no state of an upgrade: it starts anew", keys::STATE),
            );
            work.enter(if work.journal.unschedulable { State::Cordon } else { State::Required })
        }
    }
}

/// Cancels an upgrade that has not touched the driver; the node waits for a slot again.
fn cancel(work: &mut Work<'_>) -> bool {
    work.uncordon();
    (work.journal.target, work.journal.canary) = (None, None);
    work.journal.initial = work.journal.unschedulable;
    work.enter(State::Required)
}

fn quiet(work: &mut Work<'_>) -> bool {
    let orphan = work.view.driver.as_ref().is_some_and(|driver| driver.owner.is_none());
    let outdated = work.view.driver.is_some() && work.view.wanted.is_some() && !orphan && !work.view.in_sync();
    let journal = &mut work.journal;
    let asked = journal.requested && work.view.driver.is_some();
    if asked && !orphan && !outdated && !journal.safe_load && journal.next_owner.is_none() {
        journal.requested = false;
        work.say(Severity::Normal, "runs the wanted driver already: there is nothing to upgrade".into());
    } else if outdated || asked || journal.safe_load || journal.next_owner.is_some() {
        journal.initial = journal.unschedulable;
        journal.canary = None;
        return work.enter(State::Required);
    }
    if work.journal.state == State::Unset && work.view.driver.is_some() {
        work.enter(State::Done);
    }
    false
}

/// Starts the upgrade of a waiting node. `canary` if it is a canary.
pub(super) fn begin(work: &mut Work<'_>, canary: bool) {
    let view = work.view;
    let asked = work.journal.requested;
    let restart_only = view.same_driver() && !asked && !work.journal.safe_load && work.journal.next_owner.is_none();
    let ours = work.journal.cordoned_by_us();
    let journal = &mut work.journal;
    (journal.requested, journal.reason) = (false, None);
    journal.target = view.wanted.map(|wanted| wanted.revision.to_owned());
    journal.from = view.driver.as_ref().map(|driver| driver.revision.to_owned()).filter(|from| !from.is_empty());
    journal.canary = journal.target.clone().filter(|_| canary);
    if let Some(us) = &work.settings.requestor {
        journal.requestor = true;
        journal.initial = false;
        work.maintenance = requestor::ask(work.settings, us, view.node.name, view.maintenance.as_ref());
        work.say(Severity::Normal, "asks for maintenance of this node for a driver upgrade".into());
        work.enter(State::Maintenance);
        return;
    }
    // A cordon by others while it waited is kept.
    journal.initial |= journal.unschedulable && !ours;
    if restart_only {
        journal.unschedulable = true;
        work.say(Severity::Normal, "driver pod is replaced; the driver itself is unchanged, so pods stay".into());
        work.enter(State::PodRestart);
    } else {
        work.say(Severity::Normal, "driver upgrade begins: the node takes no new pods".into());
        work.enter(State::Cordon);
    }
    advance(work);
}

/// Seconds until an action without effect is repeated.
const REPEAT_SECONDS: i64 = 30;

/// Seconds until a created NodeMaintenance must be in the cache.
const CACHE_LAG_SECONDS: i64 = 60;

fn maintenance(work: &mut Work<'_>) -> bool {
    let since = work.since();
    let Some(us) = &work.settings.requestor else { return work.enter(State::Required) };
    let Some(live) = work.view.maintenance.as_ref().filter(|live| live.has(&us.id)) else {
        if work.now > since + CACHE_LAG_SECONDS {
            work.journal.requestor = false;
            return work.enter(State::Required);
        }
        work.maintenance = requestor::ask(work.settings, us, work.view.node.name, work.view.maintenance.as_ref());
        return work.wait("asks for maintenance".into(), Some(since + CACHE_LAG_SECONDS));
    };
    if live.ready {
        return work.enter(State::PodRestart);
    }
    match live.failed {
        Some(why) => {
            work.fail(Failure::MaintenanceFailed, &format!("NodeMaintenance {}: {why}", us.name(work.view.node.name)))
        }
        None => work.wait(format!("waits for NodeMaintenance {}", us.name(work.view.node.name)), None),
    }
}

fn pod_restart(work: &mut Work<'_>) -> bool {
    if let Some(owner) = work.journal.next_owner.take() {
        let no_owner = owner.is_empty();
        work.journal.new_owner = Some(owner);
        if no_owner {
            work.uncordon();
            work.enter(State::Unset);
            return false;
        }
        work.enter(State::PodRestart);
        return work.wait("waits for the driver pod of its new owner".into(), None);
    }
    let mut until = work.since() + work.settings.restart_timeout;
    let late = work.now > until;
    let view = work.view;
    let Some(driver) = &view.driver else {
        let why = if view.wanted.is_some() { "its DaemonSet has made none" } else { "no DaemonSet wants one here" };
        let why = format!("there is no driver pod: {why}");
        return if late { work.fail(Failure::DriverMissing, &why) } else { work.wait(why, Some(until)) };
    };
    let name = driver.pod.name;
    if driver.terminating || !view.in_sync() || work.to_restart() {
        let why = if view.wanted.is_none() {
            format!("driver pod {name} is left as it is: no DaemonSet would bring it back")
        } else if driver.terminating {
            format!("waits for driver pod {name} to end")
        } else {
            work.delete_driver = Some(driver.pod);
            until = until.min(work.now + REPEAT_SECONDS);
            work.journal.target = view.wanted.map(|wanted| wanted.revision.to_owned());
            format!("replaces driver pod {name}")
        };
        return if late { work.fail(Failure::DriverNotReady, &why) } else { work.wait(why, Some(until)) };
    }
    work.journal.safe_load = false;
    work.journal.restart = None;
    if driver.health.ready {
        return work.enter(State::Validation);
    }
    let why = format!("driver pod {name} {}", driver.health.why);
    if driver.health.restarts > work.settings.restart_threshold {
        return work.fail(Failure::DriverCrashes, &format!("{why}, after {} restarts", driver.health.restarts));
    }
    if late { work.fail(Failure::DriverNotReady, &why) } else { work.wait(why, Some(until)) }
}

fn validation(work: &mut Work<'_>) -> bool {
    work.journal.safe_load = false;
    let view = work.view;
    if !view.in_sync() {
        return work.enter(State::PodRestart);
    }
    let broken = view.driver.as_ref().filter(|driver| !driver.health.ready);
    if let Some(driver) = broken.filter(|driver| driver.health.restarts > work.settings.restart_threshold) {
        let why =
            format!("driver pod {} {}, after {} restarts", driver.pod.name, driver.health.why, driver.health.restarts);
        return work.fail(Failure::DriverCrashes, &why);
    }
    if validated(view) && broken.is_none() {
        return work.enter(State::Uncordon);
    }
    let since = work.since();
    let until = *work.journal.validation_start.get_or_insert(since) + work.settings.validation_timeout;
    let (failure, why) = match (broken, view.validators.iter().find(|one| !one.health.ready)) {
        (Some(driver), _) => (Failure::DriverNotReady, format!("driver pod {} {}", driver.pod.name, driver.health.why)),
        (None, Some(one)) => (Failure::ValidationFailed, format!("validator pod {} {}", one.name, one.health.why)),
        (None, None) => (Failure::ValidatorMissing, "there is no validator pod on this node".into()),
    };
    if work.now > until { work.fail(failure, &why) } else { work.wait(why, Some(until)) }
}

fn validated(view: &NodeView<'_>) -> bool {
    !view.validators.is_empty() && view.validators.iter().all(|validator| validator.health.ready)
}

fn uncordon(work: &mut Work<'_>) -> bool {
    if work.journal.requestor {
        let us = work.settings.requestor.as_ref();
        let release = us.and_then(|us| requestor::release(us, work.view.node.name, work.view.maintenance.as_ref()));
        if release.is_some() {
            work.maintenance = release;
            return work.wait("ends the maintenance of this node".into(), Some(work.now + REPEAT_SECONDS));
        }
    }
    work.uncordon();
    work.say(Severity::Normal, "driver upgrade is done".into());
    work.enter(State::Done);
    false
}

fn failed(work: &mut Work<'_>) -> bool {
    let reason = work.journal.reason.clone().unwrap_or_default();
    let validation =
        [Failure::ValidationFailed, Failure::ValidatorMissing].iter().any(|one| reason.starts_with(one.word()));
    if work.is_up_to_date() && work.driver_ready() && (!validation || validated(work.view)) {
        return work.enter(State::Uncordon);
    }
    let since = work.since();
    let wanted = work.view.wanted.map(|wanted| wanted.revision);
    let other = work.journal.target.as_deref().is_some_and(|target| wanted.is_some_and(|wanted| wanted != target));
    let anew = work.journal.requested || other && !work.view.in_sync();
    // Nodes that failed under the upstream operator have no count: that was the first attempt.
    let attempts = work.journal.attempts.max(1);
    let at = if anew { Some(work.now) } else { work.retry_at(attempts, since) };
    if work.skipped() || at.is_none_or(|at| at > work.now) {
        return work.wait(if reason.is_empty() { "failed".into() } else { reason }, at);
    }
    let keeps_slot = work.journal.keeps_slot(work.settings);
    work.journal.attempts = if anew { 0 } else { attempts };
    work.journal.requested = false;
    let driver = work.view.driver.as_ref().filter(|_| work.view.in_sync());
    work.journal.restart = driver.map(|driver| driver.pod.uid.to_owned());
    work.say(Severity::Normal, "tries the driver upgrade again".into());
    if !keeps_slot && !work.journal.requestor {
        // It waits for a slot, and keeps the reason of its cordon, if any.
        work.journal.target = work.journal.target.take().filter(|_| work.journal.unschedulable);
        work.journal.reason = work.journal.reason.take().filter(|_| work.journal.unschedulable);
        return work.enter(State::Required);
    }
    work.journal.reason = None;
    work.enter(if work.journal.requestor { State::Maintenance } else { State::Cordon })
}
