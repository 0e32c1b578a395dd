//! Supervises the roles of one process: a role that fails or panics is restarted with backoff, without effect on the
//! others. Their state is in [`Health`] and in Node events.
//!
//! A role with a node label runs while that label is `true`, as if it had a pod of its own.

mod backoff;
mod events;
mod health;
mod serve;
#[cfg(test)]
mod tests;

use std::time::Duration;

use futures::{Stream, StreamExt};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tracing::instrument::WithSubscriber;

pub use backoff::Backoff;
pub use health::{Failure, FailureKind, Health, Report, RoleHealth, State};
pub use serve::serve_health;

use crate::own_node::{NodeFacts, OwnNode};
use crate::roles::Role;
use crate::{Cx, Error, Result};
use events::{Change, NodeEvents};

/// If the node's labels are not known within this time, roles run anyway: serving GPUs is more important than pausing a
/// role.
const LABELS_TIMEOUT: Duration = Duration::from_secs(10);

/// Settings of the supervisor.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Node name, for labels and events; empty for neither.
    pub node_name: String,
    /// Run a role only while its node label is `true`.
    pub follow_node_labels: bool,
    /// Restart backoff.
    pub backoff: Backoff,
}

/// Runs roles until stopped, or until all have completed. A failing role ends no other.
pub async fn supervise(roles: Vec<Role>, settings: Settings, cx: Cx) -> Result<()> {
    if !settings.follow_node_labels {
        return run(roles, None, settings, cx).await;
    }
    if settings.node_name.is_empty() {
        return Err(OwnNode::unnamed());
    }
    let (sender, labels) = watch::channel(None);
    let facts = watch_node(settings.node_name.clone(), settings.backoff, cx.clone());
    let watched = cx.stop.clone().run_until_cancelled_owned(forward_labels(facts, sender));
    let watching = tokio::spawn(watched.with_current_subscriber());
    let ended = run(roles, Some(labels), settings, cx).await;
    watching.abort();
    ended
}

/// The node's state; `None` before the first response of the API server.
type Labels = watch::Receiver<Option<NodeFacts>>;

async fn run(roles: Vec<Role>, labels: Option<Labels>, settings: Settings, cx: Cx) -> Result<()> {
    let events = NodeEvents::start(settings.node_name.clone(), &cx);
    let mut running = JoinSet::new();
    for role in roles {
        // In the order of the list, paused until the label is known.
        cx.health.update(role.name(), |role| role.state = State::Paused);
        let label = capstan_node::role(role.name()).and_then(|role| role.deploy_label);
        let enabled_by = label.zip(labels.clone()).map(|(label, labels)| EnableLabel { label, labels });
        let supervisor = Supervisor { role, backoff: settings.backoff, events: events.clone(), cx: cx.clone() };
        running.spawn(supervisor.run(enabled_by).with_current_subscriber());
    }
    while let Some(ended) = running.join_next().await {
        // Roles have tasks of their own: only a fault of the supervisor itself ends up here.
        ended.map_err(|error| Error::External(error.to_string()))?;
    }
    Ok(())
}

/// Watches the Node; reconnects with backoff.
fn watch_node(name: String, backoff: Backoff, cx: Cx) -> impl Stream<Item = Result<NodeFacts>> + Send {
    let connect = async move {
        let mut failures = 0;
        loop {
            match OwnNode::connect(&name, &cx).await {
                Ok(node) => return node.watch(),
                Err(error) => {
                    failures += 1;
                    let delay = backoff.delay(failures, fastrand::f64());
                    tracing::warn!(%error, ?delay, "node labels not read; retrying");
                    tokio::time::sleep(delay).await;
                }
            }
        }
    };
    futures::stream::once(connect).flatten()
}

async fn forward_labels(facts: impl Stream<Item = Result<NodeFacts>>, labels: watch::Sender<Option<NodeFacts>>) {
    let mut facts = std::pin::pin!(facts);
    while let Some(facts) = facts.next().await {
        match facts {
            Ok(facts) => drop(labels.send_replace(Some(facts))),
            Err(error) => tracing::warn!(%error, "node labels not read; roles keep running"),
        }
    }
    // The watch ended; the last known labels still apply.
    std::future::pending().await
}

/// The node label that enables a role.
struct EnableLabel {
    label: &'static str,
    labels: Labels,
}

impl EnableLabel {
    fn disables(&self, facts: Option<&NodeFacts>) -> bool {
        facts.is_some_and(|facts| facts.label(self.label) != Some("true"))
    }

    /// Waits for the first response of the API server, with a timeout.
    async fn wait_until_known(&mut self) {
        let _ = tokio::time::timeout(LABELS_TIMEOUT, self.labels.wait_for(Option::is_some)).await;
    }

    fn is_paused(&self) -> bool {
        self.disables(self.labels.borrow().as_ref())
    }

