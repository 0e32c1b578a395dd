//! The life of a pod on a node, as a machine: given the pod, the time and how its containers behave, it says what happens
//! now and when to look again. It does nothing itself; what is to be done comes out as [`Effect`]s.

use std::borrow::Cow;
use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use super::backoff::{Backoff, after};
use super::behaviour::{Behaviour, Exit, is_of_job};
use crate::events::Severity;
use crate::scheduler::resources::is_sidecar;

/// How long a container of a job runs unless a rule says otherwise.
const JOB_TIME: Duration = Duration::from_secs(1);
/// How long a failed pull is called so before it is called a back-off.
const PULL_ERROR_TIME: Duration = Duration::from_secs(1);
/// When a container that could not be created is tried again.
const CREATE_RETRY: Duration = Duration::from_secs(10);
/// Exit code of a process that was killed.
const KILLED: i32 = 137;

/// What a container is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Runs before others, and ends.
    Init,
    /// Starts before others, and stays.
    Sidecar,
    /// What the pod is for.
    Main,
    /// Added later, to look into the pod.
    Ephemeral,
}

/// How a run of a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) code: i32,
    pub(super) reason: Box<str>,
    pub(super) started: Timestamp,
    pub(super) finished: Timestamp,
    /// Which run it was, from 1 on.
    pub(super) run: u32,
}

/// Where a container is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It waits for its turn.
    Idle,
    Pulling {
        until: Timestamp,
        fails: bool,
    },
    PullFailed {
        since: Timestamp,
        until: Timestamp,
        message: Box<str>,
    },
    Starting {
        until: Timestamp,
    },
    StartFailed {
        until: Timestamp,
        reason: Box<str>,
        message: Box<str>,
    },
    Running(Run),
    /// It waits before it is started again.
    BackingOff {
        until: Timestamp,
        delay: Duration,
    },
    /// It is over, as `ended` says.
    Over,
}

/// A run of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) since: Timestamp,
    /// When it has started up.
    pub(super) up: Timestamp,
    /// When it is ready, if ever.
    pub(super) ready: Option<Timestamp>,
    unhealthy: Option<Timestamp>,
    /// When and how it ends.
    exit: Option<(Timestamp, i32, Option<Box<str>>)>,
    stopping: bool,
}

/// A container.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) role: Role,
    pub(super) stage: Stage,
    /// The end of the current run.
    pub(super) ended: Option<Box<Ended>>,
    /// The end of the run before.
    pub(super) last: Option<Box<Ended>>,
    pub(super) restarts: i32,
    /// How often it was started.
    pub(super) runs: u32,
    crashes: Backoff,
    pulls: Backoff,
    failed_pulls: u32,
    failed_starts: u32,
    /// Readiness as somebody has set it.
    forced_ready: Option<bool>,
}

/// Why a pod ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It was deleted.
    Deleted,
    /// Its containers are over.
    Completed,
    /// It failed as a whole.
    Failed { reason: Box<str>, message: Box<str> },
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Report an event, about the pod or one of its containers.
    Event { container: Option<usize>, severity: Severity, reason: &'static str, message: String },
    /// A container starts: its body is to run.
    Start { container: usize, run: u32 },
    /// A container is told to end.
    Stop { container: usize },
    /// A container is over, whatever its body does.
    Kill { container: usize },
}

/// What a machine may ask.
pub(super) struct Surroundings<'a> {
    /// How a container behaves.
    pub(super) behaviour: &'a dyn Fn(&Container) -> Behaviour,
    /// What is wrong with the configuration of a container, if anything.
    pub(super) misconfigured: &'a dyn Fn(&Container) -> Option<String>,
    /// Images that are on the node.
    pub(super) images: &'a mut HashSet<String>,
}

/// A pod on a node.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) slots: Vec<Slot>,
    /// When the node took the pod in.
    pub(super) started: Timestamp,
    /// Whether all init containers have done their work.
    pub(super) initialized: bool,
    /// Why nothing starts, for instance a volume that is not there, and when to look again.
    pub(super) blocked: Option<Timestamp>,
    end: Option<(End, Timestamp)>,
    /// Whether everything has ended.
    pub(super) finished: bool,
}

