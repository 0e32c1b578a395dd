//! Lifecycle of a pod on a node, as a pure state machine: from the pod, the time and the behaviour of its containers it
//! computes what happens now and when to step again. It has no side effects; they are returned as [`Effect`]s.
//!
//! This module has the pod as a whole; [`container`] the stages of a container, [`start`] its start, [`stop`] its end,
//! [`recovery`] the recovery of earlier runs.

mod container;
mod recovery;
mod start;
mod stop;

use std::collections::HashSet;
use std::ops::Deref;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, PodSpec};

pub(super) use container::{Role, Slot, Stage, Termination};
pub(super) use stop::restarts;

use super::backoff::after;
use super::behaviour::Behaviour;
use crate::Pod;
use crate::events::Severity;
use crate::scheduler::resources::is_sidecar;

/// Why a pod terminates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It was deleted.
    Deleted,
    /// Its containers completed.
    Completed,
    /// It failed as a whole.
    Failed { reason: Box<str>, message: Box<str> },
}

/// Side effects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Record an event, about the pod or one of its containers.
    Event { container: Option<usize>, severity: Severity, reason: &'static str, message: String },
    /// Start the body of a container.
    Start { container: usize, run: u32 },
    /// Send a container the stop signal.
    Stop { container: usize },
    /// Kill a container, whatever its body does.
    Kill { container: usize },
}

/// Inputs of the state machine.
pub(super) struct MachineInputs<'a> {
    /// Behaviour of a container.
    pub(super) behaviour: &'a dyn Fn(&Container) -> Behaviour,
    /// Configuration error of a container, if any.
    pub(super) misconfigured: &'a dyn Fn(&Container) -> Option<String>,
    /// Tail of the log of a running container.
    pub(super) log_tail: &'a dyn Fn(&Container) -> Option<Box<str>>,
    /// Images on the node.
    pub(super) images: &'a mut HashSet<String>,
}

/// A pod on a node.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) slots: Vec<Slot>,
    /// When the node admitted the pod.
    pub(super) started: Timestamp,
    /// Whether all init containers have succeeded.
    pub(super) initialized: bool,
    /// When to retry what blocks the start, for instance a missing volume.
    pub(super) blocked: Option<Timestamp>,
    end: Option<(End, Timestamp)>,
    /// Whether all containers have terminated.
    pub(super) finished: bool,
}

/// A container of the spec, or its equivalent. A container is a kilobyte: inline, iterating over the containers of a
/// pod would copy them.
pub(super) enum SpecContainer<'a> {
    As(&'a Container),
    Like(Box<Container>),
}

impl Deref for SpecContainer<'_> {
    type Target = Container;

    fn deref(&self) -> &Container {
        match self {
            Self::As(container) => container,
            Self::Like(container) => container,
        }
    }
}

/// All containers of a pod: init containers, regular ones, ephemeral ones.
pub(super) fn containers(spec: &PodSpec) -> impl Iterator<Item = (Role, SpecContainer<'_>)> {
    let init = spec.init_containers.iter().flatten();
    let init = init.map(|c| (if is_sidecar(c) { Role::Sidecar } else { Role::Init }, SpecContainer::As(c)));
    let main = spec.containers.iter().map(|c| (Role::Main, SpecContainer::As(c)));
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
        (Role::Ephemeral, SpecContainer::Like(Box::new(container)))
    });
    init.chain(main).chain(ephemeral)
}

impl Machine {
    /// A newly admitted pod.
    pub(super) fn new(pod: &Pod, now: Timestamp) -> Self {
        let spec = pod.spec.as_deref();
        let mut slots: Vec<Slot> = spec.into_iter().flat_map(containers).map(|(role, _)| Slot::new(role)).collect();
        slots.shrink_to_fit();
        Self { slots, started: now, initialized: false, blocked: None, end: None, finished: false }
    }

    /// Whether the pod terminates, and why.
    pub(super) fn end(&self) -> Option<&End> {
        self.end.as_ref().map(|(end, _)| end)
    }

