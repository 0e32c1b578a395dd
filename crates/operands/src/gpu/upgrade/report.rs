//! What the custom resource that rules some nodes says about their upgrade: a condition, and an event when it turns.

use capstan_plan::conditions::{self, Wanted};
use capstan_plan::{Note, Severity};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::journal::State;
use super::settings::Settings;
use super::{Counts, EVENT, Pass};

/// Type of the condition.
pub const CONDITION: &str = "DriverUpgrade";

/// Reasons: the wanted driver works on all nodes, or it does not and no upgrade is why, as on nodes that get their first.
const COMPLETE: &str = "Complete";
const NOTHING: &str = "NothingToUpgrade";

/// How far the upgrade of some nodes is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Numbers for metrics.
    pub counts: Counts,
    /// Whether no node waits for anything.
    complete: bool,
    reason: &'static str,
    message: String,
}

impl Report {
    /// What a pass came to. `held_back` names DaemonSets that keep an older driver, as the wanted one failed.
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
        let told = [
            settings.hold.as_ref().map(|why| ("Held", format!("held back: {why}"))),
            back.map(|why| ("RolledBack", why)),
            pass.halted.clone().map(|why| ("Halted", why)),
            pass.canary.clone().map(|why| ("Canary", why)),
            (complete && !pass.summary.everywhere()).then(|| (NOTHING, "no node waits for an upgrade".into())),
        ];
        let told = told.into_iter().flatten().next();
        let reason = match &told {
            Some((reason, _)) => *reason,
            None if complete => COMPLETE,
            None if failed => "NodesFailed",
            None => "InProgress",
        };
        let first = told.map(|(_, why)| format!("{why}; ")).unwrap_or_default();
        let message = format!("{first}{}", pass.summary);
        Self { counts: pass.counts, complete: complete && is_quiet(reason), reason, message }
    }

    fn note(&self) -> Note {
        let fine = is_quiet(self.reason) || ["InProgress", "Canary"].contains(&self.reason);
        let severity = if fine { Severity::Normal } else { Severity::Warning };
        Note { severity, reason: EVENT, message: self.message.clone() }
    }
}

/// Whether nothing is being upgraded, or has to be.
fn is_quiet(reason: &str) -> bool {
    [COMPLETE, NOTHING].contains(&reason)
}

/// Whether conditions say that an upgrade is under way, during which operands come and go on every node.
pub fn is_under_way(conditions: &[Condition]) -> bool {
    let fine = |reason: &str| reason == "InProgress" || reason == "Canary";
    conditions.iter().any(|one| one.type_ == CONDITION && one.status == "False" && fine(&one.reason))
}

/// Sets the condition or, where nothing is upgraded automatically, clears it. As long as nobody has looked at the nodes
/// (`None`) it stays as it is. Returns what to say when it turns.
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
            // That all is well from the beginning is no news, nor is a driver that is started again.
            let quiet = before.as_deref().is_none_or(is_quiet) && is_quiet(reason);
            let news = before.as_deref() != Some(reason) && !quiet;
            news.then(|| report.note())
        }
    }
}
