//! How a service is doing: state, conditions, replicas, and an event when something changed.

use std::time::Duration;

use capstan_api::nemo::NemoStatus;
use capstan_plan::conditions::{self, Wanted};
use capstan_plan::kit::rollout;
use capstan_plan::{Note, Object, Plan, Severity, is_current};
use k8s_openapi::api::apps::v1::Deployment;

use super::description::{Parts, Waits};
use super::references::{self, Missing};
use super::{Built, Cx, claim, dependencies, invalid, pods};
use crate::common_conditions;

const READY: &str = "Ready";
const NOT_READY: &str = "NotReady";
const FAILED: &str = "Failed";
const DEPENDENCIES: &str = "DependenciesReady";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Ready,
    NotReady,
    Failed,
}

/// What there is to say, besides what goes into conditions of their own.
struct Said {
    outcome: Outcome,
    reason: String,
    message: String,
}

/// What the user should know beside the state: conditions that are only there when there is something to tell.
#[derive(Default)]
struct Notices {
    missing_apis: Vec<String>,
    missing: Vec<String>,
    invalid: Vec<String>,
    database: Vec<String>,
    narrow: Vec<String>,
    dependencies: Option<Result<String, String>>,
}

/// A plan with nothing but the status of a spec that cannot be acted on.
pub(super) fn invalid(cx: &Cx<'_>, faults: &[String]) -> Plan<NemoStatus> {
    failed(cx, "InvalidSpec", &faults.join("; "))
}

/// A plan with nothing but the status of a service that cannot go on.
pub(super) fn failed(cx: &Cx<'_>, reason: &str, message: &str) -> Plan<NemoStatus> {
    let said = Said { outcome: Outcome::Failed, reason: reason.into(), message: message.into() };
    let notices = Notices { invalid: invalid::passed_over(cx), ..Notices::default() };
    finish(cx, &said, notices)
}

/// A plan with nothing but the status that follows from the live objects.
pub(super) fn observed(cx: &Cx<'_>, parts: &Parts, objects: &[Object], built: Built) -> Plan<NemoStatus> {
    let live = cx.live().typed::<Deployment>(&cx.namespace, &cx.name);
    let replicas = cx.service.server().replicas.unwrap_or(1);
    let rollout = rollout::of_deployment(&cx.name, live.as_ref(), replicas);
    let outdated = objects.iter().find(|object| !is_current(object, cx.live()));
    let missing = references::missing(cx, parts);
    let said = match (&built.stop, outdated) {
        (Some(stop), _) => Said {
            outcome: if stop.failed { Outcome::Failed } else { Outcome::NotReady },
            reason: stop.reason.into(),
            message: stop.message.clone(),
        },
        (None, Some(object)) if rollout.exists => Said::not_ready(format!("{} is being updated", object.reference)),
        _ if rollout.ready => Said { outcome: Outcome::Ready, reason: READY.into(), message: rollout.message.clone() },
        _ => waiting(cx, parts, &rollout, &missing),
    };
    let (unreachable, again) = match pods::database(cx).filter(|_| said.outcome == Outcome::NotReady) {
        Some(Ok(message)) => (Some(message), None),
        Some(Err(soon)) => (None, Some(soon)),
        None => (None, None),
    };
    let said = match &unreachable {
        Some(message) => Said { reason: "DatabaseUnreachable".into(), ..Said::not_ready(message.clone()) },
        None => said,
    };
    let ready = said.outcome == Outcome::Ready;
    // What only jobs wait for matters while the service runs, too.
    let absent = missing.into_iter().filter(|one| !ready || one.waits == Waits::Jobs);
    let notices = Notices {
        missing_apis: built.missing_apis,
        missing: absent.map(|one| one.message).collect(),
        invalid: invalid::passed_over(cx),
        database: unreachable.into_iter().collect(),
        narrow: claim::is_narrow(cx, parts).into_iter().collect(),
        dependencies: dependencies::ready(cx, parts),
    };
    let mut plan = finish(cx, &said, notices);
    if !ready {
        plan.events.extend(pods::news(cx));
    }
    if let Some(note) = plan.events.first_mut().filter(|note| ready && note.reason == READY) {
        note.message += &claim_notice(cx, parts).unwrap_or_default();
    }
    plan.status.available_replicas = Some(rollout.available).filter(|count| *count > 0);
    plan.queries = built.queries;
    plan.requeue = again.map(|soon: Duration| soon + Duration::from_secs(1));
    plan
}

/// Why a Deployment that is as wanted is not ready.
fn waiting(cx: &Cx<'_>, parts: &Parts, rollout: &rollout::Rollout, missing: &[Missing]) -> Said {
    if rollout.stuck {
        let why = pods::waiting(cx, parts).map(|why| format!(" {why}")).unwrap_or_default();
        let message = format!("{}{why}", rollout.message);
        return Said { reason: "ProgressDeadlineExceeded".into(), ..Said::not_ready(message) };
    }
    let absent: Vec<&Missing> = missing.iter().filter(|one| one.waits == Waits::Pods).collect();
    if let Some(first) = absent.first() {
        let messages: Vec<&str> = absent.iter().map(|one| one.message.as_str()).collect();
        return Said { reason: first.reason.into(), ..Said::not_ready(messages.join("; ")) };
    }
    let why = pods::waiting(cx, parts).map(|why| format!(" {why}")).unwrap_or_default();
    Said::not_ready(format!("{}{why}", rollout.message))
}

