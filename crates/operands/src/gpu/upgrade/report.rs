//! Upgrade status of the governing custom resource: a condition, and an event on transitions.

use capstan_plan::conditions::{self, Wanted};
use capstan_plan::{Note, Severity};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::journal::State;
use super::settings::Settings;
use super::{Counts, EVENT, Pass};

/// Type of the condition.
pub const CONDITION: &str = "DriverUpgrade";

/// Reasons: the driver is up to date on all nodes, or it is not yet but no upgrade runs, as on nodes that get their
/// first driver.
const COMPLETE: &str = "Complete";
const NOTHING: &str = "NothingToUpgrade";

/// Upgrade progress of some nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Counts for metrics.
    pub counts: Counts,
    /// Whether no node waits.
    complete: bool,
    reason: &'static str,
    message: String,
}

impl Report {
    /// From a pass. `held_back` are DaemonSets that keep an older driver, because the target was rejected.
    pub fn of(pass: &Pass, settings: &Settings, held_back: &[&str]) -> Self {
        let failed = pass.summary.states.contains_key(&State::Failed);
        let complete = pass.summary.complete();
        let back = held_back.first().map(|set| {
            format!(
                "went back to the driver before, as the wanted one failed: change the driver, or remove annotation {} \
                 of DaemonSet {set} to try it again",
                super::REJECTED
            )
        });
        let headline = [
            settings.hold.as_ref().map(|why| ("Held", format!("held back: {why}"))),
            back.map(|why| ("RolledBack", why)),
            pass.halted.clone().map(|why| ("Halted", why)),
            pass.canary.clone().map(|why| ("Canary", why)),
            (complete && !pass.summary.everywhere()).then(|| (NOTHING, "no node waits for an upgrade".into())),
        ];
        let headline = headline.into_iter().flatten().next();
        let reason = match &headline {
            Some((reason, _)) => *reason,
            None if complete => COMPLETE,
            None if failed => "NodesFailed",
            None => "InProgress",
        };
        let first = headline.map(|(_, why)| format!("{why}; ")).unwrap_or_default();
        let message = format!("{first}{}", pass.summary);
        Self { counts: pass.counts, complete: complete && is_settled(reason), reason, message }
    }

    fn note(&self) -> Note {
        let fine = is_settled(self.reason) || ["InProgress", "Canary"].contains(&self.reason);
        let severity = if fine { Severity::Normal } else { Severity::Warning };
        Note { severity, reason: EVENT, message: self.message.clone() }
    }
}

/// Whether no upgrade runs or is needed.
fn is_settled(reason: &str) -> bool {
    [COMPLETE, NOTHING].contains(&reason)
}

/// Whether the conditions report a running upgrade, during which operands restart on every node.
pub fn is_under_way(conditions: &[Condition]) -> bool {
    let fine = |reason: &str| reason == "InProgress" || reason == "Canary";
    conditions.iter().any(|one| one.type_ == CONDITION && one.status == "False" && fine(&one.reason))
}

/// Sets the condition, or clears it if auto-upgrade is off. Before the first pass (`None`) it is left unchanged.
/// Returns an event on a transition.
pub fn show(
    list: &mut Vec<Condition>,
    report: Option<Option<&Report>>,
    generation: Option<i64>,
    now: Timestamp,
) -> Option<Note> {
    match report? {
        None => {
            conditions::clear(list, CONDITION);
            None
        }
        Some(report) => {
            let before = list.iter().find(|one| one.type_ == CONDITION).map(|one| one.reason.clone());
            let Report { complete: status, reason, message, .. } = report;
            conditions::set(list, Wanted { type_: CONDITION, status: *status, reason, message }, generation, now);
            // No event for an initial Complete, nor for a restarted driver.
            let quiet = before.as_deref().is_none_or(is_settled) && is_settled(reason);
            let changed = before.as_deref() != Some(reason) && !quiet;
            changed.then(|| report.note())
        }
    }
}
