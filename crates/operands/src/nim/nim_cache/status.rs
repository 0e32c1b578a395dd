//! Status of a cache: state, conditions, profiles.

use std::time::Duration;

use capstan_api::nim::cache::NimProfile;
use capstan_api::nim::{NimBuild, NimCacheStatus};
use capstan_plan::conditions::{self, Wanted};
use capstan_plan::{Gvk, Plan};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;

use super::super::layout::ImageProtocol;
use super::super::manifest::Manifest;
use super::super::status_report::{About, StatusReport};
use super::{Cx, claim_name, has_claim, job, names};
use crate::pods;

pub(super) const READY: &str = "Ready";
const NOT_READY: &str = "NotReady";
const FAILED: &str = "Failed";

const JOB_CREATED: &str = "NIM_CACHE_JOB_CREATED";
const JOB_COMPLETED: &str = "NIM_CACHE_JOB_COMPLETED";
const JOB_PENDING: &str = "NIM_CACHE_JOB_PENDING";
const PVC_CREATED: &str = "NIM_CACHE_PVC_CREATED";
const IMAGE_UNKNOWN: &str = "ImageUnknown";
const RECONCILE_FAILED: &str = "NIM_CACHE_RECONCILE_FAILED";

/// Timeout after which the cache counts as failed. The manifest pod is still watched.
const MANIFEST: Duration = Duration::from_secs(900);
/// Resync interval for node changes, which do not requeue caches.
const NODE_RESYNC: Duration = Duration::from_secs(60);

/// The step of a cache.
pub(super) enum Step {
    /// The spec is invalid.
    Invalid(String),
    /// Blocked from outside: reason and message.
    Blocked(String, String),
    /// The user's PersistentVolumeClaim does not exist.
    NoClaim(String),
    /// The registry is queried for this image.
    Inspect(String),
    /// The manifest pod runs.
    Manifest(Option<Box<Pod>>),
    /// The manifest cannot be parsed.
    BadManifest(String),
    /// No profile matches.
    NoProfile(String),
    /// The download Job runs.
    Download(Option<Box<Job>>, Option<Manifest>),
    /// Complete.
    Ready,
}

/// A plan with only the status of `step`.
pub(super) fn show(cx: &Cx<'_>, step: Step) -> Plan<NimCacheStatus> {
    // An error does not unready a cached model.
    let state = if cx.is_ready() { READY } else { NOT_READY };
    let stuck = |reason: &str, message: String| StatusReport::new(state).problem(RECONCILE_FAILED, reason, message);
    let gone = matches!(step, Step::NoClaim(_));
    let mut profiles = if cx.is_ready() && !gone { cached(cx) } else { Vec::new() };
    let report = match step {
        Step::Invalid(message) => stuck("InvalidSpec", message),
        Step::Blocked(reason, message) => stuck(&reason, message),
        Step::NoClaim(name) => StatusReport::new(NOT_READY).problem(
            RECONCILE_FAILED,
            "PersistentVolumeClaimNotFound",
            format!("PersistentVolumeClaim {name} is not there: create it, or set spec.storage.pvc.create: true"),
        ),
        Step::BadManifest(message) => stuck("BadManifest", message),
        Step::NoProfile(message) => stuck("NoProfileSelected", message).requeue_after(NODE_RESYNC),
        Step::Inspect(image) => {
            let state = if has_claim(cx) { "PVC-Created" } else { NOT_READY };
            let message = format!("asking the registry how image {image} gets its model");
            StatusReport::new(state).with(JOB_PENDING, true, "InspectingImage", message)
        }
        Step::Manifest(pod) => manifest(cx, pod.as_deref()),
        Step::Download(job, kept) => {
            let report = download(cx, job.as_deref());
            if report.state == READY {
                profiles = job.map(|job| downloaded(&job, kept.as_ref())).unwrap_or_default();
            }
            report
        }
        Step::Ready => ready(cx),
    };
    write(cx, &report, profiles)
}

