//! State of a container: its stage, its finished runs, and what it waits for.

use std::time::Duration;

use jiff::Timestamp;

use crate::node::backoff::{Backoff, after};

/// How long the reason is `ErrImagePull` before it becomes `ImagePullBackOff`.
const PULL_ERROR_TIME: Duration = Duration::from_secs(1);

/// Role of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) enum Role {
    /// Runs to completion before others.
    Init,
    /// Starts before others, and keeps running.
    Sidecar,
    /// A regular container.
    Main,
    /// Added later, for debugging.
    Ephemeral,
}

/// How a run of a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::node) struct Termination {
    pub(in crate::node) code: i32,
    pub(in crate::node) reason: Box<str>,
    pub(in crate::node) started: Timestamp,
    pub(in crate::node) finished: Timestamp,
    /// Number of the run, from 1.
    pub(in crate::node) run: u32,
    /// Tail of its log, if the termination message policy asks for it.
    pub(in crate::node) message: Option<Box<str>>,
}

/// Stage of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::node) enum Stage {
    /// Waiting for its turn.
    Idle,
    Pulling {
        until: Timestamp,
        fails: bool,
    },
    PullFailed {
        since: Timestamp,
        until: Timestamp,
        message: Box<str>,
    },
    Starting {
        until: Timestamp,
    },
    StartFailed {
        until: Timestamp,
        reason: Box<str>,
        message: Box<str>,
    },
    Running(Run),
    /// Waiting before a restart.
    BackingOff {
        until: Timestamp,
        delay: Duration,
    },
    /// Terminated for good; see `ended`.
    Terminated,
}

/// A run of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::node) struct Run {
    pub(in crate::node) since: Timestamp,
    /// When its startup probe succeeds.
    pub(in crate::node) up: Timestamp,
    /// When it becomes ready, if ever.
    pub(in crate::node) ready: Option<Timestamp>,
    pub(super) unhealthy: Option<Timestamp>,
    /// When and how it exits.
    pub(super) exit: Option<(Timestamp, i32, Option<Box<str>>)>,
    pub(super) stopping: bool,
}

/// A container.
#[derive(Clone, Debug)]
pub(in crate::node) struct Slot {
    pub(in crate::node) role: Role,
    pub(in crate::node) stage: Stage,
    /// End of the current run.
    pub(in crate::node) ended: Option<Box<Termination>>,
    /// End of the previous run.
    pub(in crate::node) last: Option<Box<Termination>>,
    pub(in crate::node) restarts: i32,
    /// Number of starts.
    pub(in crate::node) runs: u32,
    pub(super) crashes: Backoff,
    pub(super) pulls: Backoff,
    pub(super) failed_pulls: u32,
    pub(super) failed_starts: u32,
    /// Readiness set by an override.
    pub(super) forced_ready: Option<bool>,
}

impl Slot {
    pub(super) fn new(role: Role) -> Self {
        Self {
            role,
            stage: Stage::Idle,
            ended: None,
            last: None,
            restarts: 0,
            runs: 0,
            crashes: Backoff::default(),
            pulls: Backoff::default(),
            failed_pulls: 0,
            failed_starts: 0,
            forced_ready: None,
        }
    }

    /// Whether its startup probe has succeeded.
    pub(in crate::node) fn is_up(&self, now: Timestamp) -> bool {
        matches!(&self.stage, Stage::Running(run) if run.up <= now)
    }

    /// Whether it is ready; an init container is when it has succeeded.
    pub(in crate::node) fn is_ready(&self, now: Timestamp) -> bool {
        match (&self.stage, self.role) {
            (Stage::Terminated, Role::Init) => self.ended.as_ref().is_some_and(|ended| ended.code == 0),
            (Stage::Running(_), Role::Init) => false,
            (Stage::Running(run), _) => {
                self.forced_ready.unwrap_or_else(|| run.ready.is_some_and(|ready| ready <= now))
            }
            _ => false,
        }
    }

    /// Whether the containers after this one may start.
    pub(super) fn unblocks_next(&self, now: Timestamp) -> bool {
        if self.role == Role::Init { self.is_ready(now) } else { self.is_up(now) }
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.stage, Stage::Running(_))
    }

    pub(super) fn is_terminated(&self) -> bool {
        self.stage == Stage::Terminated
    }

    /// Time of the next transition.
    pub(super) fn due(&self, now: Timestamp) -> Option<Timestamp> {
        match &self.stage {
            Stage::Idle | Stage::Terminated => None,
            Stage::Pulling { until, .. } | Stage::Starting { until } => Some(*until),
            Stage::StartFailed { until, .. } | Stage::BackingOff { until, .. } => Some(*until),
            Stage::PullFailed { since, until, .. } => {
                let renamed = after(*since, PULL_ERROR_TIME);
                Some(if renamed > now { renamed.min(*until) } else { *until })
            }
            Stage::Running(run) => {
                let exit = run.exit.as_ref().map(|(at, ..)| *at);
                let milestones = [Some(run.up), run.ready].into_iter().flatten().filter(|at| *at > now);
                milestones.chain(exit).chain(run.unhealthy).min()
            }
        }
    }
}