    /// Whether no container was started yet.
    pub(super) fn is_new(&self) -> bool {
        self.slots.iter().all(|slot| slot.stage == Stage::Idle && slot.runs == 0)
    }

    /// When to step again, without other changes.
    pub(super) fn due(&self, pod: &Pod, now: Timestamp) -> Option<Timestamp> {
        if self.finished {
            return None;
        }
        // While the pod terminates, only exits are due.
        let slots = self.slots.iter().filter(|slot| self.end.is_none() || slot.is_running());
        let slots = slots.filter_map(|slot| slot.due(now));
        let deadline = if self.end.is_none() { self.deadline(pod) } else { None };
        let blocked = self.blocked.filter(|_| self.end.is_none());
        slots.chain(deadline).chain(blocked).min()
    }

    /// Terminates the pod. The first reason remains, but a deletion may shorten the deadline.
    pub(super) fn finish(&mut self, end: End, deadline: Timestamp) {
        match &mut self.end {
            None => self.end = Some((end, deadline)),
            Some((_, before)) => *before = deadline.min(*before),
        }
    }

    /// A body exited.
    pub(super) fn exited(&mut self, container: usize, run: u32, code: i32, now: Timestamp) {
        if let Some(slot) = self.slots.get_mut(container).filter(|slot| slot.runs == run)
            && let Stage::Running(running) = &mut slot.stage
        {
            running.exit = Some((now, code, None));
        }
    }

    /// Kills the current run of a container.
    pub(super) fn kill(&mut self, container: usize, code: i32, reason: Option<&str>, now: Timestamp) {
        if let Some(Stage::Running(running)) = self.slots.get_mut(container).map(|slot| &mut slot.stage) {
            running.exit = Some((now, code, reason.map(Into::into)));
        }
    }

    /// Overrides the readiness of a container; `None` removes the override.
    pub(super) fn force_ready(&mut self, container: usize, ready: Option<bool>) {
        if let Some(slot) = self.slots.get_mut(container) {
            slot.forced_ready = ready;
        }
    }

    /// Node reboot: no container runs any more, and init containers run again.
    pub(super) fn reboot(&mut self, now: Timestamp) {
        if self.finished || self.end.is_some() {
            return;
        }
        self.initialized = false;
        for slot in &mut self.slots {
            if let Stage::Running(run) = &slot.stage {
                let (started, run) = (run.since, slot.runs);
                let reason = "Unknown".into();
                slot.last =
                    Some(Box::new(Termination { code: 255, reason, started, finished: now, run, message: None }));
                slot.restarts += 1;
                slot.stage = Stage::Idle;
            } else if !slot.is_terminated() || slot.role == Role::Init {
                slot.stage = Stage::Idle;
                slot.last = slot.ended.take().or_else(|| slot.last.take());
            }
        }
    }