/// All containers of a pod: init containers, then the others, then those that were added later.
pub(super) fn containers(spec: &PodSpec) -> impl Iterator<Item = (Role, Cow<'_, Container>)> {
    let init = spec.init_containers.iter().flatten();
    let init = init.map(|c| (if is_sidecar(c) { Role::Sidecar } else { Role::Init }, Cow::Borrowed(c)));
    let main = spec.containers.iter().map(|c| (Role::Main, Cow::Borrowed(c)));
    let ephemeral = spec.ephemeral_containers.iter().flatten().map(|c| {
        let container = Container {
            name: c.name.clone(),
            image: c.image.clone(),
            image_pull_policy: c.image_pull_policy.clone(),
            command: c.command.clone(),
            args: c.args.clone(),
            env: c.env.clone(),
            ..Container::default()
        };
        (Role::Ephemeral, Cow::Owned(container))
    });
    init.chain(main).chain(ephemeral)
}

impl Slot {
    fn new(role: Role) -> Self {
        Self {
            role,
            stage: Stage::Idle,
            ended: None,
            last: None,
            restarts: 0,
            runs: 0,
            crashes: Backoff::default(),
            pulls: Backoff::default(),
            failed_pulls: 0,
            failed_starts: 0,
            forced_ready: None,
        }
    }

    /// Whether it has started up.
    pub(super) fn is_up(&self, now: Timestamp) -> bool {
        matches!(&self.stage, Stage::Running(run) if run.up <= now)
    }

    /// Whether it is ready; an init container is when it has done its work.
    pub(super) fn is_ready(&self, now: Timestamp) -> bool {
        match (&self.stage, self.role) {
            (Stage::Over, Role::Init) => self.ended.as_ref().is_some_and(|ended| ended.code == 0),
            (Stage::Running(_), Role::Init) => false,
            (Stage::Running(run), _) => {
                self.forced_ready.unwrap_or_else(|| run.ready.is_some_and(|ready| ready <= now))
            }
            _ => false,
        }
    }

    /// Whether containers that come after this one may start.
    fn lets_others_start(&self, now: Timestamp) -> bool {
        if self.role == Role::Init { self.is_ready(now) } else { self.is_up(now) }
    }

    fn is_running(&self) -> bool {
        matches!(self.stage, Stage::Running(_))
    }

    fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// When something happens by itself.
    fn due(&self, now: Timestamp) -> Option<Timestamp> {
        match &self.stage {
            Stage::Idle | Stage::Over => None,
            Stage::Pulling { until, .. } | Stage::Starting { until } => Some(*until),
            Stage::StartFailed { until, .. } | Stage::BackingOff { until, .. } => Some(*until),
            Stage::PullFailed { since, until, .. } => {
                let renamed = after(*since, PULL_ERROR_TIME);
                Some(if renamed > now { renamed.min(*until) } else { *until })
            }
            Stage::Running(run) => {
                let exit = run.exit.as_ref().map(|(at, ..)| *at);
                let milestones = [Some(run.up), run.ready].into_iter().flatten().filter(|at| *at > now);
                milestones.chain(exit).chain(run.unhealthy).min()
            }
        }
    }
}

impl Machine {
    /// A pod that has just come.
    pub(super) fn new(pod: &Pod, now: Timestamp) -> Self {
        let spec = pod.spec.as_ref();
        let slots: Vec<Slot> = spec.into_iter().flat_map(containers).map(|(role, _)| Slot::new(role)).collect();
        Self { slots, started: now, initialized: false, blocked: None, end: None, finished: false }
    }

    /// Whether the pod ends, and why.
    pub(super) fn end(&self) -> Option<&End> {
        self.end.as_ref().map(|(end, _)| end)
    }

    /// Whether no container was started yet.
    pub(super) fn is_new(&self) -> bool {
        self.slots.iter().all(|slot| slot.stage == Stage::Idle && slot.runs == 0)
    }

    /// When to look again, if nothing else happens.
    pub(super) fn due(&self, pod: &Pod, now: Timestamp) -> Option<Timestamp> {
        if self.finished {
            return None;
        }
        // When a pod ends, nothing but ends is waited for.
        let slots = self.slots.iter().filter(|slot| self.end.is_none() || slot.is_running());
        let slots = slots.filter_map(|slot| slot.due(now));
        let deadline = if self.end.is_none() { self.deadline(pod) } else { None };
        let blocked = self.blocked.filter(|_| self.end.is_none());
        slots.chain(deadline).chain(blocked).min()
    }