    /// Waits until the role is paused, or enabled.
    async fn until(&mut self, paused: bool) {
        while self.is_paused() != paused {
            if self.labels.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// [`EnableLabel::until`] for a role that may have no label.
async fn until(enabled_by: &mut Option<EnableLabel>, paused: bool) {
    match enabled_by {
        Some(enabled_by) => enabled_by.until(paused).await,
        None if paused => std::future::pending().await,
        None => {}
    }
}

/// How a run of a role ended.
enum Ended {
    /// Its label disables it.
    Paused,
    /// It completed, or the process stops.
    Completed,
    Failed(FailureKind, String),
}

struct Supervisor {
    role: Role,
    backoff: Backoff,
    events: NodeEvents,
    cx: Cx,
}

impl Supervisor {
    /// Runs and restarts the role until it completes or the process stops.
    async fn run(self, mut enabled_by: Option<EnableLabel>) {
        let stop = &self.cx.stop;
        if let Some(enabled_by) = &mut enabled_by {
            stop.run_until_cancelled(enabled_by.wait_until_known()).await;
        }
        let mut failures = 0;
        while stop.run_until_cancelled(self.wait_while_paused(&mut enabled_by)).await.is_some() {
            match self.run_once(&mut enabled_by, &mut failures).await {
                Ended::Completed => return self.set(State::Completed),
                Ended::Paused => {}
                Ended::Failed(kind, message) => {
                    failures += 1;
                    stop.run_until_cancelled(self.back_off(kind, message, failures, &mut enabled_by)).await;
                }
            }
        }
    }

    fn set(&self, state: State) {
        self.cx.health.update(self.role.name(), |role| role.state = state);
    }

    /// Waits until the label enables the role.
    async fn wait_while_paused(&self, enabled_by: &mut Option<EnableLabel>) {
        if enabled_by.as_ref().is_some_and(EnableLabel::is_paused) {
            tracing::info!(role = self.role.name(), "role paused: the node's label is not true");
            self.set(State::Paused);
            until(enabled_by, false).await;
        }
    }

    /// One run of the role in its own task: a panic ends only that task.
    async fn run_once(&self, enabled_by: &mut Option<EnableLabel>, failures: &mut u32) -> Ended {
        self.set(State::Running);
        let stop = self.cx.stop.child_token();
        let (role, cx) = (self.role.clone(), Cx { stop: stop.clone(), ..self.cx.clone() });
        // Cancels what a failed run left behind.
        let _leftovers = stop.clone().drop_guard();
        let mut running = tokio::spawn(async move { role.run(cx).await }.with_current_subscriber());
        let recovered = tokio::time::sleep(self.backoff.reset_after);
        tokio::pin!(recovered);
        loop {
            tokio::select! {
                ended = &mut running => return self.ended(ended),
                () = until(enabled_by, true) => break,
                () = &mut recovered, if *failures > 0 => {
                    *failures = 0;
                    tracing::info!(role = self.role.name(), "role recovered");
                    self.cx.health.update(self.role.name(), |role| role.failures = 0);
                    self.events.report(self.role.name(), Change::Recovered);
                }
            }
        }
        stop.cancel();
        if let Ended::Failed(_, error) = self.ended(running.await) {
            tracing::warn!(role = self.role.name(), error, "paused role failed");
        }
        Ended::Paused
    }

    fn ended(&self, ended: Result<Result<()>, JoinError>) -> Ended {
        let (kind, message) = match ended {
            Ok(Ok(())) => return Ended::Completed,
            Ok(Err(error @ Error::Config(_))) => (FailureKind::Configuration, error.to_string()),
            Ok(Err(error)) => (FailureKind::Error, error.to_string()),
            Err(error) => (FailureKind::Panic, panic_message(error)),
        };
        if self.cx.stop.is_cancelled() {
            tracing::warn!(role = self.role.name(), error = message, "role failed during shutdown");
            return Ended::Completed;
        }
        Ended::Failed(kind, message)
    }

    /// Reports the failure, and waits out the backoff.
    async fn back_off(&self, kind: FailureKind, message: String, failures: u32, enabled_by: &mut Option<EnableLabel>) {
        let (name, delay) = (self.role.name(), self.backoff.delay(failures, fastrand::f64()));
        tracing::error!(role = name, attempt = failures, ?delay, ?kind, error = message, "role failed; restarting");
        self.cx.health.update(name, |role| {
            (role.state, role.failures) = (State::Backoff, failures);
            role.last_failure = Some(Failure { kind, message: message.clone(), time: jiff::Timestamp::now() });
        });
        self.events.report(name, Change::Failed(failures, message));
        tokio::select! {
            () = tokio::time::sleep(delay) => self.cx.health.update(name, |role| role.restarts += 1),
            () = until(enabled_by, true) => {}
        }
    }
}

/// The message of a panic.
fn panic_message(error: JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else { return "its task was aborted".into() };
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("panicked: {}", text.as_deref().unwrap_or("without a message"))
}
