//! Health of the roles of a process: for `/health`, metrics and subscribers.

use std::fmt::Write;

use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::watch;

/// State of a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It runs.
    Running,
    /// It failed and waits for its restart.
    Backoff,
    /// Its node label disables it.
    Paused,
    /// It ended without a failure.
    Completed,
}

/// Kind of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FailureKind {
    /// Invalid configuration: a flag, a variable or a file must be fixed.
    Configuration,
    /// An external error.
    Error,
    /// The role panicked.
    Panic,
}

/// The last failure of a role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// What it was.
    pub kind: FailureKind,
    /// The error message.
    pub message: String,
    /// Its time.
    pub time: Timestamp,
}

/// Health of one role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleHealth {
    /// Its name.
    pub role: &'static str,
    /// Its state.
    pub state: State,
    /// Restarts after failures.
    pub restarts: u64,
    /// Consecutive failures.
    pub failures: u32,
    /// The last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<Failure>,
}

impl RoleHealth {
    /// Why it is unhealthy, if it is. A first failure is tolerated during its backoff.
    fn unhealthy_reason(&self) -> Option<String> {
        let failing = self.state == State::Backoff && self.failures > 1;
        let failure = self.last_failure.as_ref().filter(|_| failing)?;
        Some(format!("role {} failed {} times in a row: {}", self.role, self.failures, failure.message))
    }
}

/// Health of all roles of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Whether every enabled role runs or is in its first backoff.
    pub healthy: bool,
    /// Why not.
    pub reasons: Vec<String>,
    /// Each role.
    pub roles: Vec<RoleHealth>,
}

/// Health of the roles of a process, maintained by the supervisor. Empty for a role without one.
#[derive(Debug, Default)]
pub struct Health {
    roles: watch::Sender<Vec<RoleHealth>>,
}

impl Health {
    /// The current health.
    pub fn report(&self) -> Report {
        let roles = self.roles.borrow().clone();
        let reasons: Vec<String> = roles.iter().filter_map(RoleHealth::unhealthy_reason).collect();
        Report { healthy: reasons.is_empty(), reasons, roles }
    }

    /// Subscribes to changes.
    pub fn subscribe(&self) -> watch::Receiver<Vec<RoleHealth>> {
        self.roles.subscribe()
    }

    /// Prometheus metrics; empty without a supervisor. A disabled or completed role has no `capstan_agent_role_up`.
    pub fn metrics(&self) -> String {
        let roles = self.roles.borrow();
        let mut out = String::new();
        if roles.is_empty() {
            return out;
        }
        let mut metric = |name: &str, kind: &str, help: &str, value: &dyn Fn(&RoleHealth) -> Option<i64>| {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for role in roles.iter() {
                if let Some(value) = value(role) {
                    let _ = writeln!(out, "{name}{{role=\"{}\"}} {value}", role.role);
                }
            }
        };
        metric("capstan_agent_role_up", "gauge", "Whether a role that should run does", &|role| match role.state {
            State::Running => Some(1),
            State::Backoff => Some(0),
            State::Paused | State::Completed => None,
        });
        let help = "How often a role was started again after a failure";
        let restarts = |role: &RoleHealth| i64::try_from(role.restarts).ok();
        metric("capstan_agent_role_restarts_total", "counter", help, &restarts);
        let seconds = |role: &RoleHealth| Some(role.last_failure.as_ref()?.time.as_second());
        metric("capstan_agent_role_last_failure_timestamp_seconds", "gauge", "When a role last failed", &seconds);
        out
    }

    /// Updates a role; an unknown one is added.
    pub(super) fn update(&self, role: &'static str, change: impl FnOnce(&mut RoleHealth)) {
        self.roles.send_modify(|roles| {
            let known = roles.iter().position(|known| known.role == role);
            let index = known.unwrap_or_else(|| {
                let (state, last_failure) = (State::Running, None);
                roles.push(RoleHealth { role, state, restarts: 0, failures: 0, last_failure });
                roles.len() - 1
            });
            change(&mut roles[index]);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(failures: u32) -> impl FnOnce(&mut RoleHealth) {
        move |role| {
            let time = Timestamp::from_second(1_700_000_000).expect("a time");
            role.last_failure = Some(Failure { kind: FailureKind::Error, message: "no API server".into(), time });
            (role.state, role.failures, role.restarts) = (State::Backoff, failures, u64::from(failures) - 1);
        }
    }

    #[test]
    fn a_first_backoff_is_healthy_and_a_second_is_not() {
        let health = Health::default();
        health.update("device-plugin", |_| {});
        health.update("exporter", |role| role.state = State::Paused);
        health.update("feature-discovery", failed(1));
        assert!(health.report().healthy);
        health.update("feature-discovery", failed(2));
        let report = health.report();
        assert_eq!(report.reasons, ["role feature-discovery failed 2 times in a row: no API server"]);
        let json = serde_json::to_value(&report).expect("JSON");
        let role = serde_json::json!({"role": "feature-discovery", "state": "backoff", "restarts": 1, "failures": 2,
            "lastFailure": {"kind": "error", "message": "no API server", "time": "2023-11-14T22:13:20Z"}});
        assert_eq!((json["healthy"].as_bool(), &json["roles"][2]), (Some(false), &role));
    }

    #[test]
    fn metrics_leave_out_roles_that_need_not_run() {
        let health = Health::default();
        assert_eq!(health.metrics(), "", "a role without a supervisor");
        health.update("device-plugin", |_| {});
        health.update("exporter", |role| role.state = State::Paused);
        health.update("feature-discovery", failed(3));
        let text = health.metrics();
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                r#"capstan_agent_role_up{role="device-plugin"} 1"#,
                r#"capstan_agent_role_up{role="feature-discovery"} 0"#,
                r#"capstan_agent_role_restarts_total{role="device-plugin"} 0"#,
                r#"capstan_agent_role_restarts_total{role="exporter"} 0"#,
                r#"capstan_agent_role_restarts_total{role="feature-discovery"} 2"#,
                r#"capstan_agent_role_last_failure_timestamp_seconds{role="feature-discovery"} 1700000000"#,
            ]
        );
    }
}
