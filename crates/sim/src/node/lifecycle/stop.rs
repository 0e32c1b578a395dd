//! End of a run of a container, and its restart.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::container::{Ended, Role, Stage};
use super::{Effect, Machine, Turn, pod_text};
use crate::events::Severity;
use crate::node::backoff::after;

/// Exit code after SIGKILL.
const KILLED: i32 = 137;

impl Machine {
    /// Sends the stop signal to a container, or shortens its deadline.
    pub(super) fn stop(&mut self, at: usize, deadline: Timestamp, turn: &mut Turn<'_, '_>) -> bool {
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

    pub(super) fn unhealthy(&mut self, at: usize, turn: &mut Turn<'_, '_>) {
        let name = &turn.containers[at].1.name;
        let killing = format!("Container {name} failed liveness probe, will be restarted");
        turn.event(Some(at), Severity::Warning, "Unhealthy", "Liveness probe failed: it is said to".to_owned());
        turn.event(Some(at), Severity::Normal, "Killing", killing);
        self.exit(at, KILLED, None, turn);
    }

    /// A run ended.
    pub(super) fn exit(&mut self, at: usize, code: i32, reason: Option<Box<str>>, turn: &mut Turn<'_, '_>) {
        let slot = &mut self.slots[at];
        let Stage::Running(run) = &slot.stage else { return };
        let reason = reason.unwrap_or_else(|| if code == 0 { "Completed".into() } else { "Error".into() });
        let container = &turn.containers[at].1;
        let asked = container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
        let message = if asked && code != 0 { (turn.around.last_words)(container) } else { None };
        let ended = Ended { code, reason, started: run.since, finished: turn.now, run: slot.runs, message };
        turn.effects.push(Effect::Kill { container: at });
        slot.ended = Some(Box::new(ended));
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

    pub(super) fn restart(&mut self, at: usize, turn: &mut Turn<'_, '_>) {
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