    /// Makes the pod end. A reason that is there already stays, but a deletion may hurry it up.
    pub(super) fn finish(&mut self, end: End, deadline: Timestamp) {
        match &mut self.end {
            None => self.end = Some((end, deadline)),
            Some((_, before)) => *before = deadline.min(*before),
        }
    }

    /// A body ended.
    pub(super) fn exited(&mut self, container: usize, run: u32, code: i32, now: Timestamp) {
        if let Some(slot) = self.slots.get_mut(container).filter(|slot| slot.runs == run)
            && let Stage::Running(running) = &mut slot.stage
        {
            running.exit = Some((now, code, None));
        }
    }

    /// Ends the current run of a container.
    pub(super) fn kill(&mut self, container: usize, code: i32, reason: Option<&str>, now: Timestamp) {
        if let Some(Stage::Running(running)) = self.slots.get_mut(container).map(|slot| &mut slot.stage) {
            running.exit = Some((now, code, reason.map(Into::into)));
        }
    }

    /// Makes a container ready or not, whatever its behaviour; nothing gives it back to its behaviour.
    pub(super) fn force_ready(&mut self, container: usize, ready: Option<bool>) {
        if let Some(slot) = self.slots.get_mut(container) {
            slot.forced_ready = ready;
        }
    }

    /// The node was started again: nothing that ran runs any more, and init containers do their work again.
    pub(super) fn reboot(&mut self, now: Timestamp) {
        if self.finished || self.end.is_some() {
            return;
        }
        self.initialized = false;
        for slot in &mut self.slots {
            if let Stage::Running(run) = &slot.stage {
                let (started, run) = (run.since, slot.runs);
                slot.last = Some(Box::new(Ended { code: 255, reason: "Unknown".into(), started, finished: now, run }));
                slot.restarts += 1;
                slot.stage = Stage::Idle;
            } else if !slot.is_over() || slot.role == Role::Init {
                slot.stage = Stage::Idle;
                slot.last = slot.ended.take().or_else(|| slot.last.take());
            }
        }
    }

