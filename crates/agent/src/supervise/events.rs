//! Node events about failing and recovering roles. Best effort: reporting never blocks, and a rejected event is only
//! logged.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::Cx;

/// A role that keeps failing is reported again after this interval.
const REPEAT_INTERVAL: Duration = Duration::from_secs(600);
/// Timeout of an API request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Queue length; further events are dropped.
const QUEUE: usize = 64;
/// Maximum length of an event note.
const NOTE_LENGTH: usize = 1024;

/// A state change of a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// It failed this many times in a row, with the last error.
    Failed(u32, String),
    /// It has run long enough to count as recovered.
    Recovered,
}

/// Reports events of supervisors. Cheap to clone.
#[derive(Clone)]
pub(super) struct NodeEvents(mpsc::Sender<(&'static str, Change)>);

impl NodeEvents {
    /// Writes events about `node` in the background, until the process ends.
    pub(super) fn start(node: String, cx: &Cx) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        tokio::spawn(cx.stop.clone().run_until_cancelled_owned(write(receiver, node, cx.clone())));
        Self(sender)
    }

    /// Reports a change without blocking.
    pub(super) fn report(&self, role: &'static str, change: Change) {
        let _ = self.0.try_send((role, change));
    }
}

async fn write(mut changes: mpsc::Receiver<(&'static str, Change)>, node: String, cx: Cx) {
    let mut throttle = Throttle::default();
    let mut refused = false;
    while let Some((role, change)) = changes.recv().await {
        if !throttle.allows(role, &change, Instant::now()) {
            continue;
        }
        let written = tokio::time::timeout(REQUEST_TIMEOUT, publish(&cx, &node, role, &change)).await;
        let error = match written.unwrap_or_else(|_| Err("the API server took too long".into())) {
            Ok(()) => {
                refused = false;
                continue;
            }
            Err(error) => error,
        };
        if !std::mem::replace(&mut refused, true) {
            tracing::warn!(error, "node events cannot be written; role failures are in logs, metrics and /health only");
        }
    }
}

async fn publish(cx: &Cx, node: &str, role: &'static str, change: &Change) -> Result<(), String> {
    if node.is_empty() {
        return Err("--node-name (NODE_NAME) is empty".into());
    }
    let client = cx.client().await.map_err(|error| error.to_string())?;
    let reporter = Reporter { controller: "capstan-agent".into(), instance: Some(node.to_owned()) };
    let published = Recorder::new(client, reporter).publish(&event(role, change), &about(node)).await;
    published.map_err(|error| error.to_string())
}

/// The Node reference as in kubelet events: `kubectl describe node` matches the name in place of the UID.
fn about(node: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Node".into()),
        name: Some(node.to_owned()),
        uid: Some(node.to_owned()),
        ..ObjectReference::default()
    }
}

fn event(role: &str, change: &Change) -> Event {
    let (type_, reason, note) = match change {
        Change::Failed(failures, error) => {
            let note = format!("role {role} failed and is restarted (failures in a row: {failures}): {error}");
            (EventType::Warning, "AgentRoleFailed", note)
        }
        Change::Recovered => (EventType::Normal, "AgentRoleRecovered", format!("role {role} runs again")),
    };
    let end = (0..=NOTE_LENGTH.min(note.len())).rev().find(|&end| note.is_char_boundary(end)).unwrap_or_default();
    let note = note[..end].to_owned();
    Event { type_, reason: reason.into(), note: Some(note), action: "Restart".into(), secondary: None }
}

/// Limits events: the first failure, a lasting failure, and the recovery from one.
#[derive(Default)]
struct Throttle(BTreeMap<&'static str, Instant>);

impl Throttle {
    fn allows(&mut self, role: &'static str, change: &Change, now: Instant) -> bool {
        match change {
            Change::Recovered => self.0.remove(role).is_some(),
            Change::Failed(..) => {
                let due = self.0.get(role).is_none_or(|last| now.duration_since(*last) >= REPEAT_INTERVAL);
                if due {
                    self.0.insert(role, now);
                }
                due
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_once_until_it_lasts_or_ends() {
        let (mut throttle, start) = (Throttle::default(), Instant::now());
        let failed = || Change::Failed(1, "x".into());
        assert!(!throttle.allows("exporter", &Change::Recovered, start), "nobody was told that it failed");
        assert!(throttle.allows("exporter", &failed(), start));
        assert!(!throttle.allows("exporter", &failed(), start + REPEAT_INTERVAL / 2));
        assert!(throttle.allows("device-plugin", &failed(), start), "each role for itself");
        assert!(throttle.allows("exporter", &failed(), start + REPEAT_INTERVAL));
        assert!(throttle.allows("exporter", &Change::Recovered, start + REPEAT_INTERVAL));
        assert!(throttle.allows("exporter", &failed(), start + REPEAT_INTERVAL));
    }

    #[test]
    fn an_event_names_role_attempts_and_error() {
        let failed = event("exporter", &Change::Failed(3, "port 9400 is taken".into()));
        assert_eq!((failed.type_, failed.reason.as_str()), (EventType::Warning, "AgentRoleFailed"));
        let note = "role exporter failed and is restarted (failures in a row: 3): port 9400 is taken";
        assert_eq!(failed.note.as_deref(), Some(note));
        let recovered = event("exporter", &Change::Recovered);
        assert_eq!((recovered.type_, recovered.reason.as_str()), (EventType::Normal, "AgentRoleRecovered"));
        let long = event("exporter", &Change::Failed(1, "ü".repeat(5000)));
        assert!(long.note.is_some_and(|note| note.len() <= NOTE_LENGTH));
    }
}
