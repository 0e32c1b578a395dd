//! Probes of containers.

use capstan_api::common::ServerProbe;
use k8s_openapi::api::core::v1::{ExecAction, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// A probe that asks over HTTP.
pub fn http(path: &str, port: IntOrString) -> Probe {
    let action = HTTPGetAction { path: Some(path.into()), port, ..HTTPGetAction::default() };
    Probe { http_get: Some(action), ..Probe::default() }
}

/// A probe that runs a command: initial delay, period, timeout, failures until it counts.
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

/// How often a server is asked, and when it counts as failed.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Seconds until it is asked first.
    pub delay: i32,
    /// Seconds between two.
    pub period: i32,
    /// Seconds to answer.
    pub timeout: i32,
    /// Failures in a row until it counts as failed.
    pub failures: i32,
}

impl Timing {
    /// `probe` with these numbers.
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

/// The user's probe, or the usual one; none where the user switched it off.
pub fn chosen(settings: Option<&ServerProbe>, usual: impl FnOnce() -> Probe) -> Option<Probe> {
    match settings {
        Some(settings) if settings.enabled == Some(false) => None,
        Some(settings) => Some(settings.probe.clone().unwrap_or_else(usual)),
        None => Some(usual()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_probe_replaces_the_usual_one() {
        let usual = || Timing { delay: 1, period: 2, timeout: 3, failures: 4 }.of(http("/", IntOrString::Int(1)));
        let own = Probe { period_seconds: Some(9), ..Probe::default() };
        assert_eq!(chosen(None, usual), Some(usual()));
        assert_eq!(chosen(Some(&ServerProbe::default()), usual), Some(usual()));
        let settings = ServerProbe { enabled: None, probe: Some(own.clone()) };
        assert_eq!(chosen(Some(&settings), usual), Some(own));
        assert_eq!(chosen(Some(&ServerProbe { enabled: Some(false), ..settings }), usual), None);
    }
}