    /// Lets happen what happens by now.
    pub(super) fn step(&mut self, pod: &Pod, now: Timestamp, around: &mut Surroundings<'_>) -> Vec<Effect> {
        let mut effects = Vec::new();
        let Some(spec) = pod.spec.as_ref().filter(|_| !self.finished) else { return effects };
        let containers: Vec<(Role, Cow<'_, Container>)> = containers(spec).collect();
        for (role, _) in containers.iter().skip(self.slots.len()) {
            self.slots.push(Slot::new(*role));
        }
        if let Some(deleted) = &pod.metadata.deletion_timestamp {
            self.finish(End::Deleted, deleted.0);
        }
        if self.deadline(pod).is_some_and(|deadline| deadline <= now) && self.end.is_none() {
            let message = "Pod was active on the node longer than the specified deadline";
            let end = End::Failed { reason: "DeadlineExceeded".into(), message: message.into() };
            effects.push(Effect::Event {
                container: None,
                severity: Severity::Normal,
                reason: "DeadlineExceeded",
                message: message.to_owned(),
            });
            self.finish(end, after(now, grace(spec)));
        }
        let mut turn = Turn { pod, spec, containers: &containers, now, around, effects };
        loop {
            let mut changed = false;
            for at in 0..self.slots.len() {
                changed |= self.advance(at, &mut turn);
            }
            changed |= self.settle(&mut turn);
            if !changed {
                return turn.effects;
            }
        }
    }

    fn deadline(&self, pod: &Pod) -> Option<Timestamp> {
        let seconds = pod.spec.as_ref()?.active_deadline_seconds?;
        Some(after(self.started, Duration::from_secs(u64::try_from(seconds).unwrap_or(0))))
    }

    /// Moves one container by one stage, if its time has come.
    fn advance(&mut self, at: usize, turn: &mut Turn<'_, '_>) -> bool {
        let now = turn.now;
        if self.end.is_some() && !self.slots[at].is_running() {
            return false;
        }
        match &self.slots[at].stage {
            Stage::Idle => {
                let starts = self.may_start(at, now);
                if starts {
                    self.pull(at, turn);
                }
                starts
            }
            Stage::Pulling { until, fails } if *until <= now => {
                let fails = *fails;
                if fails {
                    self.pull_failed(at, turn)
                } else {
                    self.pulled(at, turn)
                }
                true
            }
            Stage::PullFailed { until, .. } if *until <= now => {
                self.pull(at, turn);
                true
            }
            Stage::Starting { until } if *until <= now => {
                self.run(at, turn);
                true
            }
            Stage::StartFailed { until, .. } if *until <= now => {
                self.create(at, turn);
                true
            }
            Stage::BackingOff { until, .. } if *until <= now => {
                self.restart(at, turn);
                true
            }
            Stage::Running(run) => {
                if let Some((_, code, reason)) = run.exit.clone().filter(|(at, ..)| *at <= now) {
                    self.exit(at, code, reason, turn);
                    return true;
                }
                if run.unhealthy.is_some_and(|at| at <= now) {
                    self.unhealthy(at, turn);
                    return true;
                }
                false
            }
            _ => false,
        }
    }

    /// Whether it is a container's turn. Init containers go one after the other, all others together.
    fn may_start(&self, at: usize, now: Timestamp) -> bool {
        if self.end.is_some() || self.blocked.is_some() {
            return false;
        }
        match self.slots[at].role {
            Role::Main | Role::Ephemeral => self.initialized,
            Role::Sidecar if self.initialized => true,
            Role::Init | Role::Sidecar => self.slots[..at].iter().all(|slot| slot.lets_others_start(now)),
        }
    }

    /// What follows from where all containers are.
    fn settle(&mut self, turn: &mut Turn<'_, '_>) -> bool {
        if self.finished {
            return false;
        }
        if self.end.is_some() {
            return self.wind_down(turn);
        }
        if !self.initialized && self.blocked.is_none() {
            let mut init = self.slots.iter().filter(|slot| matches!(slot.role, Role::Init | Role::Sidecar));
            if init.all(|slot| slot.lets_others_start(turn.now)) {
                self.initialized = true;
                return true;
            }
        }
        let failed = |slot: &Slot| slot.role == Role::Init && slot.is_over() && !slot.is_ready(turn.now);
        let mut main = self.slots.iter().filter(|slot| slot.role == Role::Main);
        if self.slots.iter().any(failed) || main.all(Slot::is_over) {
            self.finish(End::Completed, after(turn.now, grace(turn.spec)));
            return true;
        }
        false
    }

    /// Stops what runs: the containers at once, then those that started before them, last first.
    fn wind_down(&mut self, turn: &mut Turn<'_, '_>) -> bool {
        let deadline = self.end.as_ref().map_or(turn.now, |(_, deadline)| *deadline);
        let first = |slot: &Slot| slot.role != Role::Sidecar;
        let mut to_stop: Vec<usize> =
            (0..self.slots.len()).filter(|at| first(&self.slots[*at]) && self.slots[*at].is_running()).collect();
        if to_stop.is_empty() {
            to_stop.extend((0..self.slots.len()).rev().find(|at| self.slots[*at].is_running()));
        }
        if to_stop.is_empty() {
            self.finished = true;
            return true;
        }
        let mut changed = false;
        for at in to_stop {
            changed |= self.stop(at, deadline, turn);
        }
        changed
    }

    /// Tells a container to end, or hurries it up.
    fn stop(&mut self, at: usize, deadline: Timestamp, turn: &mut Turn<'_, '_>) -> bool {
        let Stage::Running(run) = &mut self.slots[at].stage else { return false };
        if run.stopping {
            let late = run.exit.as_ref().is_none_or(|(end, ..)| *end > deadline);
            if late {
                run.exit = Some((deadline, KILLED, None));
            }
            return late && deadline <= turn.now;
        }
        run.stopping = true;
        let container = &turn.containers[at].1;
        let behaviour = (turn.around.behaviour)(container);
        let stopped = after(turn.now, behaviour.stop_time.unwrap_or_default());
        let earlier = run.exit.take().filter(|(end, ..)| *end <= turn.now);
        run.exit = Some(match earlier {
            Some(exit) => exit,
            None if behaviour.body.is_some() || stopped > deadline => (deadline, KILLED, None),
            None => (stopped, 0, None),
        });
        let message = format!("Stopping container {}", container.name);
        turn.event(Some(at), Severity::Normal, "Killing", message);
        turn.effects.push(Effect::Stop { container: at });
        true
    }

    fn pull(&mut self, at: usize, turn: &mut Turn<'_, '_>) {
        let container = &turn.containers[at].1;
        let behaviour = (turn.around.behaviour)(container);
        let image = container.image.clone().unwrap_or_default();
        let present = turn.around.images.contains(&image);
        let policy = container.image_pull_policy.as_deref().unwrap_or("IfNotPresent");
        if policy == "Never" || (present && policy != "Always") {
            let message =
                format!("Container image {image:?} already present on machine and can be accessed by the pod");
            turn.event(Some(at), Severity::Normal, "Pulled", message);
            return self.create(at, turn);
        }
        turn.event(Some(at), Severity::Normal, "Pulling", format!("Pulling image {image:?}"));
        let slot = &mut self.slots[at];
        let fails = behaviour.pull_failure.is_some_and(|failure| failure.times.is_none_or(|n| slot.failed_pulls < n));
        let time = if present { Duration::ZERO } else { behaviour.pull_time.unwrap_or_default() };
        slot.stage = Stage::Pulling { until: after(turn.now, time), fails };
    }

    fn pulled(&mut self, at: usize, turn: &mut Turn<'_, '_>) {
        let container = &turn.containers[at].1;
        let image = container.image.clone().unwrap_or_default();
        let time = (turn.around.behaviour)(container).pull_time.unwrap_or_default();
        let time = super::backoff::go_duration(time);
        let message = format!(
            "Successfully pulled image {image:?} in {time} ({time} including waiting). Image size: {} bytes.",
            50_000_000 + image.len()
        );
        turn.around.images.insert(image);
        turn.event(Some(at), Severity::Normal, "Pulled", message);
        self.create(at, turn);
    }

    fn pull_failed(&mut self, at: usize, turn: &mut Turn<'_, '_>) {
        let container = &turn.containers[at].1;
        let image = container.image.clone().unwrap_or_default();
        let behaviour = (turn.around.behaviour)(container);
        let said = behaviour.pull_failure.map(|failure| failure.message).filter(|message| !message.is_empty());
        let message = said.unwrap_or_else(|| {
            format!(
                "rpc error: code = NotFound desc = failed to pull and unpack image {image:?}: failed to resolve \
                 reference {image:?}: {image}: not found"
            )
        });
        turn.event(Some(at), Severity::Warning, "Failed", format!("Failed to pull image {image:?}: {message}"));
        turn.event(Some(at), Severity::Warning, "Failed", "Error: ErrImagePull".to_owned());
        turn.event(Some(at), Severity::Normal, "BackOff", format!("Back-off pulling image {image:?}"));
        turn.event(Some(at), Severity::Warning, "Failed", "Error: ImagePullBackOff".to_owned());
        let slot = &mut self.slots[at];
        slot.failed_pulls += 1;
        slot.pulls.attempt(turn.now, turn.now);
        let until = after(turn.now, slot.pulls.delay(turn.now));
        slot.stage = Stage::PullFailed { since: turn.now, until, message: message.into() };
    }

    fn create(&mut self, at: usize, turn: &mut Turn<'_, '_>) {
        let container = &turn.containers[at].1;
        let behaviour = (turn.around.behaviour)(container);
        let slot = &mut self.slots[at];
        let failure = behaviour.start_failure.filter(|failure| failure.times.is_none_or(|n| slot.failed_starts < n));
        let failure = match (turn.around.misconfigured)(container) {
            Some(message) => Some(("CreateContainerConfigError".to_owned(), message)),
            None => failure.map(|failure| (failure.reason, failure.message)),
        };
        if let Some((reason, message)) = failure {
            slot.failed_starts += 1;
            let until = after(turn.now, CREATE_RETRY);
            turn.event(Some(at), Severity::Warning, "Failed", format!("Error: {message}"));
            self.slots[at].stage = Stage::StartFailed { until, reason: reason.into(), message: message.into() };
            return;
        }
        match behaviour.start_time.filter(|time| !time.is_zero()) {
            Some(time) => slot.stage = Stage::Starting { until: after(turn.now, time) },
            None => self.run(at, turn),
        }
    }

    fn run(&mut self, at: usize, turn: &mut Turn<'_, '_>) {
        let (now, (role, container)) = (turn.now, &turn.containers[at]);
        let behaviour = (turn.around.behaviour)(container);
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
            Role::Main if is_of_job(turn.pod) => Exit::after(JOB_TIME, 0),
            _ => Exit::Never,
        };
        let said = behaviour.exit.filter(|exit| match exit {
            Exit::After { times: Some(times), .. } => slot.runs <= *times,
            _ => true,
        });
        let exit = match said.unwrap_or(usual) {
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
        turn.event(Some(at), Severity::Normal, "Created", "Container created".to_owned());
        turn.event(Some(at), Severity::Normal, "Started", "Container started".to_owned());
        turn.effects.push(Effect::Start { container: at, run });
    }

    fn unhealthy(&mut self, at: usize, turn: &mut Turn<'_, '_>) {
        let name = &turn.containers[at].1.name;
        let killing = format!("Container {name} failed liveness probe, will be restarted");
        turn.event(Some(at), Severity::Warning, "Unhealthy", "Liveness probe failed: it is said to".to_owned());
        turn.event(Some(at), Severity::Normal, "Killing", killing);
        self.exit(at, KILLED, None, turn);
    }

    /// A run ended.
    fn exit(&mut self, at: usize, code: i32, reason: Option<Box<str>>, turn: &mut Turn<'_, '_>) {
        let slot = &mut self.slots[at];
        let Stage::Running(run) = &slot.stage else { return };
        let reason = reason.unwrap_or_else(|| if code == 0 { "Completed".into() } else { "Error".into() });
        let ended = Ended { code, reason, started: run.since, finished: turn.now, run: slot.runs };
        turn.effects.push(Effect::Kill { container: at });
        slot.ended = Some(Box::new(ended));
        let container = &turn.containers[at].1;
        if self.end.is_some() || !restarts(slot.role, turn.spec, container, code) {
            slot.stage = Stage::Over;
            return;
        }
        let delay = slot.crashes.delay(turn.now);
        if delay.is_zero() {
            return self.restart(at, turn);
        }
        slot.last = slot.ended.take();
        slot.stage = Stage::BackingOff { until: after(turn.now, delay), delay };
        let message = format!("Back-off restarting failed container {} in pod {}", container.name, pod_text(turn.pod));
        turn.event(Some(at), Severity::Warning, "BackOff", message);
    }

    fn restart(&mut self, at: usize, turn: &mut Turn<'_, '_>) {
        let slot = &mut self.slots[at];
        slot.last = slot.ended.take().or_else(|| slot.last.take());
        let failed = slot.last.as_ref().map_or(turn.now, |last| last.finished);
        slot.crashes.attempt(failed, turn.now);
        slot.restarts += 1;
        slot.stage = Stage::Idle;
        if self.may_start(at, turn.now) {
            self.pull(at, turn);
        }
    }
}

/// One step of a machine.
struct Turn<'a, 'b> {
    pod: &'a Pod,
    spec: &'a PodSpec,
    containers: &'a [(Role, Cow<'a, Container>)],
    now: Timestamp,
    around: &'a mut Surroundings<'b>,
    effects: Vec<Effect>,
}