/// Status while the manifest pod runs.
fn manifest(cx: &Cx<'_>, pod: Option<&Pod>) -> StatusReport {
    let state = if has_claim(cx) { "PVC-Created" } else { NOT_READY };
    let Some(pod) = pod else { return StatusReport::new(state) };
    let since = pod.metadata.creation_timestamp.as_ref().map_or(cx.facts.now, |time| time.0);
    let waited = elapsed(since, cx.facts.now);
    let name = names::pod(cx);
    let unread = cx.printed().and_then(Result::err).map(|why| format!("the log of pod {name} cannot be read: {why}"));
    let reason = pods::waiting_reason(pod).or(unread);
    if waited >= MANIFEST {
        let why = reason.unwrap_or_else(|| format!("pod {name} has not ended"));
        let message = format!("the list of profiles could not be read for {} minutes: {why}", waited.as_secs() / 60);
        return StatusReport::new(FAILED)
            .problem(RECONCILE_FAILED, "ManifestTimeout", message)
            .requeue_after(NODE_RESYNC);
    }
    let message = reason.unwrap_or_else(|| format!("waiting for pod {name} to print the list of profiles"));
    StatusReport::new(state).with(JOB_PENDING, true, "WaitingForManifest", message).requeue_after(MANIFEST - waited)
}

/// Status of the download Job.
fn download(cx: &Cx<'_>, job: Option<&Job>) -> StatusReport {
    let Some(job) = job else {
        return StatusReport::new(if has_claim(cx) { "PVC-Created" } else { NOT_READY });
    };
    let status = job.status.clone().unwrap_or_default();
    let is = |type_: &str| status.conditions.iter().flatten().find(|c| c.type_ == type_ && c.status == "True");
    let name = names::job(cx);
    let created =
        |report: StatusReport| report.with(JOB_CREATED, true, "JobCreated", format!("Job {name} downloads the model"));
    if is("Complete").is_some() {
        return created(StatusReport::new(READY))
            .with(JOB_PENDING, false, "JobCompleted", "")
            .with(FAILED, false, READY, "")
            .with(JOB_COMPLETED, true, "JobCompleted", format!("Job {name} has downloaded the model"));
    }
    if let Some(failed) = is("Failed") {
        let why = cx.pods().iter().rev().find_map(pods::termination_message).or_else(|| failed.message.clone());
        let why = why.unwrap_or_else(|| "no reason is known".into());
        let message = format!("Job {name} has failed: {why}; it is tried again when Kubernetes removes the Job");
        return created(StatusReport::new(FAILED))
            .with(JOB_PENDING, false, "JobFailed", "")
            .with(JOB_COMPLETED, false, "JobFailed", message.clone())
            .problem(FAILED, "JobFailed", message);
    }
    if status.start_time.is_none() {
        return created(StatusReport::new("Started"));
    }
    let failures = status.failed.unwrap_or(0);
    let last = cx
        .pods()
        .iter()
        .rev()
        .find_map(pods::termination_message)
        .map(|words| format!(": {words}"))
        .unwrap_or_default();
    let retry =
        if failures > 0 { format!(" (try {} of 6 after a failure{last})", failures + 1) } else { String::new() };
    if let Some(reason) = cx.pod_waiting_reason() {
        return created(StatusReport::new("Pending")).with(JOB_PENDING, true, "JobPending", format!("{reason}{retry}"));
    }
    if status.active.unwrap_or(0) == 0 {
        let message = format!("Job {name} has no pod yet{retry}");
        return created(StatusReport::new("Pending")).with(JOB_PENDING, true, "JobPending", message);
    }
    let progress = cx.progress().map(|progress| format!(": {progress}")).unwrap_or_default();
    let message = format!("Job {name} is downloading{progress}{retry}");
    created(StatusReport::new("InProgress")).with(JOB_PENDING, false, "JobRunning", message)
}

/// Final, unless the claim and the model with it are gone.
fn ready(cx: &Cx<'_>) -> StatusReport {
    if has_claim(cx) {
        return StatusReport::new(READY);
    }
    let message = format!("PersistentVolumeClaim {} is gone, and the model with it", claim_name(cx.cache));
    StatusReport::new(NOT_READY)
        .problem(RECONCILE_FAILED, "PersistentVolumeClaimNotFound", message)
        .requeue_after(Duration::ZERO)
}

