//! Why pods do not run: in their own words, and which of them wait for the database.

use std::collections::BTreeMap;
use std::time::Duration;

use capstan_plan::{Gvk, Live, Note, Severity};
use k8s_openapi::api::core::v1::{ContainerStatus, PersistentVolumeClaim, Pod, PodStatus};
use serde::Deserialize;

use super::super::database;
use super::description::Parts;
use super::{Cx, claim};
use crate::causes::Class;
use crate::causes::pods::unstarted;

/// A database that does not answer for so long is worth a condition.
const GRACE: Duration = Duration::from_secs(60);

/// What the first pod that does not run waits for, and how many more there are.
pub(super) fn waiting(cx: &Cx<'_>, parts: &Parts) -> Option<String> {
    let mut stuck = pods(cx).into_iter().filter_map(|pod| {
        let status = pod.status.as_ref()?;
        let reason = crate::pods::reason(status).or_else(|| volume(cx, parts, status))?;
        Some(format!("pod {}: {reason}", pod.metadata.name.unwrap_or_default()))
    });
    let first = stuck.next()?;
    match stuck.count() {
        0 => Some(first),
        more => Some(format!("{first} (and {more} more)")),
    }
}

/// What is wrong with pods that were never started, for an event; nothing that a condition has said before.
pub(super) fn news(cx: &Cx<'_>) -> Vec<Note> {
    let before = cx.before.and_then(|status| status.conditions.as_ref());
    let is_known = |what: &str| before.into_iter().flatten().any(|one| one.message.contains(what));
    let causes: BTreeMap<String, Class> =
        live(cx).filter_map(|pod| unstarted(&**pod)).map(|cause| (cause.what(""), cause.class)).collect();
    let news = causes.into_iter().filter(|(what, _)| !is_known(what));
    news.map(|(message, class)| Note { severity: Severity::Warning, reason: class.reason(), message }).collect()
}

/// Whether pods wait for a database that does not answer: what to say, or when to say it.
pub(super) fn database(cx: &Cx<'_>) -> Option<Result<String, Duration>> {
    let database = cx.service.database()?;
    let address = database::address(database);
    let said = |pod: &Pod, how: &str| {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        format!(
            "PostgreSQL at {address} does not answer: pod {name} {how}; check spec.databaseConfig and whether the database \
             runs"
        )
    };
    let mut soon: Option<Duration> = None;
    for pod in pods(cx) {
        let init = pod.status.as_ref().and_then(|status| status.init_container_statuses.clone()).unwrap_or_default();
        let Some(waits) = init.iter().find(|one| one.name == database::WAIT_CONTAINER) else { continue };
        if has_failed(waits) {
            return Some(Ok(said(&pod, "has given up waiting for it")));
        }
        let since =
            waits.state.as_ref().and_then(|state| state.running.as_ref()).and_then(|one| one.started_at.clone());
        let Some(since) = since else { continue };
        let waited = Duration::try_from(cx.facts.now.duration_since(since.0)).unwrap_or_default();
        if waited >= GRACE {
            return Some(Ok(said(&pod, "waits for it")));
        }
        soon = Some(soon.map_or(GRACE - waited, |soon| soon.min(GRACE - waited)));
    }
    soon.map(Err)
}

/// Whether the container ended badly and has not succeeded since.
fn has_failed(status: &ContainerStatus) -> bool {
    let ends = [status.state.as_ref(), status.last_state.as_ref()];
    let last = ends.into_iter().flatten().find_map(|state| state.terminated.as_ref());
    last.is_some_and(|end| end.exit_code != 0)
}

/// The pods of the service that are not going.
fn live<'a>(cx: &'a Cx<'_>) -> impl Iterator<Item = &'a Live> {
    let (kind, part_of) = (Gvk::of::<Pod>(), cx.service.about().part_of);
    let live = cx.live().iter().filter(move |(one, live)| {
        let meta = &live["metadata"];
        one.gvk == kind
            && meta["labels"]["app"] == cx.name.as_str()
            && meta["labels"]["app.kubernetes.io/part-of"] == part_of
            && meta["deletionTimestamp"].is_null()
    });
    live.map(|(_, live)| live)
}

fn pods(cx: &Cx<'_>) -> Vec<Pod> {
    live(cx).filter_map(|live| Pod::deserialize(&**live).ok()).collect()
}

/// Containers that are not even created often wait for their volume.
fn volume(cx: &Cx<'_>, parts: &Parts, status: &PodStatus) -> Option<String> {
    let own = parts.claim.as_ref().filter(|own| own.mounted && status.phase.as_deref() == Some("Pending"))?;
    let name = claim::name(cx, own);
    let live: PersistentVolumeClaim = cx.live().typed(&cx.namespace, &name)?;
    let phase = live.status.and_then(|status| status.phase)?;
    (phase != "Bound").then(|| format!("waits for its volume: PersistentVolumeClaim {name} is {phase}"))
}
