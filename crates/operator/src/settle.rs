//! The second half of every reconcile: from a plan to the cluster.

use capstan_plan::{Facts, Plan, Ref, diff};
use capstan_runtime::{Action, Error, Runtime, writer};
use serde::Serialize;

/// Applies what `plan` wants, prunes what it no longer wants, and writes the status. What somebody else holds is told
/// by `blocked`.
pub(crate) async fn settle<S: Serialize>(
    runtime: &Runtime,
    reference: &Ref,
    uid: &str,
    facts: &Facts,
    mut plan: Plan<S>,
    blocked: impl FnOnce(&str) -> Plan<S>,
) -> Result<Action, Error> {
    let mut failed = None;
    if let Some(wanted) = &plan.objects {
        let outcome = runtime.writer.apply(diff(uid, wanted, &facts.live)).await;
        let refused: Vec<String> = outcome.conflicts.iter().map(writer::refusal).collect();
        if !refused.is_empty() {
            plan = blocked(&refused.join("; "));
        }
        failed = outcome.result().err();
    }
    runtime.writer.status(reference, &plan.status).await?;
    runtime.events.record_all(reference, uid, &plan.events);
    match failed {
        Some(error) => Err(error),
        None => Ok(plan.requeue.map_or(Action::Wait, Action::Again)),
    }
}
