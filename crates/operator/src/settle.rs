//! The second half of every reconcile: from a plan to the cluster.

use std::time::Duration;

use capstan_plan::{Facts, Plan, Ref, diff};
use capstan_runtime::writer::{self, Expected};
use capstan_runtime::{Action, Class, Error, Runtime};
use serde::Serialize;

/// What is in the way is looked at again after this long: we are told of our own objects only.
const IN_THE_WAY: Duration = Duration::from_secs(30);

/// Applies what `plan` wants, prunes what it no longer wants, and writes the status. What only a person can make
/// possible is told by `blocked`, from a reason and a message.
pub(crate) async fn settle<S: Serialize>(
    runtime: &Runtime,
    reference: &Ref,
    uid: &str,
    facts: &Facts,
    mut plan: Plan<S>,
    blocked: impl FnOnce(&str, &str) -> Plan<S>,
) -> Result<Action, Error> {
    let mut failed = None;
    let open = plan.questions.iter().any(|question| !facts.answers.contains_key(question));
    let expected = if open { Expected::Answer } else { Expected::Nothing };
    if let Some(wanted) = &plan.objects {
        let outcome = runtime.writer.apply(diff(uid, wanted, &facts.live)).await;
        if let Some((reason, message)) = refused(&outcome) {
            plan = Plan { requeue: Some(IN_THE_WAY), ..blocked(&reason, &message) };
        }
        failed = outcome.result().err();
    }
    let later = runtime.writer.status_at_leisure(reference, &plan.status, expected).await?;
    runtime.events.record_all(reference, uid, &plan.events);
    match failed {
        Some(error) => Err(error),
        None => Ok(plan.requeue.into_iter().chain(later).min().map_or(Action::Wait, Action::Again)),
    }
}

/// What to tell the user about writes that only a person can make possible.
fn refused(outcome: &writer::Outcome) -> Option<(String, String)> {
    if !outcome.conflicts.is_empty() {
        let messages: Vec<String> = outcome.conflicts.iter().map(writer::refusal).collect();
        return Some(("NameConflict".into(), messages.join("; ")));
    }
    let failure =
        outcome.failures.iter().find(|failure| matches!(failure.error.class(), Class::Invalid | Class::Forbidden))?;
    Some((format!("{}Failed", failure.reference.gvk.kind), failure.error.chain()))
}
