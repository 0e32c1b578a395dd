//! The second half of every reconcile: from a plan to the cluster.

use std::time::Duration;

use capstan_plan::{Facts, Plan, Ref, diff};
use capstan_runtime::writer::{self, Debounce};
use capstan_runtime::{Action, Class, Error, Runtime};
use serde::Serialize;

/// After how long a write is tried again that a conflicting object or the server prevented: only our own objects are
/// watched.
const CONFLICT_RETRY: Duration = Duration::from_secs(30);
/// The same when the conflicting object is about to go.
const PREDECESSOR_RETRY: Duration = Duration::from_secs(1);

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
    let (mut failed, mut wrote) = (None, false);
    let open = plan.questions.iter().any(|question| !facts.answers.contains_key(question));
    if let Some(wanted) = &plan.objects {
        let outcome = runtime.writer.apply(diff(uid, wanted, &facts.live)).await;
        if let Some(Refusal { reason, message, again }) = refused(reference, &outcome) {
            plan = Plan { requeue: Some(again), ..blocked(&reason, &message) };
        } else {
            wrote = outcome.applied > 0;
        }
        failed = outcome.result().err();
    }
    let debounce = match open || wrote {
        // What was just written is read in a moment: this plan has not seen it yet.
        true => Debounce::Answer,
        false if plan.transient => Debounce::Transient,
        false => Debounce::Progress,
    };
    let later = runtime.writer.patch_status_debounced(reference, &plan.status, debounce).await?;
    runtime.events.record_all(reference, uid, &plan.events);
    match failed {
        Some(error) => Err(error),
        None => Ok(plan.requeue.into_iter().chain(later).min().map_or(Action::Wait, Action::Again)),
    }
}

/// What to tell the user about writes that could not be, and when to try again.
#[derive(Debug, PartialEq, Eq)]
struct Refusal {
    reason: String,
    message: String,
    again: Duration,
}

fn refused(reference: &Ref, outcome: &writer::Outcome) -> Option<Refusal> {
    let predecessor = format!("{} {}", reference.gvk.kind, reference.name);
    let (going, others): (Vec<_>, Vec<_>) =
        outcome.conflicts.iter().partition(|conflict| conflict.holder == predecessor);
    if !others.is_empty() {
        let messages: Vec<String> = others.into_iter().map(writer::refusal).collect();
        return Some(Refusal { reason: "NameConflict".into(), message: messages.join("; "), again: CONFLICT_RETRY });
    }
    if let Some(first) = going.first() {
        let message = format!(
            "waits until Kubernetes has removed what the deleted {predecessor} of the same name left: {} objects, such as {}",
            going.len(),
            first.reference,
        );
        return Some(Refusal { reason: "PredecessorGoing".into(), message, again: PREDECESSOR_RETRY });
    }
    let failure =
        outcome.failures.iter().find(|failure| matches!(failure.error.class(), Class::Invalid | Class::Forbidden))?;
    let reason = format!("{}Failed", failure.reference.gvk.kind);
    Some(Refusal { reason, message: failure.error.chain(), again: CONFLICT_RETRY })
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
        assert_eq!(refusal.again, PREDECESSOR_RETRY);
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
