//! End of a run of a container, and its restart.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::container::{Role, Stage, Termination};
use super::{Effect, Machine, StepContext, pod_text};
use crate::events::Severity;
use crate::node::backoff::after;

/// Exit code after SIGKILL.
const KILLED: i32 = 137;

impl Machine {
    /// Sends the stop signal to a container, or shortens its deadline.
    pub(super) fn stop(&mut self, at: usize, deadline: Timestamp, cx: &mut StepContext<'_, '_>) -> bool {
        let Stage::Running(run) = &mut self.slots[at].stage else { return false };
        if run.stopping {
            let late = run.exit.as_ref().is_none_or(|(end, ..)| *end > deadline);
            if late {
                run.exit = Some((deadline, KILLED, None));
            }
            return late && deadline <= cx.now;
        }
        run.stopping = true;
        let container = &cx.containers[at].1;
        let behaviour = (cx.inputs.behaviour)(container);
        let stopped = after(cx.now, behaviour.stop_time.unwrap_or_default());
        let earlier = run.exit.take().filter(|(end, ..)| *end <= cx.now);
        run.exit = Some(match earlier {
            Some(exit) => exit,
            None if behaviour.body.is_some() || stopped > deadline => (deadline, KILLED, None),
            None => (stopped, 0, None),
        });
        let message = format!("Stopping container {}", container.name);
        cx.event(Some(at), Severity::Normal, "Killing", message);
        cx.effects.push(Effect::Stop { container: at });
        true
    }

    pub(super) fn unhealthy(&mut self, at: usize, cx: &mut StepContext<'_, '_>) {
        let name = &cx.containers[at].1.name;
        let killing = format!("Container {name} failed liveness probe, will be restarted");
        cx.event(Some(at), Severity::Warning, "Unhealthy", "Liveness probe failed: it is said to".to_owned());
        cx.event(Some(at), Severity::Normal, "Killing", killing);
        self.exit(at, KILLED, None, cx);
    }

    /// A run ended.
    pub(super) fn exit(&mut self, at: usize, code: i32, reason: Option<Box<str>>, cx: &mut StepContext<'_, '_>) {
        let slot = &mut self.slots[at];
        let Stage::Running(run) = &slot.stage else { return };
        let reason = reason.unwrap_or_else(|| if code == 0 { "Completed".into() } else { "Error".into() });
        let container = &cx.containers[at].1;
        let falls_back_to_logs = container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
        let message = if falls_back_to_logs && code != 0 { (cx.inputs.log_tail)(container) } else { None };
        let ended = Termination { code, reason, started: run.since, finished: cx.now, run: slot.runs, message };
        cx.effects.push(Effect::Kill { container: at });
        slot.ended = Some(Box::new(ended));
        if self.end.is_some() || !restarts(slot.role, cx.spec, container, code) {
            slot.stage = Stage::Terminated;
            return;
        }
        let delay = slot.crashes.delay(cx.now);
        if delay.is_zero() {
            return self.restart(at, cx);
        }
        slot.last = slot.ended.take();
        slot.stage = Stage::BackingOff { until: after(cx.now, delay), delay };
        let message = format!("Back-off restarting failed container {} in pod {}", container.name, pod_text(cx.pod));
        cx.event(Some(at), Severity::Warning, "BackOff", message);
    }

    pub(super) fn restart(&mut self, at: usize, cx: &mut StepContext<'_, '_>) {
        let slot = &mut self.slots[at];
        slot.last = slot.ended.take().or_else(|| slot.last.take());
        let failed = slot.last.as_ref().map_or(cx.now, |last| last.finished);
        slot.crashes.attempt(failed, cx.now);
        slot.restarts += 1;
        slot.stage = Stage::Idle;
        if self.may_start(at, cx.now) {
            self.pull(at, cx);
        }
    }
}

/// Whether a container restarts after it exited.
pub(in crate::node) fn restarts(role: Role, spec: &PodSpec, container: &Container, code: i32) -> bool {
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