impl Said {
    fn not_ready(message: String) -> Self {
        Self { outcome: Outcome::NotReady, reason: NOT_READY.into(), message }
    }
}

/// What becomes of the claim that was made when the service is deleted: whoever deletes it should know.
fn claim_notice(cx: &Cx<'_>, parts: &Parts) -> Option<String> {
    let own = parts.claim.as_ref().filter(|own| own.spec.create == Some(true))?;
    let name = claim::name(cx, own);
    Some(match claim::is_retained(cx) {
        true => format!("; PersistentVolumeClaim {name} stays when this object is deleted"),
        false => format!("; PersistentVolumeClaim {name} and its data are deleted with this object"),
    })
}

fn finish(cx: &Cx<'_>, said: &Said, notices: Notices) -> Plan<NemoStatus> {
    let mut status = cx.before.cloned().unwrap_or_default();
    let before = status.state.clone();
    let Said { outcome, reason, message } = said;
    let (state, failed_reason) = match outcome {
        Outcome::Ready => (READY, READY),
        Outcome::NotReady => (NOT_READY, "Progressing"),
        Outcome::Failed => (FAILED, reason.as_str()),
    };
    let is_failed = *outcome == Outcome::Failed;
    let list = status.conditions.get_or_insert_default();
    let was = list.iter().find(|one| one.type_ == READY).map(|one| (one.reason.clone(), one.message.clone()));
    let (generation, now) = (cx.meta.generation, cx.facts.now);
    let mut set = |type_: &str, status: bool, reason: &str, message: &str| {
        conditions::set(list, Wanted { type_, status, reason, message }, generation, now);
    };
    set(READY, *outcome == Outcome::Ready, reason, message);
    set(FAILED, is_failed, failed_reason, if is_failed { message } else { "" });
    let joined = |messages: Vec<String>| Some(messages.join("; ")).filter(|text| !text.is_empty());
    match notices.dependencies {
        Some(Ok(message)) => set(DEPENDENCIES, true, "DependenciesReady", &message),
        Some(Err(message)) => set(DEPENDENCIES, false, "DependencyNotReady", &message),
        None => conditions::clear(list, DEPENDENCIES),
    }
    let others = [
        ("MissingAPI", joined(notices.missing_apis)),
        ("MissingReferences", joined(notices.missing)),
        ("InvalidFields", joined(notices.invalid)),
        ("DatabaseUnreachable", joined(notices.database)),
        ("VolumeNotShared", joined(notices.narrow)),
    ];
    for (type_, message) in others {
        match message {
            Some(message) => {
                conditions::set(
                    list,
                    Wanted { type_, status: true, reason: type_, message: &message },
                    generation,
                    now,
                );
            }
            None => conditions::clear(list, type_),
        }
    }
    common_conditions::set_common(list, cx.service.about().kind, &cx.service.json(), cx.facts, generation);
    status.state = Some(state.into());
    let events = note(said, state, before.as_deref(), was).into_iter().collect();
    Plan { objects: None, status, events, requeue: None, queries: Vec::new(), transient: false }
}

/// What is worth an event: another state, and a reason that somebody has to act on.
fn note(said: &Said, state: &'static str, before: Option<&str>, was: Option<(String, String)>) -> Option<Note> {
    const ACT: &[(&str, &str)] = &[
        ("SecretNotFound", "SecretNotFound"),
        ("SecretKeyNotFound", "SecretKeyNotFound"),
        ("ConfigMapNotFound", "ConfigMapNotFound"),
        ("ConfigMapKeyNotFound", "ConfigMapKeyNotFound"),
        ("PVCNotFound", "PVCNotFound"),
        ("DatabaseUnreachable", "DatabaseUnreachable"),
        ("ProgressDeadlineExceeded", "ProgressDeadlineExceeded"),
    ];
    let act = ACT.iter().find(|(reason, _)| *reason == said.reason).map(|(_, reason)| *reason);
    let is_new = was.is_none_or(|(reason, message)| reason != said.reason || message != said.message);
    if let Some(reason) = act {
        return is_new.then(|| Note { severity: Severity::Warning, reason, message: said.message.clone() });
    }
    // That a new service is not ready yet is no news.
    let another = match before.filter(|before| !before.is_empty()) {
        Some(before) => before != state,
        None => said.outcome != Outcome::NotReady,
    };
    let failed = said.outcome == Outcome::Failed;
    let severity = if failed { Severity::Warning } else { Severity::Normal };
    (another || (failed && is_new)).then(|| Note { severity, reason: state, message: said.message.clone() })
}