    /// Performs all transitions that are due.
    pub(super) fn step(&mut self, pod: &Pod, now: Timestamp, inputs: &mut MachineInputs<'_>) -> Vec<Effect> {
        let mut effects = Vec::new();
        let Some(spec) = pod.spec.as_ref().filter(|_| !self.finished) else { return effects };
        let containers: Vec<(Role, SpecContainer<'_>)> = containers(spec).collect();
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
        let mut cx = StepContext { pod, spec, containers: &containers, now, inputs, effects };
        loop {
            let mut changed = false;
            for at in 0..self.slots.len() {
                changed |= self.advance(at, &mut cx);
            }
            changed |= self.derive_pod_state(&mut cx);
            if !changed {
                return cx.effects;
            }
        }
    }

    fn deadline(&self, pod: &Pod) -> Option<Timestamp> {
        let seconds = pod.spec.as_ref()?.active_deadline_seconds?;
        Some(after(self.started, Duration::from_secs(u64::try_from(seconds).unwrap_or(0))))
    }

    /// Moves one container by one stage, if it is due.
    fn advance(&mut self, at: usize, cx: &mut StepContext<'_, '_>) -> bool {
        let now = cx.now;
        if self.end.is_some() && !self.slots[at].is_running() {
            return false;
        }
        match &self.slots[at].stage {
            Stage::Idle => {
                let starts = self.may_start(at, now);
                if starts {
                    self.pull(at, cx);
                }
                starts
            }
            Stage::Pulling { until, fails } if *until <= now => {
                let fails = *fails;
                if fails {
                    self.pull_failed(at, cx)
                } else {
                    self.pulled(at, cx)
                }
                true
            }
            Stage::PullFailed { until, .. } if *until <= now => {
                self.pull(at, cx);
                true
            }
            Stage::Starting { until } if *until <= now => {
                self.run(at, cx);
                true
            }
            Stage::StartFailed { until, .. } if *until <= now => {
                self.create(at, cx);
                true
            }
            Stage::BackingOff { until, .. } if *until <= now => {
                self.restart(at, cx);
                true
            }
            Stage::Running(run) => {
                if let Some((_, code, reason)) = run.exit.clone().filter(|(at, ..)| *at <= now) {
                    self.exit(at, code, reason, cx);
                    return true;
                }
                if run.unhealthy.is_some_and(|at| at <= now) {
                    self.unhealthy(at, cx);
                    return true;
                }
                false
            }
            _ => false,
        }
    }

    /// Whether a container may start. Init containers start one after the other, all others together.
    fn may_start(&self, at: usize, now: Timestamp) -> bool {
        if self.end.is_some() || self.blocked.is_some() {
            return false;
        }
        match self.slots[at].role {
            Role::Main | Role::Ephemeral => self.initialized,
            Role::Sidecar if self.initialized => true,
            Role::Init | Role::Sidecar => self.slots[..at].iter().all(|slot| slot.unblocks_next(now)),
        }
    }

    /// Derives the state of the pod from that of its containers.
    fn derive_pod_state(&mut self, cx: &mut StepContext<'_, '_>) -> bool {
        if self.finished {
            return false;
        }
        if self.end.is_some() {
            return self.stop_containers(cx);
        }
        if !self.initialized && self.blocked.is_none() {
            let mut init = self.slots.iter().filter(|slot| matches!(slot.role, Role::Init | Role::Sidecar));
            if init.all(|slot| slot.unblocks_next(cx.now)) {
                self.initialized = true;
                return true;
            }
        }
        let failed = |slot: &Slot| slot.role == Role::Init && slot.is_terminated() && !slot.is_ready(cx.now);
        let mut main = self.slots.iter().filter(|slot| slot.role == Role::Main);
        if self.slots.iter().any(failed) || main.all(Slot::is_terminated) {
            self.finish(End::Completed, after(cx.now, grace(cx.spec)));
            return true;
        }
        false
    }

    /// Stops the regular containers at once, then sidecars in reverse order.
    fn stop_containers(&mut self, cx: &mut StepContext<'_, '_>) -> bool {
        let deadline = self.end.as_ref().map_or(cx.now, |(_, deadline)| *deadline);
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
            changed |= self.stop(at, deadline, cx);
        }
        changed
    }
}

/// One step of the state machine.
struct StepContext<'a, 'b> {
    pod: &'a Pod,
    spec: &'a PodSpec,
    containers: &'a [(Role, SpecContainer<'a>)],
    now: Timestamp,
    inputs: &'a mut MachineInputs<'b>,
    effects: Vec<Effect>,
}

impl StepContext<'_, '_> {
    fn event(&mut self, container: Option<usize>, severity: Severity, reason: &'static str, message: String) {
        self.effects.push(Effect::Event { container, severity, reason, message });
    }
}

fn grace(spec: &PodSpec) -> Duration {
    Duration::from_secs(u64::try_from(spec.termination_grace_period_seconds.unwrap_or(30)).unwrap_or(0))
}

/// A pod in the kubelet's notation: `name_namespace(uid)`.
pub(super) fn pod_text(pod: &Pod) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let meta = &pod.metadata;
    format!("{}_{}({})", text(&meta.name), text(&meta.namespace), text(&meta.uid))
}
