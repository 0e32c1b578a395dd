//! The status of a state machine: a state, conditions, and an event on changes.

use std::time::Duration;

use capstan_plan::conditions::{self, Wanted};
use capstan_plan::{Facts, Note, Severity};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;

use crate::common_conditions;

/// One condition: type, status, reason, message.
type ConditionParts = (&'static str, bool, String, String);

/// The status of one step.
pub(super) struct StatusReport {
    /// `status.state`.
    pub(super) state: &'static str,
    /// Delay until the next reconcile without a change.
    pub(super) requeue: Option<Duration>,
    conditions: Vec<ConditionParts>,
    problem: Option<usize>,
}

/// The object of the status.
pub(super) struct About<'a, S> {
    /// Kind.
    pub(super) kind: &'static str,
    /// Its spec.
    pub(super) spec: &'a S,
    /// Generation of the spec.
    pub(super) generation: Option<i64>,
    /// The facts.
    pub(super) facts: &'a Facts,
}

impl StatusReport {
    /// A state without conditions.
    pub(super) fn new(state: &'static str) -> Self {
        Self { state, requeue: None, conditions: Vec::new(), problem: None }
    }

    /// The same with a condition.
    pub(super) fn with(mut self, type_: &'static str, status: bool, reason: &str, message: impl Into<String>) -> Self {
        self.conditions.push((type_, status, reason.into(), message.into()));
        self
    }

    /// The same with a condition that reports a problem.
    pub(super) fn problem(mut self, type_: &'static str, reason: &str, message: impl Into<String>) -> Self {
        self.problem = Some(self.conditions.len());
        self.with(type_, true, reason, message)
    }

    /// The same with a requeue.
    pub(super) fn requeue_after(mut self, after: Duration) -> Self {
        self.requeue = Some(after);
        self
    }

    /// Whether it has a condition of this type.
    pub(super) fn has(&self, type_: &str) -> bool {
        self.conditions.iter().any(|(known, ..)| *known == type_)
    }

    /// Sets the conditions in `list`. Returns an event for a new state or problem.
    pub(super) fn apply<S: Serialize>(
        &self,
        before: Option<&str>,
        list: &mut Vec<Condition>,
        about: &About<'_, S>,
    ) -> Option<Note> {
        let event = self.event(before, list);
        let (generation, now) = (about.generation, about.facts.now);
        for (type_, status, reason, message) in &self.conditions {
            conditions::set(list, Wanted { type_, status: *status, reason, message }, generation, now);
        }
        common_conditions::set_common(list, about.kind, about.spec, about.facts, generation);
        event
    }

    fn event(&self, before: Option<&str>, list: &[Condition]) -> Option<Note> {
        if let Some((type_, _, reason, message)) = self.problem.map(|index| &self.conditions[index]) {
            let known = list.iter().any(|old| {
                old.type_ == *type_ && old.status == "True" && old.reason == *reason && old.message == *message
            });
            let event = || Note { severity: Severity::Warning, reason: "ReconcileFailed", message: message.clone() };
            return (!known).then(event);
        }
        let message = self.conditions.last().map(|(.., message)| message.clone()).filter(|message| !message.is_empty());
        (before != Some(self.state)).then(|| Note {
            severity: Severity::Normal,
            reason: self.state,
            message: message.unwrap_or_else(|| format!("now {}", self.state)),
        })
    }
}
