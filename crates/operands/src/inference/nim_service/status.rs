//! How the service is doing: state, conditions, replicas, endpoint.

use capstan_api::ignored;
use capstan_api::nim::NimServiceStatus;
use capstan_api::nim::service_status::ServedModel;
use capstan_plan::conditions::{self, Wanted};
use capstan_plan::{Note, Object, Plan, Severity, is_current};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;

use super::invalid::Fault;
use super::{Cx, service};

const READY: &str = "Ready";
const FAILED: &str = "Failed";
const IGNORED_FIELDS: &str = "IgnoredFields";
const SCHEMA_SKEW: &str = "SchemaSkew";

/// A plan with nothing but the status of a spec that cannot be acted on.
pub(super) fn invalid(cx: &Cx<'_>, faults: &[Fault]) -> Plan<NimServiceStatus> {
    let reason = faults.first().map_or("InvalidSpec", |fault| fault.reason);
    let messages: Vec<&str> = faults.iter().map(|fault| fault.message.as_str()).collect();
    failed(cx, reason, &messages.join("; "))
}

/// A plan with nothing but the status of a service that cannot go on.
pub(super) fn failed(cx: &Cx<'_>, reason: &str, message: &str) -> Plan<NimServiceStatus> {
    finish(cx, Outcome::Failed, reason, message)
}

/// A plan with nothing but the status that follows from the live objects.
pub(super) fn observed(cx: &Cx<'_>, objects: &[Object]) -> Plan<NimServiceStatus> {
    let live: Option<Deployment> = cx.facts.live.typed(&cx.namespace, &cx.name);
    let (outcome, message) = match objects.iter().find(|object| !is_current(object, &cx.facts.live)) {
        Some(object) if live.is_some() => (Outcome::NotReady, format!("{} is being updated", object.reference)),
        _ => rollout(&cx.name, live.as_ref()),
    };
    let reason = if outcome == Outcome::Ready { READY } else { "NotReady" };
    let mut plan = finish(cx, outcome, reason, &message);
    let available = live.as_ref().and_then(|live| live.status.as_ref()).and_then(|status| status.available_replicas);
    plan.status.available_replicas = Some(available.unwrap_or(0)).filter(|count| *count > 0);
    plan.status.model = endpoint(cx).map(|cluster_endpoint| ServedModel {
        name: cx
            .service
            .status
            .as_ref()
            .and_then(|status| status.model.as_ref())
            .map_or(String::new(), |model| model.name.clone()),
        cluster_endpoint,
        external_endpoint: String::new(),
    });
    plan
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Ready,
    NotReady,
    Failed,
}

/// Whether the Deployment serves what is wanted, and what it waits for.
fn rollout(name: &str, live: Option<&Deployment>) -> (Outcome, String) {
    let Some(live) = live else {
        return (Outcome::NotReady, format!("deployment \"{name}\" is not there yet"));
    };
    let status = live.status.clone().unwrap_or_default();
    let wanted = live.spec.replicas.unwrap_or(1);
    let (updated, available) = (status.updated_replicas.unwrap_or(0), status.available_replicas.unwrap_or(0));
    let stuck = status.conditions.iter().flatten().any(|condition| {
        condition.type_.as_deref() == Some("Progressing")
            && condition.reason.as_deref() == Some("ProgressDeadlineExceeded")
    });
    let seen = status.observed_generation >= live.metadata.generation;
    let message = if wanted == 0 {
        format!("deployment \"{name}\" is scaled down")
    } else if stuck {
        format!("deployment \"{name}\" exceeded its progress deadline")
    } else if !seen {
        format!("Waiting for deployment \"{name}\" spec update to be observed...")
    } else if updated < wanted {
        format!(
            "Waiting for deployment \"{name}\" rollout to finish: {updated} out of {wanted} new replicas have been updated..."
        )
    } else if available < updated {
        format!(
            "Waiting for deployment \"{name}\" rollout to finish: {available} of {updated} updated replicas are available..."
        )
    } else {
        return (Outcome::Ready, format!("deployment \"{name}\" successfully rolled out"));
    };
    (Outcome::NotReady, message)
}

fn endpoint(cx: &Cx<'_>) -> Option<String> {
    let live: Service = cx.facts.live.typed(&cx.namespace, &cx.name)?;
    let address = live.spec?.cluster_ip.filter(|address| !address.is_empty() && address != "None")?;
    let address = if address.contains(':') { format!("[{address}]") } else { address };
    Some(format!("{address}:{}", service::port(cx)))
}

fn finish(cx: &Cx<'_>, outcome: Outcome, reason: &str, message: &str) -> Plan<NimServiceStatus> {
    let mut status = cx.service.status.clone().unwrap_or_default();
    let before = status.state.clone();
    let (state, failed_reason) = match outcome {
        Outcome::Ready => (READY, READY),
        Outcome::NotReady => ("NotReady", "Progressing"),
        Outcome::Failed => (FAILED, reason),
    };
    let ready = Wanted { type_: READY, status: outcome == Outcome::Ready, reason, message };
    let failed_message = if outcome == Outcome::Failed { message } else { "" };
    let failed =
        Wanted { type_: FAILED, status: outcome == Outcome::Failed, reason: failed_reason, message: failed_message };
    let list = status.conditions.get_or_insert_default();
    let (generation, now) = (cx.service.metadata.generation, cx.facts.now);
    conditions::set(list, ready, generation, now);
    conditions::set(list, failed, generation, now);
    for (type_, message) in [(IGNORED_FIELDS, ignored_fields(cx)), (SCHEMA_SKEW, cx.facts.skew.clone())] {
        match message {
            Some(message) => {
                let wanted = Wanted { type_, status: true, reason: type_, message: &message };
                conditions::set(list, wanted, generation, now);
            }
            None => conditions::clear(list, type_),
        }
    }
    status.state = Some(state.into());
    let severity = if outcome == Outcome::Failed { Severity::Warning } else { Severity::Normal };
    // Told on a transition only; what is failing for a new reason is one.
    let changed =
        before.as_deref() != Some(state) || (outcome == Outcome::Failed && cx.service.status != Some(status.clone()));
    let note = Note { severity, reason: state, message: message.into() };
    Plan { objects: None, status, events: changed.then_some(note).into_iter().collect(), requeue: None }
}

/// What the user set and nothing acts on.
fn ignored_fields(cx: &Cx<'_>) -> Option<String> {
    let object = serde_json::json!({"spec": cx.spec()});
    let fields: Vec<_> = ignored::used("NIMService", &object).collect();
    (!fields.is_empty()).then(|| format!("these fields are set but have no effect yet: {}", fields.join(", ")))
}
