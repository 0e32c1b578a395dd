//! Status of a build: state, conditions, input and output profile.

use std::time::Duration;

use capstan_api::nim::NimBuildStatus;
use capstan_api::nim::cache::NimProfile;
use capstan_plan::Plan;
use capstan_plan::conditions;
use k8s_openapi::api::core::v1::Pod;

use super::super::status_report::{About, StatusReport};
use super::{Cx, pods};
use crate::pods::{phase, termination_message, waiting_reason};

const WAIT_FOR_CACHE: &str = "NIM_BUILD_WAIT_FOR_NIM_CACHE_READY";
const RECONCILE_FAILED: &str = "NIM_BUILD_RECONCILE_FAILED";
const MANY: &str = "NIM_BUILD_MULTIPLE_BUILDABLE_PROFILES_FOUND";
const SINGLE: &str = "NIM_BUILD_SINGLE_BUILDABLE_PROFILE_FOUND";
const NONE: &str = "NIM_BUILD_NO_BUILDABLE_PROFILE_FOUND";
const POD_CREATED: &str = "NIM_BUILD_ENGINE_BUILD_POD_CREATED";
pub(super) const BUILD_COMPLETED: &str = "NIM_BUILD_ENGINE_BUILD_POD_COMPLETED";
const POD_PENDING: &str = "NIM_BUILD_ENGINE_BUILD_POD_PENDING";
pub(super) const MANIFEST_COMPLETED: &str = "NIM_BUILD_MODEL_MANIFEST_POD_COMPLETED";
const NO_CACHE: &str = "NIM_BUILD_NIM_CACHE_NOT_FOUND";
const CACHE_FAILED: &str = "NIM_BUILD_NIM_CACHE_FAILED";

/// Conditions of waiting steps; cleared when the build proceeds.
const PASSING: [&str; 6] = [WAIT_FOR_CACHE, RECONCILE_FAILED, MANY, NONE, NO_CACHE, CACHE_FAILED];

/// Timeout after which a build counts as failed. Its pod is still watched.
const BUILD: Duration = Duration::from_secs(6 * 3600);
/// The same for the manifest pod.
const MANIFEST: Duration = Duration::from_secs(900);

/// The step of a build.
pub(super) enum Step {
    Blocked(String, String),
    NoCache(String),
    CacheFailed(String),
    WaitForCache(String, String),
    NoProfile(String),
    ManyProfiles(String),
    NoGpus(String),
    Build(NimProfile, Option<Box<Pod>>),
    Manifest(Option<Box<Pod>>),
    NoManifest(String),
    Built(NimProfile),
    Done,
}

/// A plan with only the status of `step`.
pub(super) fn show(cx: &Cx<'_>, step: Step) -> Plan<NimBuildStatus> {
    let mut status = cx.build.status.clone().unwrap_or_default();
    let failed = |type_, reason: &str, message: String| StatusReport::new("Failed").problem(type_, reason, message);
    let report = match step {
        Step::NoCache(name) => failed(
            NO_CACHE,
            "NIMCacheNotFound",
            format!("NIMCache {name} is not there: create it, and the build goes on"),
        ),
        Step::CacheFailed(name) => {
            failed(CACHE_FAILED, "NIMCacheFailed", format!("NIMCache {name} has failed: see its conditions"))
        }
        Step::WaitForCache(name, state) => StatusReport::new("Pending").with(
            WAIT_FOR_CACHE,
            true,
            "WaitForNIMCache",
            format!("NIMCache {name} is {state}, not Ready yet"),
        ),
        Step::NoProfile(message) => failed(NONE, "NoBuildableProfilesFound", message),
        Step::ManyProfiles(message) => failed(MANY, "MultipleBuildableProfilesFound", message),
        Step::Blocked(reason, message) => failed(RECONCILE_FAILED, &reason, message),
        Step::NoGpus(message) => failed(RECONCILE_FAILED, "InvalidSpec", message),
        Step::NoManifest(message) => failed(RECONCILE_FAILED, "NoOutputProfile", message),
        Step::Build(profile, pod) => {
            let name = profile.name.clone().unwrap_or_default();
            status.input_profile = Some(profile);
            building(cx, &name, pod.as_deref())
        }
        Step::Manifest(pod) => printing(cx, pod.as_deref()),
        Step::Built(output) => {
            let message = format!("profile {} was built", output.name.as_deref().unwrap_or_default());
            status.output_profile = Some(output);
            StatusReport::new("Ready").with(MANIFEST_COMPLETED, true, "PodCompleted", message)
        }
        Step::Done => StatusReport::new("Ready"),
    };
    let list = status.conditions.get_or_insert_default();
    let about = About { kind: "NIMBuild", spec: cx.spec(), generation: cx.build.metadata.generation, facts: cx.facts };
    let note = report.apply(status.state.as_deref(), list, &about);
    PASSING.iter().filter(|type_| !report.has(type_)).for_each(|type_| conditions::clear(list, type_));
    status.state = Some(report.state.into());
    Plan {
        objects: None,
        status,
        events: note.into_iter().collect(),
        requeue: report.requeue,
        queries: Vec::new(),
        transient: false,
    }
}

