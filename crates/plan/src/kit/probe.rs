//! Probes of containers.

use capstan_api::common::ServerProbe;
use k8s_openapi::api::core::v1::{ExecAction, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// An HTTP probe.
pub fn http(path: &str, port: IntOrString) -> Probe {
    let action = HTTPGetAction { path: Some(path.into()), port, ..HTTPGetAction::default() };
    Probe { http_get: Some(action), ..Probe::default() }
}

/// An exec probe: initial delay, period, timeout, failure threshold.
pub fn exec(command: &[&str], delay: i32, period: i32, timeout: i32, failures: i32) -> Probe {
    Probe {
        exec: Some(ExecAction { command: Some(command.iter().map(|word| (*word).into()).collect()) }),
        initial_delay_seconds: Some(delay),
        period_seconds: Some(period),
        timeout_seconds: Some(timeout),
        failure_threshold: Some(failures),
        ..Probe::default()
    }
}

/// Timing of a probe.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Initial delay in seconds.
    pub delay: i32,
    /// Period in seconds.
    pub period: i32,
    /// Timeout in seconds.
    pub timeout: i32,
    /// Failure threshold.
    pub failures: i32,
}

impl Timing {
    /// `probe` with this timing.
    pub fn of(self, probe: Probe) -> Probe {
        Probe {
            // The server does not store a zero.
            initial_delay_seconds: Some(self.delay).filter(|delay| *delay > 0),
            timeout_seconds: Some(self.timeout),
            period_seconds: Some(self.period),
            success_threshold: Some(1),
            failure_threshold: Some(self.failures),
            ..probe
        }
    }
}

/// The user's probe, or the default; `None` if disabled.
pub fn chosen(settings: Option<&ServerProbe>, default: impl FnOnce() -> Probe) -> Option<Probe> {
    match settings {
        Some(settings) if settings.enabled == Some(false) => None,
        Some(settings) => Some(settings.probe.clone().unwrap_or_else(default)),
        None => Some(default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_probe_replaces_the_usual_one() {
        let default = || Timing { delay: 1, period: 2, timeout: 3, failures: 4 }.of(http("/", IntOrString::Int(1)));
        let own = Probe { period_seconds: Some(9), ..Probe::default() };
        assert_eq!(chosen(None, default), Some(default()));
        assert_eq!(chosen(Some(&ServerProbe::default()), default), Some(default()));
        let settings = ServerProbe { enabled: None, probe: Some(own.clone()) };
        assert_eq!(chosen(Some(&settings), default), Some(own));
        assert_eq!(chosen(Some(&ServerProbe { enabled: Some(false), ..settings }), default), None);
    }
}
