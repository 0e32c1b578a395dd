//! Draining a node: wait for jobs, evict GPU pods, drain.

use capstan_plan::Severity;

use super::failure::Failure;
use super::journal::State;
use super::node::Work;
use super::pods::{PodController, PodView};
use super::settings::Eviction;

/// Poll interval in seconds of pods, and retry interval of rejected evictions.
pub const POLL_SECONDS: i64 = 15;

/// Waits for pods, until `until` at the latest.
fn requeue(work: &mut Work<'_>, why: String, until: Option<i64>) -> bool {
    let soon = work.now + POLL_SECONDS;
    work.wait(why, Some(until.map_or(soon, |until| until.min(soon))))
}

pub(super) fn wait_for_jobs(work: &mut Work<'_>) -> bool {
    let next = if work.settings.pod_deletion.is_some() { State::PodDeletion } else { State::Drain };
    let Some(wait) = &work.settings.wait else { return work.enter(next) };
    let start = work.since();
    let Some(pods) = work.pods() else { return requeue(work, "looks for jobs".into(), None) };
    let jobs: Vec<_> = pods.iter().filter(|pod| pod.active && wait.selector.matches(pod.labels)).collect();
    if jobs.is_empty() {
        return work.enter(next);
    }
    let Some(timeout) = wait.timeout else { return requeue(work, format!("waits for {}", names(&jobs)), None) };
    let start = *work.journal.wait_start.get_or_insert(start);
    if work.now > start + timeout {
        work.say(Severity::Warning, format!("no longer waits for {}", names(&jobs)));
        return work.enter(next);
    }
    requeue(work, format!("waits for {}", names(&jobs)), Some(start + timeout))
}

/// Workload pods of the validator, which finish on their own.
const OWN_CHECKS: [&str; 2] = ["nvidia-cuda-validator", "nvidia-device-plugin-validator"];

pub(super) fn pod_deletion(work: &mut Work<'_>) -> bool {
    let Some(eviction) = work.settings.pod_deletion else { return work.enter(State::Drain) };
    work.since();
    let Some(pods) = work.pods() else { return requeue(work, "looks for pods that use GPUs".into(), None) };
    let check = |pod: &PodView<'_>| pod.labels.get("app").is_some_and(|app| OWN_CHECKS.contains(&app));
    let pods: Vec<_> = pods.iter().filter(|pod| pod.active && pod.gpu && !check(pod)).collect();
    match evict(work, &pods, &eviction, "podDeletion") {
        Evicted::All => work.enter(State::PodRestart),
        Evicted::Waiting(why, until) => requeue(work, why, until),
        Evicted::Failed(why) if work.settings.drain.is_some() => {
            work.say(Severity::Warning, format!("drains the node, as pods that use GPUs could not be evicted: {why}"));
            work.enter(State::Drain)
        }
        Evicted::Failed(why) => work.fail(Failure::EvictionFailed, &why),
    }
}

pub(super) fn drain(work: &mut Work<'_>) -> bool {
    let Some(drain) = &work.settings.drain else { return work.enter(State::PodRestart) };
    work.since();
    let Some(pods) = work.pods() else { return requeue(work, "looks for pods to evict".into(), None) };
    let here = |pod: &&PodView<'_>| !matches!(pod.controller, PodController::DaemonSet | PodController::Kubelet);
    let selected = |pod: &&PodView<'_>| drain.selector.as_ref().is_some_and(|selector| selector.matches(pod.labels));
    let pods: Vec<_> = pods.iter().filter(|pod| pod.active).filter(here).filter(selected).collect();
    match evict(work, &pods, &drain.eviction, "drain") {
        Evicted::All => work.enter(State::PodRestart),
        Evicted::Waiting(why, until) => requeue(work, why, until),
        Evicted::Failed(why) => work.fail(Failure::DrainFailed, &why),
    }
}

enum Evicted {
    All,
    Waiting(String, Option<i64>),
    Failed(String),
}

/// Evicts all pods, or none if one must not be evicted.
fn evict<'a>(work: &mut Work<'a>, pods: &[&'a PodView<'a>], eviction: &Eviction, field: &str) -> Evicted {
    if pods.is_empty() {
        return Evicted::All;
    }
    if let Some(obstacle) = pods.iter().find_map(|pod| pod.obstacle(eviction, field)) {
        return Evicted::Failed(obstacle);
    }
    let refusal = pods.iter().find_map(|pod| Some(format!(", {}: {}", pod.pod.name, pod.refused?)));
    let why = format!("evicts {}{}", names(pods), refusal.unwrap_or_default());
    let until = eviction.timeout.map(|timeout| work.since() + timeout);
    if let Some(timeout) = eviction.timeout.filter(|_| until.is_some_and(|until| work.now > until)) {
        return Evicted::Failed(format!("{why}, for more than {timeout} s"));
    }
    work.evict = pods.iter().filter(|pod| !pod.terminating).map(|pod| pod.pod).collect();
    Evicted::Waiting(why, until)
}

fn names(pods: &[&PodView<'_>]) -> String {
    let first = pods.first().map(|pod| format!("pod {}/{}", pod.pod.namespace, pod.pod.name)).unwrap_or_default();
    match pods.len() {
        0 | 1 => first,
        count => format!("{first} and {} more", count - 1),
    }
}