fn building(cx: &Cx<'_>, profile: &str, pod: Option<&Pod>) -> StatusReport {
    let name = pods::build_name(cx);
    let found = |report: StatusReport| {
        report.with(SINGLE, true, "BuildableProfileFound", format!("building from profile {profile}"))
    };
    let Some(pod) = pod else { return found(StatusReport::new("NotReady")) };
    let created = |report: StatusReport| {
        found(report).with(POD_CREATED, true, "EngineBuildPodCreated", format!("pod {name} builds the engine"))
    };
    if pods::is_ready(pod) {
        return created(StatusReport::new("InProgress"))
            .with(POD_PENDING, false, "PodReady", "")
            .with(BUILD_COMPLETED, true, "PodReady", format!("pod {name} has built the engine"))
            .requeue_after(Duration::ZERO);
    }
    if phase(pod) == "Failed" {
        let why = termination_message(pod).unwrap_or_else(|| "no reason is known".into());
        let message = format!("pod {name} has failed: {why}; delete the pod to try again");
        return created(StatusReport::new("Failed"))
            .with(BUILD_COMPLETED, false, "PodFailed", message.clone())
            .problem(RECONCILE_FAILED, "PodFailed", message);
    }
    let waited = waited(cx, pod);
    let state = waiting_reason(pod).unwrap_or_else(|| format!("pod {name} is building the engine"));
    if waited >= BUILD {
        let message = format!("the engine is not built after {} hours: {state}", waited.as_secs() / 3600);
        return created(StatusReport::new("Failed")).problem(RECONCILE_FAILED, "BuildTimeout", message);
    }
    created(StatusReport::new("InProgress")).with(POD_PENDING, true, "PodRunning", state).requeue_after(BUILD - waited)
}

fn printing(cx: &Cx<'_>, pod: Option<&Pod>) -> StatusReport {
    let Some(pod) = pod else { return StatusReport::new("InProgress") };
    let name = pods::manifest_name(cx);
    let waited = waited(cx, pod);
    let unread = cx.printed().and_then(Result::err).map(|why| format!("the log of pod {name} cannot be read: {why}"));
    let waiting = || format!("waiting for pod {name} to print the list of profiles");
    let state = waiting_reason(pod).or(unread).unwrap_or_else(waiting);
    if waited >= MANIFEST {
        let message = format!("the list of profiles could not be read for {} minutes: {state}", waited.as_secs() / 60);
        return StatusReport::new("Failed").problem(RECONCILE_FAILED, "ManifestTimeout", message);
    }
    StatusReport::new("InProgress")
        .with(MANIFEST_COMPLETED, false, "PodRunning", state)
        .requeue_after(MANIFEST - waited)
}

fn waited(cx: &Cx<'_>, pod: &Pod) -> Duration {
    let since = pod.metadata.creation_timestamp.as_ref().map_or(cx.facts.now, |time| time.0);
    Duration::from_secs(u64::try_from(cx.facts.now.as_second() - since.as_second()).unwrap_or(0))
}
