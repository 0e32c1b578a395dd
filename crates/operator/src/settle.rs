//! The second half of every reconcile: executes a plan.

use std::time::Duration;

use capstan_plan::{Facts, Plan, Ref, diff};
use capstan_runtime::writer::{self, Debounce};
use capstan_runtime::{Action, Class, Error, Runtime};
use serde::Serialize;

/// Retry delay of a write that a conflicting object or the server prevented: only our own objects are watched.
const CONFLICT_RETRY: Duration = Duration::from_secs(30);
/// The same when the conflicting object is terminating.
const PREDECESSOR_RETRY: Duration = Duration::from_secs(1);

/// Applies the desired objects of `plan`, prunes the others, and patches the status. `blocked` plans the status when a
/// user has to act, from a reason and a message.
pub(crate) async fn settle<S: Serialize>(
    runtime: &Runtime,
    reference: &Ref,
    uid: &str,
    facts: &Facts,
    mut plan: Plan<S>,
    blocked: impl FnOnce(&str, &str) -> Plan<S>,
) -> Result<Action, Error> {
    let (mut error, mut wrote) = (None, false);
    let pending = plan.queries.iter().any(|query| !facts.query_results.contains_key(query));
    if let Some(wanted) = &plan.objects {
        let outcome = runtime.writer.apply(diff(uid, wanted, &facts.live)).await;
        if let Some(Refusal { reason, message, retry_after }) = refused(reference, &outcome) {
            plan = Plan { requeue: Some(retry_after), ..blocked(&reason, &message) };
        } else {
            wrote = outcome.applied > 0;
        }
        error = outcome.result().err();
    }
    let debounce = match pending || wrote {
        // The plan does not include the effect of this write yet.
        true => Debounce::Pending,
        false if plan.transient => Debounce::Transient,
        false => Debounce::Progress,
    };
    let debounced = runtime.writer.patch_status_debounced(reference, &plan.status, debounce).await?;
    runtime.events.record_all(reference, uid, &plan.events);
    match error {
        Some(error) => Err(error),
        None => Ok(plan.requeue.into_iter().chain(debounced).min().map_or(Action::AwaitChange, Action::Requeue)),
    }
}

/// Why writes were rejected, and when to retry.
#[derive(Debug, PartialEq, Eq)]
struct Refusal {
    reason: String,
    message: String,
    retry_after: Duration,
}

fn refused(reference: &Ref, outcome: &writer::Outcome) -> Option<Refusal> {
    let predecessor = format!("{} {}", reference.gvk.kind, reference.name);
    let (terminating, others): (Vec<_>, Vec<_>) =
        outcome.conflicts.iter().partition(|conflict| conflict.holder == predecessor);
    if !others.is_empty() {
        let messages: Vec<String> = others.into_iter().map(writer::refusal).collect();
        return Some(Refusal {
            reason: "NameConflict".into(),
            message: messages.join("; "),
            retry_after: CONFLICT_RETRY,
        });
    }
    if let Some(first) = terminating.first() {
        let message = format!(
            "waits until Kubernetes has removed what the deleted {predecessor} of the same name left: {} objects, such as {}",
            terminating.len(),
            first.reference,
        );
        return Some(Refusal { reason: "PredecessorGoing".into(), message, retry_after: PREDECESSOR_RETRY });
    }
    let failure =
        outcome.failures.iter().find(|failure| matches!(failure.error.class(), Class::Invalid | Class::Forbidden))?;
    let reason = format!("{}Failed", failure.reference.gvk.kind);
    Some(Refusal { reason, message: failure.error.chain(), retry_after: CONFLICT_RETRY })
}

#[cfg(test)]
mod tests {
    use capstan_api::foreign::InferenceService;
    use capstan_api::nim::NimService;
    use capstan_plan::Conflict;
    use k8s_openapi::api::core::v1::Service;
    use kube::core::response::Status;

    use super::*;

    fn refused_by(holders: &[&str]) -> Refusal {
        let conflict =
            |holder: &&str| Conflict { reference: Ref::of::<Service>("team", "llama"), holder: (*holder).to_owned() };
        let outcome =
            writer::Outcome { conflicts: holders.iter().map(conflict).collect(), ..writer::Outcome::default() };
        refused(&Ref::of::<NimService>("team", "llama"), &outcome).expect("a refusal")
    }

    #[test]
    fn what_a_deleted_namesake_left_is_waited_for() {
        let refusal = refused_by(&["NIMService llama", "NIMService llama"]);
        assert_eq!(refusal.reason, "PredecessorGoing");
        assert_eq!(
            refusal.message,
            "waits until Kubernetes has removed what the deleted NIMService llama of the same name left: 2 objects, such as Service team/llama"
        );
        assert_eq!(refusal.retry_after, PREDECESSOR_RETRY);
    }

    #[test]
    fn what_belongs_to_somebody_else_is_a_conflict() {
        let refusal = refused_by(&["NIMService llama", "NIMCache llama"]);
        assert_eq!(refusal.reason, "NameConflict");
        assert_eq!(refusal.message, "refuses to overwrite Service team/llama, which belongs to NIMCache llama");
    }

    #[test]
    fn a_refusal_is_named_after_the_kind_that_was_refused() {
        let status = Status { code: 422, message: "spec: no".into(), ..Status::default() };
        let reference = Ref::of::<InferenceService>("team", "llama");
        let (what, source) = (reference.to_string(), Box::new(kube::Error::Api(Box::new(status))));
        let failure = writer::Failure { reference, error: Error::Request { verb: "apply", what, source } };
        let outcome = writer::Outcome { failures: vec![failure], ..writer::Outcome::default() };
        let refusal = refused(&Ref::of::<NimService>("team", "llama"), &outcome).expect("a refusal");
        assert_eq!(refusal.reason, "InferenceServiceFailed");
        assert_eq!(refusal.message, "cannot apply InferenceService team/llama: spec: no");
    }
}
