//! What a state machine shows: a state, conditions, and an event when something changed.

use std::time::Duration;

use capstan_plan::conditions::{self, Wanted};
use capstan_plan::{Facts, Note, Severity};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;

use crate::shown;

/// One condition: type, status, reason, message.
type ConditionParts = (&'static str, bool, String, String);

/// What a step means to the user.
pub(super) struct Shown {
    /// The word in the status column.
    pub(super) state: &'static str,
    /// When to look again though nothing changed.
    pub(super) requeue: Option<Duration>,
    conditions: Vec<ConditionParts>,
    trouble: Option<usize>,
}

/// Whose status it is.
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

impl Shown {
    /// A state with nothing more to say.
    pub(super) fn new(state: &'static str) -> Self {
        Self { state, requeue: None, conditions: Vec::new(), trouble: None }
    }

    /// The same with a condition.
    pub(super) fn with(mut self, type_: &'static str, status: bool, reason: &str, message: impl Into<String>) -> Self {
        self.conditions.push((type_, status, reason.into(), message.into()));
        self
    }

    /// The same with a condition that somebody should look at.
    pub(super) fn trouble(mut self, type_: &'static str, reason: &str, message: impl Into<String>) -> Self {
        self.trouble = Some(self.conditions.len());
        self.with(type_, true, reason, message)
    }

    /// The same, to be looked at again.
    pub(super) fn again(mut self, after: Duration) -> Self {
        self.requeue = Some(after);
        self
    }

    /// Whether it has a condition of this type.
    pub(super) fn says(&self, type_: &str) -> bool {
        self.conditions.iter().any(|(said, ..)| *said == type_)
    }

    /// Sets the conditions in `list`, and says which event they are worth: one for each new state or trouble.
    pub(super) fn write<S: Serialize>(
        &self,
        before: Option<&str>,
        list: &mut Vec<Condition>,
        about: &About<'_, S>,
    ) -> Option<Note> {
        let note = self.note(before, list);
        let (generation, now) = (about.generation, about.facts.now);
        for (type_, status, reason, message) in &self.conditions {
            conditions::set(list, Wanted { type_, status: *status, reason, message }, generation, now);
        }
        shown::remarks(list, about.kind, about.spec, about.facts, generation);
        note
    }

    fn note(&self, before: Option<&str>, list: &[Condition]) -> Option<Note> {
        if let Some((type_, _, reason, message)) = self.trouble.map(|index| &self.conditions[index]) {
            let known = list.iter().any(|old| {
                old.type_ == *type_ && old.status == "True" && old.reason == *reason && old.message == *message
            });
            let note = || Note { severity: Severity::Warning, reason: "ReconcileFailed", message: message.clone() };
            return (!known).then(note);
        }
        let message = self.conditions.last().map(|(.., message)| message.clone()).filter(|message| !message.is_empty());
        (before != Some(self.state)).then(|| Note {
            severity: Severity::Normal,
            reason: self.state,
            message: message.unwrap_or_else(|| format!("now {}", self.state)),
        })
    }
}
