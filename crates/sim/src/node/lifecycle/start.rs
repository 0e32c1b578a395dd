//! Start of a container: image pull, creation, run.

use std::time::Duration;

use super::container::{Role, Run, Stage};
use super::{Effect, Machine, StepContext};
use crate::events::Severity;
use crate::node::backoff::{after, go_duration};
use crate::node::behaviour::{Exit, is_of_job};

/// Default run time of a container of a Job.
const DEFAULT_JOB_DURATION: Duration = Duration::from_secs(1);
/// Retry interval of a container that could not be created.
const CREATE_RETRY: Duration = Duration::from_secs(10);

impl Machine {
    pub(super) fn pull(&mut self, at: usize, cx: &mut StepContext<'_, '_>) {
        let container = &cx.containers[at].1;
        let behaviour = (cx.inputs.behaviour)(container);
        let image = container.image.clone().unwrap_or_default();
        let present = cx.inputs.images.contains(&image);
        let policy = container.image_pull_policy.as_deref().unwrap_or("IfNotPresent");
        if policy == "Never" || (present && policy != "Always") {
            let message =
                format!("Container image {image:?} already present on machine and can be accessed by the pod");
            cx.event(Some(at), Severity::Normal, "Pulled", message);
            return self.create(at, cx);
        }
        cx.event(Some(at), Severity::Normal, "Pulling", format!("Pulling image {image:?}"));
        let slot = &mut self.slots[at];
        let fails = behaviour.pull_failure.is_some_and(|failure| failure.times.is_none_or(|n| slot.failed_pulls < n));
        let time = if present { Duration::ZERO } else { behaviour.pull_time.unwrap_or_default() };
        slot.stage = Stage::Pulling { until: after(cx.now, time), fails };
    }

    pub(super) fn pulled(&mut self, at: usize, cx: &mut StepContext<'_, '_>) {
        let container = &cx.containers[at].1;
        let image = container.image.clone().unwrap_or_default();
        let time = (cx.inputs.behaviour)(container).pull_time.unwrap_or_default();
        let time = go_duration(time);
        let message = format!(
            "Successfully pulled image {image:?} in {time} ({time} including waiting). Image size: {} bytes.",
            50_000_000 + image.len()
        );
        cx.inputs.images.insert(image);
        cx.event(Some(at), Severity::Normal, "Pulled", message);
        self.create(at, cx);
    }

    pub(super) fn pull_failed(&mut self, at: usize, cx: &mut StepContext<'_, '_>) {
        let container = &cx.containers[at].1;
        let image = container.image.clone().unwrap_or_default();
        let behaviour = (cx.inputs.behaviour)(container);
        let registry_message =
            behaviour.pull_failure.map(|failure| failure.message).filter(|message| !message.is_empty());
        let message = registry_message.unwrap_or_else(|| {
            format!(
                "rpc error: code = NotFound desc = failed to pull and unpack image {image:?}: failed to resolve \
                 reference {image:?}: {image}: not found"
            )
        });
        cx.event(Some(at), Severity::Warning, "Failed", format!("Failed to pull image {image:?}: {message}"));
        cx.event(Some(at), Severity::Warning, "Failed", "Error: ErrImagePull".to_owned());
        cx.event(Some(at), Severity::Normal, "BackOff", format!("Back-off pulling image {image:?}"));
        cx.event(Some(at), Severity::Warning, "Failed", "Error: ImagePullBackOff".to_owned());
        let slot = &mut self.slots[at];
        slot.failed_pulls += 1;
        slot.pulls.attempt(cx.now, cx.now);
        let until = after(cx.now, slot.pulls.delay(cx.now));
        slot.stage = Stage::PullFailed { since: cx.now, until, message: message.into() };
    }

    pub(super) fn create(&mut self, at: usize, cx: &mut StepContext<'_, '_>) {
        let container = &cx.containers[at].1;
        let behaviour = (cx.inputs.behaviour)(container);
        let slot = &mut self.slots[at];
        let failure = behaviour.start_failure.filter(|failure| failure.times.is_none_or(|n| slot.failed_starts < n));
        let failure = match (cx.inputs.misconfigured)(container) {
            Some(message) => Some(("CreateContainerConfigError".to_owned(), message)),
            None => failure.map(|failure| (failure.reason, failure.message)),
        };
        if let Some((reason, message)) = failure {
            slot.failed_starts += 1;
            let until = after(cx.now, CREATE_RETRY);
            cx.event(Some(at), Severity::Warning, "Failed", format!("Error: {message}"));
            self.slots[at].stage = Stage::StartFailed { until, reason: reason.into(), message: message.into() };
            return;
        }
        match behaviour.start_time.filter(|time| !time.is_zero()) {
            Some(time) => slot.stage = Stage::Starting { until: after(cx.now, time) },
            None => self.run(at, cx),
        }
    }

    pub(super) fn run(&mut self, at: usize, cx: &mut StepContext<'_, '_>) {
        let (now, (role, container)) = (cx.now, &cx.containers[at]);
        let behaviour = (cx.inputs.behaviour)(container);
        let slot = &mut self.slots[at];
        slot.runs += 1;
        slot.ended = None;
        let delay = |probe: Option<i32>| Duration::from_secs(u64::try_from(probe.unwrap_or(0)).unwrap_or(0));
        let startup = container.startup_probe.as_ref().map(|probe| probe.initial_delay_seconds.unwrap_or(0));
        let readiness = container.readiness_probe.as_ref().map(|probe| probe.initial_delay_seconds.unwrap_or(0));
        let up = after(now, behaviour.started_after.unwrap_or_else(|| delay(startup)));
        let ready = after(up, behaviour.ready_after.unwrap_or_else(|| delay(readiness)));
        let usual = match role {
            _ if behaviour.body.is_some() => Exit::Never,
            Role::Init => Exit::after(Duration::ZERO, 0),
            Role::Main if is_of_job(cx.pod) => Exit::after(DEFAULT_JOB_DURATION, 0),
            _ => Exit::Never,
        };
        let configured = behaviour.exit.filter(|exit| match exit {
            Exit::After { times: Some(times), .. } => slot.runs <= *times,
            _ => true,
        });
        let exit = match configured.unwrap_or(usual) {
            Exit::Never => None,
            Exit::After { time, code, reason, .. } => Some((after(now, time), code, reason.map(Into::into))),
        };
        slot.stage = Stage::Running(Run {
            since: now,
            up,
            ready: behaviour.ready.unwrap_or(true).then_some(ready),
            unhealthy: behaviour.unhealthy_after.map(|time| after(now, time)),
            exit,
            stopping: false,
        });
        let run = slot.runs;
        cx.event(Some(at), Severity::Normal, "Created", "Container created".to_owned());
        cx.event(Some(at), Severity::Normal, "Started", "Container started".to_owned());
        cx.effects.push(Effect::Start { container: at, run });
    }
}
