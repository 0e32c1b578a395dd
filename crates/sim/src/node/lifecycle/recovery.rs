//! Recovers the state of a pod from its status, as after a node was off.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus};

use super::container::{Run, Slot, Stage, Termination};
use super::stop::restarts;
use super::{Machine, containers};
use crate::Pod;

/// Exit code of a run whose end was not observed.
const UNKNOWN_EXIT_CODE: i32 = 255;

impl Machine {
    /// A pod on a node that was off: containers that ran before restart and their restarts are counted, if their
    /// restart policy allows. A pod that never ran is new.
    pub(in crate::node) fn rebooted(pod: &Pod, now: Timestamp) -> Self {
        let mut machine = Self::new(pod, now);
        let (Some(spec), Some(status)) = (&pod.spec, &pod.status) else { return machine };
        let Some(started) = &status.start_time else { return machine };
        machine.started = started.0;
        let lists = [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses];
        for ((role, container), slot) in containers(spec).zip(&mut machine.slots) {
            let mut statuses = lists.into_iter().flatten().flatten();
            let Some(status) = statuses.find(|status| status.name == container.name) else { continue };
            slot.remember(status, now);
            if slot.is_running() && !restarts(role, spec, &container, UNKNOWN_EXIT_CODE) {
                slot.mark_terminated(now);
            }
        }
        machine.reboot(now);
        machine
    }
}

impl Slot {
    fn remember(&mut self, status: &ContainerStatus, now: Timestamp) {
        self.restarts = status.restart_count;
        if status.container_id.is_some() {
            self.runs = u32::try_from(status.restart_count).unwrap_or(0) + 1;
        }
        let runs = self.runs;
        let ended = |state: &Option<ContainerState>, run| {
            state.as_ref()?.terminated.as_ref().map(|ended| Box::new(termination_from(ended, run, now)))
        };
        self.last = ended(&status.last_state, runs.saturating_sub(1));
        self.ended = ended(&status.state, runs);
        let running = status.state.as_ref().and_then(|state| state.running.as_ref());
        if self.ended.is_some() {
            self.stage = Stage::Terminated;
        } else if let Some(running) = running {
            let since = running.started_at.as_ref().map_or(now, |at| at.0);
            self.stage =
                Stage::Running(Run { since, up: since, ready: None, unhealthy: None, exit: None, stopping: false });
        }
    }

    /// It ended while the node was off, and is not restarted.
    fn mark_terminated(&mut self, now: Timestamp) {
        let started = if let Stage::Running(run) = &self.stage { run.since } else { now };
        let reason = "Unknown".into();
        let (run, message) = (self.runs, None);
        self.ended =
            Some(Box::new(Termination { code: UNKNOWN_EXIT_CODE, reason, started, finished: now, run, message }));
        self.stage = Stage::Terminated;
    }
}

fn termination_from(ended: &ContainerStateTerminated, run: u32, now: Timestamp) -> Termination {
    Termination {
        code: ended.exit_code,
        reason: ended.reason.as_deref().unwrap_or("Unknown").into(),
        started: ended.started_at.as_ref().map_or(now, |at| at.0),
        finished: ended.finished_at.as_ref().map_or(now, |at| at.0),
        run,
        message: ended.message.as_deref().map(Into::into),
    }
}
