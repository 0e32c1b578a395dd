//! Status of a service: state, conditions, replicas, model and endpoints.

use capstan_api::foreign::LeaderWorkerSet;
use capstan_api::ignored;
use capstan_api::nim::NimServiceStatus;
use capstan_api::nim::service::InferencePlatform;
use capstan_api::nim::service_status::{ComputeDomainNode, ComputeDomainNodeState, ComputeDomainState, ServedModel};
use capstan_plan::conditions::{self, Wanted};
use capstan_plan::kit::hash;
use capstan_plan::kit::rollout::{self, Rollout};
use capstan_plan::{Note, Object, Plan, Query, QueryResult, Severity, is_current};
use k8s_openapi::api::apps::v1::Deployment;

use super::endpoints::endpoints;
use super::invalid::{self, Fault};
use super::parts::Parts;
use super::{Cx, devices, image, kserve, multi_node, names, reasons, references, storage};

const READY: &str = "Ready";
const FAILED: &str = "Failed";
const IGNORED_FIELDS: &str = "IgnoredFields";
const INVALID_FIELDS: &str = "InvalidFields";
const MISSING_API: &str = "MissingAPI";
const MISSING_REFERENCES: &str = "MissingReferences";
const SCHEMA_SKEW: &str = "SchemaSkew";
const PVC_CREATED: &str = "NIM_CACHE_PVC_CREATED";
const UNREACHABLE: &str = "EndpointUnreachable";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Ready,
    NotReady,
    Failed,
}

/// A plan with only the status of an invalid spec.
pub(super) fn invalid(cx: &Cx<'_>, faults: &[Fault]) -> Plan<NimServiceStatus> {
    let reason = faults.first().map_or("InvalidSpec", |fault| fault.reason);
    let messages: Vec<&str> = faults.iter().map(|fault| fault.message.as_str()).collect();
    failed(cx, reason, &messages.join("; "))
}

/// A plan with only the status of a blocked service.
pub(super) fn failed(cx: &Cx<'_>, reason: &str, message: &str) -> Plan<NimServiceStatus> {
    finish(cx, Outcome::Failed, reason, message, Notices::of(cx))
}

/// A plan with the status from the live objects.
pub(super) fn observed(cx: &Cx<'_>, objects: &[Object], parts: Parts) -> Plan<NimServiceStatus> {
    // A registry responds within seconds: a new service need not report the wait.
    if cx.service.status.is_none() && parts.stop.as_ref().is_some_and(|stop| stop.reason == image::INSPECTING) {
        let status = NimServiceStatus::default();
        return Plan {
            objects: None,
            status,
            events: Vec::new(),
            requeue: None,
            queries: parts.queries,
            transient: false,
        };
    }
    let progress = progress(cx);
    let outdated = objects.iter().find(|object| !is_current(object, &cx.facts.live));
    let (outcome, reason, message) = match (&parts.stop, outdated) {
        (Some(stop), _) if stop.failed => (Outcome::Failed, stop.reason, stop.message.clone()),
        (Some(stop), _) => (Outcome::NotReady, stop.reason, stop.message.clone()),
        (None, Some(object)) if progress.exists => {
            (Outcome::NotReady, "NotReady", format!("{} is being updated", object.reference))
        }
        _ if progress.ready => (Outcome::Ready, READY, progress.message),
        _ => {
            let reason = reasons::waiting(cx).map(|reason| format!(" {reason}")).unwrap_or_default();
            (Outcome::NotReady, "NotReady", progress.message + &reason)
        }
    };
    let mut notices = Notices::of(cx);
    notices.invalid.extend(parts.ignored);
    notices.missing_api = parts.missing;
    if outcome != Outcome::Ready {
        notices.missing = references::missing(cx);
    }
    let (model, query, silent) = model(cx, objects, outcome);
    notices.unreachable.extend(silent);
    let mut plan = finish(cx, outcome, reason, &message, notices);
    if outcome != Outcome::Ready {
        plan.events.extend(reasons::new_problems(cx));
    }
    plan.status.available_replicas = Some(progress.available).filter(|count| *count > 0);
    plan.status.model = model;
    plan.status.dra_resource_statuses = devices::statuses(cx);
    plan.status.compute_domain_status = compute_domain(cx);
    plan.queries = parts.queries.into_iter().chain(query).collect();
    plan
}

