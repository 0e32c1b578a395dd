//! A container of a pod: where it is, how its runs ended, and what it waits for.

use std::time::Duration;

use jiff::Timestamp;

use crate::node::backoff::{Backoff, after};

/// How long a failed pull is called so before it is called a back-off.
const PULL_ERROR_TIME: Duration = Duration::from_secs(1);

/// What a container is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) enum Role {
    /// Runs before others, and ends.
    Init,
    /// Starts before others, and stays.
    Sidecar,
    /// What the pod is for.
    Main,
    /// Added later, to look into the pod.
    Ephemeral,
}

/// How a run of a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::node) struct Ended {
    pub(in crate::node) code: i32,
    pub(in crate::node) reason: Box<str>,
    pub(in crate::node) started: Timestamp,
    pub(in crate::node) finished: Timestamp,
    /// Which run it was, from 1 on.
    pub(in crate::node) run: u32,
    /// The end of its log, where it is asked for.
    pub(in crate::node) message: Option<Box<str>>,
}

/// Where a container is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::node) enum Stage {
    /// It waits for its turn.
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
    /// It waits before it is started again.
    BackingOff {
        until: Timestamp,
        delay: Duration,
    },
    /// It is over, as `ended` says.
    Over,
}

/// A run of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::node) struct Run {
    pub(in crate::node) since: Timestamp,
    /// When it has started up.
    pub(in crate::node) up: Timestamp,
    /// When it is ready, if ever.
    pub(in crate::node) ready: Option<Timestamp>,
    pub(super) unhealthy: Option<Timestamp>,
    /// When and how it ends.
    pub(super) exit: Option<(Timestamp, i32, Option<Box<str>>)>,
    pub(super) stopping: bool,
}

/// A container.
#[derive(Clone, Debug)]
pub(in crate::node) struct Slot {
    pub(in crate::node) role: Role,
    pub(in crate::node) stage: Stage,
    /// The end of the current run.
    pub(in crate::node) ended: Option<Box<Ended>>,
    /// The end of the run before.
    pub(in crate::node) last: Option<Box<Ended>>,
    pub(in crate::node) restarts: i32,
    /// How often it was started.
    pub(in crate::node) runs: u32,
    pub(super) crashes: Backoff,
    pub(super) pulls: Backoff,
    pub(super) failed_pulls: u32,
    pub(super) failed_starts: u32,
    /// Readiness as somebody has set it.
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

    /// Whether it has started up.
    pub(in crate::node) fn is_up(&self, now: Timestamp) -> bool {
        matches!(&self.stage, Stage::Running(run) if run.up <= now)
    }

    /// Whether it is ready; an init container is when it has done its work.
    pub(in crate::node) fn is_ready(&self, now: Timestamp) -> bool {
        match (&self.stage, self.role) {
            (Stage::Over, Role::Init) => self.ended.as_ref().is_some_and(|ended| ended.code == 0),
            (Stage::Running(_), Role::Init) => false,
            (Stage::Running(run), _) => {
                self.forced_ready.unwrap_or_else(|| run.ready.is_some_and(|ready| ready <= now))
            }
            _ => false,
        }
    }

    /// Whether containers that come after this one may start.
    pub(super) fn lets_others_start(&self, now: Timestamp) -> bool {
        if self.role == Role::Init { self.is_ready(now) } else { self.is_up(now) }
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.stage, Stage::Running(_))
    }

    pub(super) fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// When something happens by itself.
    pub(super) fn due(&self, now: Timestamp) -> Option<Timestamp> {
        match &self.stage {
            Stage::Idle | Stage::Over => None,
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
