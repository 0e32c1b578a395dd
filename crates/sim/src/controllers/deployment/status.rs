//! Status of a Deployment: counts, and the conditions `Available`, `Progressing` and `ReplicaFailure`.

use std::sync::Arc;
use std::time::Duration;

use capstan_apiserver::error::{Result, Status};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus};

use super::super::common::{Outcome, Reconciled, name_of, nonzero, set_in};
use super::{REVISION, Step, is_paused, replicas, total};

const AVAILABLE: &str = "Available";
const PROGRESSING: &str = "Progressing";
const REPLICA_FAILURE: &str = "ReplicaFailure";
const ALL_AVAILABLE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";

/// Progress of the ReplicaSet of the current template.
pub(super) struct Progress {
    reason: &'static str,
    message: String,
}

impl Progress {
    /// It existed already.
    pub(super) fn found(name: &str) -> Self {
        Self { reason: "FoundNewReplicaSet", message: format!("Found new replica set \"{name}\"") }
    }

    /// It was created.
    pub(super) fn created(name: &str) -> Self {
        Self { reason: "NewReplicaSetCreated", message: format!("Created new replica set \"{name}\"") }
    }
}

impl Step<'_> {
    /// Writes the status without a `Progressing` update, as while scaling or paused.
    pub(super) async fn write_status(&mut self) -> Reconciled {
        let status = self.status();
        self.write(status).await?;
        Ok(Outcome::Done)
    }

    /// Writes the status of a rollout, and requeues for its progress deadline.
    pub(super) async fn write_rollout_status(&mut self) -> Reconciled {
        let mut status = self.status();
        match self.deadline() {
            None => remove(&mut status, PROGRESSING),
            Some(_) => self.update_progressing(&mut status),
        }
        remove(&mut status, REPLICA_FAILURE);
        if let Some(failure) = self.replica_failure() {
            set(&mut status, failure);
        }
        self.write(status).await?;
        Ok(Outcome::requeue_after(self.until_overdue()))
    }

    /// Whether the last written status reports a complete rollout.
    pub(super) fn is_complete(&self) -> bool {
        self.deployment.status.as_ref().is_some_and(|status| self.completes(status))
    }

    /// Records in `Progressing` that the Deployment was paused or resumed: the deadline does not run meanwhile.
    pub(super) async fn record_pause(&mut self) -> Result<()> {
        if self.deadline().is_none() {
            return Ok(());
        }
        let mut status = self.deployment.status.clone().unwrap_or_default();
        let reason = find(&status, PROGRESSING).and_then(|condition| condition.reason.clone()).unwrap_or_default();
        let (paused, noted) = (is_paused(&self.deployment), reason == "DeploymentPaused");
        // A rollout that timed out remains timed out.
        if reason == TIMED_OUT || paused == noted {
            return Ok(());
        }
        let (reason, message) = match paused {
            true => ("DeploymentPaused", "Deployment is paused"),
            false => ("DeploymentResumed", "Deployment is resumed"),
        };
        set(&mut status, self.condition(PROGRESSING, "Unknown", reason, message));
        self.write(status).await
    }

    /// Sets the revision annotation of the Deployment, and adds `Progressing` if it is absent.
    pub(super) async fn record_revision(&mut self, revision: &str, progress: Progress) -> Result<()> {
        let mut next = Deployment::clone(&self.deployment);
        // Written with the status: a new annotation through the main resource would be a new generation.
        set_in(&mut next.metadata.annotations, REVISION, revision);
        let status = next.status.get_or_insert_default();
        let is_new = progress.reason == "NewReplicaSetCreated";
        if self.deadline().is_some() && (is_new || find(status, PROGRESSING).is_none()) {
            set(status, self.condition(PROGRESSING, "True", progress.reason, &progress.message));
        }
        self.deployment = self.this.writer.update_status(&self.deployment, &next).await?;
        Ok(())
    }

    /// Increments `collisionCount`, so that the next hash differs.
    pub(super) async fn record_collision(&mut self) -> Result<()> {
        let mut status = self.deployment.status.clone().unwrap_or_default();
        status.collision_count = Some(status.collision_count.unwrap_or(0) + 1);
        self.write(status).await
    }

    /// Records that the new ReplicaSet could not be created.
    pub(super) async fn record_failure(&mut self, error: Status) -> Result<()> {
        let message = format!("Failed to create new replica set: {error}");
        if self.deadline().is_some() {
            let mut status = self.deployment.status.clone().unwrap_or_default();
            set(&mut status, self.condition(PROGRESSING, "False", "ReplicaSetCreateError", &message));
            self.write(status).await?;
        }
        self.this.warning(&*self.deployment, "ReplicaSetCreateError", message);
        Err(error)
    }

    async fn write(&mut self, status: DeploymentStatus) -> Result<()> {
        let mut next = Deployment::clone(&self.deployment);
        next.status = Some(status);
        self.deployment = self.this.writer.update_status(&self.deployment, &next).await?;
        Ok(())
    }

    fn status(&self) -> DeploymentStatus {
        let statuses = || self.sets.iter().map(|set| set.status.clone().unwrap_or_default());
        let available: i32 = statuses().filter_map(|status| status.available_replicas).sum();
        let new = self.new_set().and_then(|set| set.status.clone()).unwrap_or_default();
        let old = self.deployment.status.clone().unwrap_or_default();
        let mut status = DeploymentStatus {
            observed_generation: self.deployment.metadata.generation,
            replicas: nonzero(statuses().map(|status| status.replicas).sum()),
            updated_replicas: nonzero(new.replicas),
            ready_replicas: nonzero(statuses().filter_map(|status| status.ready_replicas).sum()),
            available_replicas: nonzero(available),
            unavailable_replicas: nonzero((total(&self.sets) - available).max(0)),
            terminating_replicas: Some(statuses().filter_map(|status| status.terminating_replicas).sum()),
            collision_count: old.collision_count,
            conditions: old.conditions,
        };
        let condition = if available >= self.replicas() - self.max_unavailable() {
            let message = "Deployment has minimum availability.";
            self.condition(AVAILABLE, "True", "MinimumReplicasAvailable", message)
        } else {
            let message = "Deployment does not have minimum availability.";
            self.condition(AVAILABLE, "False", "MinimumReplicasUnavailable", message)
        };
        set(&mut status, condition);
        status
    }

    fn update_progressing(&self, status: &mut DeploymentStatus) {
        let current = find(status, PROGRESSING).cloned();
        let reason = current.as_ref().and_then(|condition| condition.reason.as_deref());
        if status.replicas == status.updated_replicas && reason == Some(ALL_AVAILABLE) {
            return;
        }
        let subject = match self.new_set() {
            Some(set) => format!("ReplicaSet \"{}\"", name_of(&*set)),
            None => format!("Deployment \"{}\"", name_of(&*self.deployment)),
        };
        if self.completes(status) {
            let message = format!("{subject} has successfully progressed.");
            set(status, self.condition(PROGRESSING, "True", ALL_AVAILABLE, &message));
        } else if self.progresses(status) {
            let message = format!("{subject} is progressing.");
            let mut condition = self.condition(PROGRESSING, "True", "ReplicaSetUpdated", &message);
            if let Some(current) = current.filter(|current| current.status.as_deref() == Some("True")) {
                condition.last_transition_time = current.last_transition_time;
            }
            remove(status, PROGRESSING);
            set(status, condition);
        } else if self.is_overdue(status) {
            let message = format!("{subject} has timed out progressing.");
            set(status, self.condition(PROGRESSING, "False", TIMED_OUT, &message));
        }
    }

    /// Whether all replicas have the current template, are available, and no old ones remain.
    fn completes(&self, status: &DeploymentStatus) -> bool {
        let wanted = self.replicas();
        status.updated_replicas.unwrap_or(0) == wanted
            && status.replicas.unwrap_or(0) == wanted
            && status.available_replicas.unwrap_or(0) == wanted
            && status.observed_generation >= self.deployment.metadata.generation
    }

    /// Whether more pods are updated, fewer are old, or more are ready than in the last status.
    fn progresses(&self, status: &DeploymentStatus) -> bool {
        let before = self.deployment.status.clone().unwrap_or_default();
        let old = |status: &DeploymentStatus| status.replicas.unwrap_or(0) - status.updated_replicas.unwrap_or(0);
        status.updated_replicas > before.updated_replicas
            || old(status) < old(&before)
            || status.ready_replicas > before.ready_replicas
            || status.available_replicas > before.available_replicas
    }

    fn is_overdue(&self, status: &DeploymentStatus) -> bool {
        let Some(condition) = find(status, PROGRESSING) else { return false };
        match condition.reason.as_deref() {
            Some(TIMED_OUT) => true,
            Some(ALL_AVAILABLE) => false,
            _ => self.seconds_left(condition).is_some_and(|left| left < 0),
        }
    }

    /// Delay until the progress deadline.
    fn until_overdue(&self) -> Option<Duration> {
        let status = self.deployment.status.as_ref()?;
        let condition = find(status, PROGRESSING)?;
        if self.completes(status) || condition.reason.as_deref() == Some(TIMED_OUT) {
            return None;
        }
        let left = self.seconds_left(condition)?;
        // Plus one second, as timestamps have no fractions.
        Some(Duration::from_secs(u64::try_from(left).unwrap_or(0) + 1))
    }

    fn seconds_left(&self, condition: &DeploymentCondition) -> Option<i64> {
        let since = condition.last_update_time.as_ref()?.0.as_second();
        Some(since + i64::from(self.deadline()?) - self.this.now().0.as_second())
    }

    fn deadline(&self) -> Option<i32> {
        self.deployment.spec.progress_deadline_seconds.filter(|deadline| *deadline != i32::MAX)
    }

    fn replica_failure(&self) -> Option<DeploymentCondition> {
        let sets = self.new_set().into_iter().chain(self.sets.iter().filter(|set| replicas(set) > 0).cloned());
        let mut failures = sets.filter_map(|set| {
            let conditions = Arc::unwrap_or_clone(set).status?.conditions?;
            conditions.into_iter().find(|condition| condition.type_.as_deref() == Some(REPLICA_FAILURE))
        });
        let failure = failures.next()?;
        Some(DeploymentCondition {
            type_: Some(REPLICA_FAILURE.to_owned()),
            status: failure.status,
            reason: failure.reason,
            message: failure.message,
            last_transition_time: failure.last_transition_time.clone(),
            last_update_time: failure.last_transition_time,
        })
    }

    fn condition(&self, kind: &str, status: &str, reason: &str, message: &str) -> DeploymentCondition {
        let now = self.this.now();
        DeploymentCondition {
            type_: Some(kind.to_owned()),
            status: Some(status.to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_update_time: Some(now.clone()),
            last_transition_time: Some(now),
        }
    }
}

fn find<'a>(status: &'a DeploymentStatus, kind: &str) -> Option<&'a DeploymentCondition> {
    status.conditions.as_ref()?.iter().find(|condition| condition.type_.as_deref() == Some(kind))
}

/// Replaces a condition, unless it is equal.
fn set(status: &mut DeploymentStatus, mut condition: DeploymentCondition) {
    let kind = condition.type_.clone().unwrap_or_default();
    if let Some(current) = find(status, &kind) {
        if current.status == condition.status && current.reason == condition.reason {
            return;
        }
        if current.status == condition.status {
            condition.last_transition_time.clone_from(&current.last_transition_time);
        }
    }
    remove(status, &kind);
    status.conditions.get_or_insert_default().push(condition);
}

fn remove(status: &mut DeploymentStatus, kind: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| condition.type_.as_deref() != Some(kind));
        if conditions.is_empty() {
            status.conditions = None;
        }
    }
}
