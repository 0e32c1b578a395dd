//! The upgrade journal of a node, in its labels and annotations. It is the only persistent state: a new leader resumes
//! from it after any write.

use super::keys;
use super::settings::Settings;
use crate::gpu::nodes::{Entries, Node, NodePatch, OWNER};

/// Upgrade state of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// No state.
    #[default]
    Unset,
    /// Its driver is up to date.
    Done,
    /// Waiting for a slot.
    Required,
    /// To be cordoned.
    Cordon,
    /// Waiting for jobs.
    WaitForJobs,
    /// Evicting GPU pods.
    PodDeletion,
    /// Draining.
    Drain,
    /// The maintenance operator cordons and drains it.
    Maintenance,
    /// Reserved by the upstream operator.
    PostMaintenance,
    /// Replacing the driver pod.
    PodRestart,
    /// Validating the new driver.
    Validation,
    /// To be uncordoned.
    Uncordon,
    /// Failed.
    Failed,
    /// An unknown value.
    Unknown,
}

impl State {
    /// All states with a label.
    pub const ALL: [Self; 12] = [
        Self::Done,
        Self::Required,
        Self::Cordon,
        Self::WaitForJobs,
        Self::PodDeletion,
        Self::Drain,
        Self::Maintenance,
        Self::PostMaintenance,
        Self::PodRestart,
        Self::Validation,
        Self::Uncordon,
        Self::Failed,
    ];

    /// The label value.
    pub fn label(self) -> &'static str {
        match self {
            Self::Unset | Self::Unknown => "",
            Self::Done => "upgrade-done",
            Self::Required => "upgrade-required",
            Self::Cordon => "cordon-required",
            Self::WaitForJobs => "wait-for-jobs-required",
            Self::PodDeletion => "pod-deletion-required",
            Self::Drain => "drain-required",
            Self::Maintenance => "node-maintenance-required",
            Self::PostMaintenance => "post-maintenance-required",
            Self::PodRestart => "pod-restart-required",
            Self::Validation => "validation-required",
            Self::Uncordon => "uncordon-required",
            Self::Failed => "upgrade-failed",
        }
    }

    /// The state of a node with these labels.
    pub fn of(labels: Entries<'_>) -> Self {
        match labels.get(keys::STATE).unwrap_or_default() {
            "" => Self::Unset,
            text => Self::ALL.into_iter().find(|state| state.label() == text).unwrap_or(Self::Unknown),
        }
    }

    /// Whether the next decision needs the pods of the node.
    pub fn needs_pods(self) -> bool {
        matches!(self, Self::WaitForJobs | Self::PodDeletion | Self::Drain)
    }

    /// Whether we may have cordoned a node in this state.
    pub(super) fn cordons(self) -> bool {
        !matches!(self, Self::Unset | Self::Done | Self::Required | Self::Unknown)
    }

    /// Whether the driver has not been touched yet.
    pub(super) fn before_restart(self) -> bool {
        matches!(self, Self::Cordon | Self::WaitForJobs | Self::PodDeletion | Self::Drain)
    }
}

/// The journal of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Journal {
    pub(super) state: State,
    pub(super) unschedulable: bool,
    /// Whether the node was cordoned before.
    pub(super) initial: bool,
    pub(super) safe_load: bool,
    pub(super) requested: bool,
    pub(super) requestor: bool,
    pub(super) wait_start: Option<i64>,
    pub(super) validation_start: Option<i64>,
    pub(super) since: Option<i64>,
    pub(super) reason: Option<String>,
    pub(super) attempts: u32,
    pub(super) target: Option<String>,
    pub(super) from: Option<String>,
    pub(super) restart: Option<String>,
    pub(super) canary: Option<String>,
    pub(super) next_owner: Option<String>,
    /// The owner that the node gets with this step; empty for none.
    pub(super) new_owner: Option<String>,
}

impl Journal {
    pub(super) fn read(node: &Node<'_>) -> Self {
        let annotations = node.annotations;
        let text = |key: &str| annotations.get(key).map(str::to_owned);
        let number = |key: &str| annotations.get(key).and_then(|text| text.parse().ok());
        Self {
            state: State::of(node.labels),
            unschedulable: node.unschedulable,
            initial: annotations.is(keys::INITIAL, "true"),
            safe_load: annotations.get(keys::SAFE_LOAD).is_some_and(|value| !value.is_empty()),
            requested: annotations.is(keys::REQUESTED, "true"),
            requestor: annotations.is(keys::REQUESTOR, "true"),
            wait_start: number(keys::WAIT_START),
            validation_start: number(keys::VALIDATION_START),
            since: number(keys::SINCE),
            reason: text(keys::REASON),
            attempts: annotations.get(keys::ATTEMPTS).and_then(|text| text.parse().ok()).unwrap_or(0),
            target: text(keys::TARGET),
            from: text(keys::FROM),
            restart: text(keys::RESTART),
            canary: text(keys::CANARY),
            next_owner: text(keys::NEXT_OWNER),
            new_owner: None,
        }
    }