fn progress(cx: &Cx<'_>) -> Rollout {
    if cx.platform() == InferencePlatform::KServe {
        return inference_service(cx);
    }
    match cx.multi_node() {
        Some(_) => group(cx),
        None => deployment(cx),
    }
}

fn deployment(cx: &Cx<'_>) -> Rollout {
    let live = cx.facts.live.typed::<Deployment>(&cx.namespace, &cx.name);
    rollout::of_deployment(&cx.name, live.as_ref(), cx.service.spec.replicas.unwrap_or(1))
}

fn group(cx: &Cx<'_>) -> Rollout {
    let name = names::of_group(cx);
    let Some(live) = cx.facts.live.typed::<LeaderWorkerSet>(&cx.namespace, &name) else {
        let message = format!("leaderworkerset \"{name}\" is not there yet");
        return Rollout { exists: false, ready: false, stuck: false, available: 0, message };
    };
    let status = live.status.unwrap_or_default();
    let available = status.conditions.iter().flatten().any(|one| one.type_ == "Available" && one.status == "True");
    let (ready, what) = match live.spec.replicas.unwrap_or(0) {
        0 => (false, "scaled down"),
        _ if available => (true, "ready"),
        _ => (false, "not ready"),
    };
    let message = format!("leaderworkerset \"{name}\" is {what}");
    Rollout { exists: true, ready, stuck: false, available: status.ready_replicas.unwrap_or(0), message }
}

fn inference_service(cx: &Cx<'_>) -> Rollout {
    let (name, live) = (&cx.name, kserve::live(cx));
    let conditions = live.as_ref().and_then(|live| live.status.as_ref()).and_then(|status| status.conditions.as_ref());
    let predictor = conditions.into_iter().flatten().find(|condition| condition.type_ == "PredictorReady");
    let non_empty = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let (ready, message) = match (&live, predictor) {
        (None, _) => (false, format!("waiting for creation of inferenceservice \"{name}\"")),
        (Some(_), None) => (false, format!("waiting for the predictor of inferenceservice \"{name}\"")),
        (Some(_), Some(predictor)) => {
            let ready = predictor.status == "True";
            let state = if ready { "ready" } else { "not ready" };
            let usual = format!("the predictor of inferenceservice \"{name}\" is {state}");
            let detail = non_empty(&predictor.message).or_else(|| non_empty(&predictor.reason).filter(|_| !ready));
            (ready, detail.map_or(usual.clone(), |detail| if ready { detail } else { format!("{usual}: {detail}") }))
        }
    };
    let available = i32::try_from(reasons::ready(cx)).unwrap_or(i32::MAX);
    Rollout { exists: live.is_some(), ready, stuck: false, available, message }
}

/// Model and endpoints, the query for the model, and the endpoint error.
fn model(cx: &Cx<'_>, objects: &[Object], outcome: Outcome) -> (Option<ServedModel>, Option<Query>, Option<String>) {
    let Some(endpoints) = endpoints(cx) else { return (None, None, None) };
    let before = cx.service.status.as_ref().and_then(|status| status.model.as_ref());
    let before = before.map_or(String::new(), |model| model.name.clone());
    let query = Query::Model { url: endpoints.url.clone(), revision: revision(objects) };
    let (name, unreachable) = match cx.facts.query_results.get(&query) {
        Some(QueryResult::Model(Ok(name))) => (name.clone(), None),
        Some(QueryResult::Model(Err(why))) => (before, Some(format!("{} does not answer: {why}", endpoints.url))),
        // Keep the result of an earlier leader.
        _ => (before, cx.condition_message(UNREACHABLE)),
    };
    let ready = outcome == Outcome::Ready;
    let model = ServedModel { name, cluster_endpoint: endpoints.cluster, external_endpoint: endpoints.external };
    // Before the first pod is ready no response is expected.
    (Some(model), Some(query).filter(|_| ready), unreachable.filter(|_| ready))
}