/// The cached profiles: downloaded, and added by builds.
fn cached(cx: &Cx<'_>) -> Vec<NimProfile> {
    let mut profiles = cx.status().and_then(|status| status.profiles.clone()).unwrap_or_default();
    let gvk = Gvk::of::<NimBuild>();
    let builds = cx.facts.live.iter().filter(|(reference, _)| reference.gvk == gvk);
    let builds = builds.filter_map(|(reference, _)| cx.facts.live.typed::<NimBuild>(&cx.namespace, &reference.name));
    for build in builds.filter(|build| build.spec.nim_cache.name == cx.name) {
        let Some(status) = build.status else { continue };
        let Some(mut output) = status.output_profile else { continue };
        if profiles.iter().any(|profile| profile.name == output.name) {
            continue;
        }
        let input = status.input_profile.and_then(|input| input.name).unwrap_or_default();
        output.config.get_or_insert_default().insert("input_profile".into(), input);
        profiles.push(output);
    }
    profiles
}

/// The profiles that a finished Job downloaded.
fn downloaded(job: &Job, kept: Option<&Manifest>) -> Vec<NimProfile> {
    let selected = job::selected(job).unwrap_or_default();
    let selected = selected.into_iter().filter(|id| id != "all");
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    selected
        .map(|id| match kept.and_then(|manifest| manifest.profile(&id)) {
            Some(profile) => NimProfile {
                name: Some(id),
                model: text(&profile.model),
                release: text(&profile.release),
                config: Some(profile.tags.clone()).filter(|tags| !tags.is_empty()),
            },
            None => NimProfile { name: Some(id), ..NimProfile::default() },
        })
        .collect()
}

fn write(cx: &Cx<'_>, report: &StatusReport, profiles: Vec<NimProfile>) -> Plan<NimCacheStatus> {
    let mut status = cx.status().cloned().unwrap_or_default();
    let list = status.conditions.get_or_insert_default();
    let (generation, now) = (cx.cache.metadata.generation, cx.facts.now);
    let claim = claim_name(cx.cache);
    if has_claim(cx) {
        let message = format!("PersistentVolumeClaim {claim} is there");
        let wanted = Wanted { type_: PVC_CREATED, status: true, reason: "PVCCreated", message: &message };
        conditions::set(list, wanted, generation, now);
    }
    if !report.has(RECONCILE_FAILED) && list.iter().any(|condition| condition.type_ == RECONCILE_FAILED) {
        let wanted = Wanted { type_: RECONCILE_FAILED, status: false, reason: "Reconciled", message: "" };
        conditions::set(list, wanted, generation, now);
    }
    let unknown = match cx.image_protocol() {
        ImageProtocol::Unknown(why) => Some(format!("{why}; the image counts as one with a manifest")),
        // Keep the message that an earlier leader wrote.
        ImageProtocol::Pending => conditions::current_message(Some(list), IMAGE_UNKNOWN, generation),
        _ => None,
    };
    match unknown {
        Some(message) => {
            let wanted = Wanted { type_: IMAGE_UNKNOWN, status: true, reason: IMAGE_UNKNOWN, message: &message };
            conditions::set(list, wanted, generation, now);
        }
        None => conditions::clear(list, IMAGE_UNKNOWN),
    }
    let about = About { kind: "NIMCache", spec: cx.spec(), generation, facts: cx.facts };
    let note = report.apply(status.state.as_deref(), list, &about);
    status.state = Some(report.state.into());
    status.type_ = Some(cx.type_().to_owned()).filter(|type_| !type_.is_empty());
    // The model is in the claim that it was downloaded into, whatever the spec says now.
    let before = status.pvc.take().filter(|name| cx.is_ready() && !name.is_empty());
    status.pvc = (report.state == READY).then(|| before.unwrap_or(claim));
    status.profiles = Some(profiles).filter(|profiles| !profiles.is_empty());
    Plan {
        objects: None,
        status,
        events: note.into_iter().collect(),
        requeue: report.requeue,
        queries: Vec::new(),
        transient: false,
    }
}

fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::from_secs(u64::try_from(now.as_second() - since.as_second()).unwrap_or(0))
}