    /// Whether it records a finished upgrade, and nothing else.
    pub(super) fn is_closed(&self) -> bool {
        *self == Self { state: State::Done, ..Self::default() }
    }

    /// Whether a waiting node is cordoned because of an earlier attempt.
    pub(super) fn cordoned_by_us(&self) -> bool {
        self.state == State::Required && self.unschedulable && self.target.is_some()
    }

    /// Whether a failed node keeps its slot: not if it was uncordoned, nor if it is within `maxFailures` and out of
    /// retries.
    pub(super) fn keeps_slot(&self, settings: &Settings) -> bool {
        self.unschedulable && (settings.max_failures.is_none() || self.attempts.max(1) <= settings.retries)
    }

    /// Enters another state.
    pub(super) fn enter(&mut self, state: State, now: i64) {
        self.state = state;
        self.since = Some(now);
        self.wait_start = None;
        self.validation_start = None;
        if matches!(state, State::Done | State::Unset) {
            self.forget();
        }
    }

    /// Clears everything but the canary annotation.
    fn forget(&mut self) {
        self.since = self.since.filter(|_| self.canary.is_some());
        (self.initial, self.requestor, self.attempts) = (false, false, 0);
        (self.reason, self.target, self.from, self.restart) = (None, None, None, None);
    }

    fn annotations(&self) -> [(&'static str, Option<String>); 13] {
        let flag = |on: bool| on.then(|| "true".to_owned());
        let number = |value: Option<i64>| value.map(|value| value.to_string());
        [
            (keys::INITIAL, flag(self.initial)),
            (keys::REQUESTED, flag(self.requested)),
            (keys::REQUESTOR, flag(self.requestor)),
            (keys::WAIT_START, number(self.wait_start)),
            (keys::VALIDATION_START, number(self.validation_start)),
            (keys::SINCE, number(self.since)),
            (keys::REASON, self.reason.clone()),
            (keys::ATTEMPTS, number((self.attempts > 0).then_some(i64::from(self.attempts)))),
            (keys::TARGET, self.target.clone()),
            (keys::FROM, self.from.clone()),
            (keys::RESTART, self.restart.clone()),
            (keys::CANARY, self.canary.clone()),
            (keys::NEXT_OWNER, self.next_owner.clone()),
        ]
    }

    /// The patch from `old` to this journal.
    pub(super) fn changes(&self, old: &Self) -> NodePatch {
        let mut patch = NodePatch::default();
        if self == old {
            return patch;
        }
        if self.state != old.state {
            patch
                .labels
                .insert(keys::STATE.into(), Some(self.state.label().into()).filter(|label: &String| !label.is_empty()));
        }
        if let Some(owner) = &self.new_owner {
            patch.labels.insert(OWNER.into(), Some(owner.clone()).filter(|owner| !owner.is_empty()));
        }
        if self.unschedulable != old.unschedulable {
            patch.unschedulable = Some(self.unschedulable);
        }
        if self.safe_load != old.safe_load {
            patch.strip(keys::SAFE_LOAD);
        }
        for ((key, new), (_, old)) in self.annotations().into_iter().zip(old.annotations()) {
            if new != old {
                patch.annotations.insert(key.into(), new);
            }
        }
        patch
    }
}

/// The cleanup of a node after auto-upgrade was turned off: journal and our cordon. User settings are kept.
pub fn abandon(node: &Node<'_>) -> NodePatch {
    let old = Journal::read(node);
    let mut new = old.clone();
    new.enter(State::Unset, 0);
    (new.since, new.canary, new.next_owner) = (None, None, None);
    if (old.state.cordons() || old.cordoned_by_us()) && !old.initial && !old.requestor {
        new.unschedulable = false;
    }
    let mut patch = new.changes(&old);
    if node.labels.get(keys::STATE).is_some() {
        patch.remove(keys::STATE);
    }
    patch
}