impl Turn<'_, '_> {
    fn event(&mut self, container: Option<usize>, severity: Severity, reason: &'static str, message: String) {
        self.effects.push(Effect::Event { container, severity, reason, message });
    }
}

fn grace(spec: &PodSpec) -> Duration {
    Duration::from_secs(u64::try_from(spec.termination_grace_period_seconds.unwrap_or(30)).unwrap_or(0))
}

/// Whether a container is started again after it ended.
pub(super) fn restarts(role: Role, spec: &PodSpec, container: &Container, code: i32) -> bool {
    match role {
        Role::Sidecar => return true,
        Role::Ephemeral => return false,
        Role::Init | Role::Main => {}
    }
    let by_rule = container.restart_policy_rules.iter().flatten().any(|rule| {
        let listed = rule.exit_codes.as_ref().is_some_and(|codes| {
            let listed = codes.values.iter().flatten().any(|value| *value == code);
            if codes.operator == "NotIn" { !listed } else { listed }
        });
        listed && rule.action.starts_with("Restart")
    });
    let policy = container.restart_policy.as_deref().or(spec.restart_policy.as_deref()).unwrap_or("Always");
    by_rule
        || match policy {
            "Always" => role == Role::Main || code != 0,
            "OnFailure" => code != 0,
            _ => false,
        }
}

/// How a kubelet names pods: `name_namespace(uid)`.
pub(super) fn pod_text(pod: &Pod) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let meta = &pod.metadata;
    format!("{}_{}({})", text(&meta.name), text(&meta.namespace), text(&meta.uid))
}