/// Revision of the pods: another one may serve another model.
fn revision(objects: &[Object]) -> String {
    let workloads = ["Deployment", "LeaderWorkerSet", "InferenceService"];
    let serves =
        |object: &&Object| workloads.contains(&&*object.reference.gvk.kind) && !object.reference.name.ends_with("-epp");
    let body = objects.iter().find(serves).map(|object| &object.body["spec"]);
    let parts = body.map(|spec| [&spec["template"], &spec["leaderWorkerTemplate"], &spec["predictor"]]);
    hash(&parts.map(|parts| parts.map(ToString::to_string).concat()).unwrap_or_default())
}

fn compute_domain(cx: &Cx<'_>) -> Option<ComputeDomainState> {
    let live = devices::domain(cx, multi_node::domain_name(cx)?)?;
    let status = live.status.as_ref();
    let node = |node: &capstan_api::compute_domain::domain::DomainNode| ComputeDomainNode {
        name: node.name.clone(),
        clique_id: node.clique_id.clone(),
        status: node.status.map(|status| match status {
            capstan_api::compute_domain::Readiness::Ready => ComputeDomainNodeState::Ready,
            capstan_api::compute_domain::Readiness::NotReady => ComputeDomainNodeState::NotReady,
        }),
    };
    Some(ComputeDomainState {
        name: live.metadata.name.clone().unwrap_or_default(),
        status: status.map(|status| format!("{:?}", status.status)),
        nodes: status.and_then(|status| status.nodes.as_ref()).map(|nodes| nodes.iter().map(node).collect()),
    })
}

/// Additional conditions besides the state.
#[derive(Default)]
struct Notices {
    missing_api: Vec<String>,
    missing: Vec<String>,
    invalid: Vec<String>,
    unreachable: Vec<String>,
}

impl Notices {
    fn of(cx: &Cx<'_>) -> Self {
        Self { invalid: invalid::ignored(cx), ..Self::default() }
    }
}

fn finish(cx: &Cx<'_>, outcome: Outcome, reason: &str, message: &str, notices: Notices) -> Plan<NimServiceStatus> {
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
    if storage::has_made_claim(cx) {
        let message = "The PVC has been created for storing NIM";
        let made = Wanted { type_: PVC_CREATED, status: true, reason: "PVCCreated", message };
        conditions::set(list, made, generation, now);
    } else {
        conditions::clear(list, PVC_CREATED);
    }
    let joined = |messages: Vec<String>| Some(messages.join("; ")).filter(|text| !text.is_empty());
    let others = [
        (MISSING_API, joined(notices.missing_api)),
        (MISSING_REFERENCES, joined(notices.missing)),
        (INVALID_FIELDS, joined(notices.invalid)),
        (UNREACHABLE, joined(notices.unreachable)),
        (image::UNKNOWN, image::unknown(cx)),
        (IGNORED_FIELDS, ignored_fields(cx)),
        (SCHEMA_SKEW, cx.facts.skew.clone()),
    ];
    for (type_, message) in others {
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
    // Record an event on a transition only, including a new failure reason. A new service that is not ready yet is
    // none.
    let another = match before.as_deref().filter(|before| !before.is_empty()) {
        Some(before) => before != state,
        None => outcome != Outcome::NotReady,
    };
    let changed = another || (outcome == Outcome::Failed && cx.service.status != Some(status.clone()));
    let note = Note { severity, reason: state, message: message.into() };
    let events = changed.then_some(note).into_iter().collect();
    Plan { objects: None, status, events, requeue: None, queries: Vec::new(), transient: false }
}

/// The fields that are set and have no effect.
fn ignored_fields(cx: &Cx<'_>) -> Option<String> {
    let object = serde_json::json!({"spec": cx.spec()});
    let fields: Vec<_> = ignored::used("NIMService", &object).collect();
    let mut messages = Vec::new();
    if !fields.is_empty() {
        messages.push(format!("these fields are set but have no effect yet: {}", fields.join(", ")));
    }
    let fields = kserve::without_effect(cx);
    if !fields.is_empty() {
        messages.push(format!("KServe decides this by itself, so these fields have no effect: {}", fields.join(", ")));
    }
    (!messages.is_empty()).then(|| messages.join("; "))
}
