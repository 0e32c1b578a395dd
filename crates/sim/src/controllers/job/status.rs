//! Status of a Job, written before the finalizers of counted pods are removed.

use std::time::Duration;

use capstan_apiserver::error::Result;
use k8s_openapi::api::batch::v1::{Job, JobCondition};

use super::super::common::nonzero;
use super::super::pods;
use super::{Step, manage};

impl Step<'_> {
    /// Writes the status and removes the finalizers of counted pods. Returns the requeue delay.
    pub(super) async fn write(&mut self) -> Result<Option<Duration>> {
        self.status.active = nonzero(i32::try_from(self.active.len()).unwrap_or(i32::MAX));
        let ready = self.active.iter().filter(|pod| pods::is_ready(pod)).count();
        self.status.ready = Some(i32::try_from(ready).unwrap_or(i32::MAX));
        self.status.terminating = Some(self.terminating);
        self.note_suspension();
        let ended = self.record_result();
        let mut next = Job::clone(&self.job);
        next.status = Some(self.status.clone());
        self.job = self.this.writer.update_status(&self.job, &next).await?;
        for pod in &self.counted {
            manage::untrack(self.this, pod).await?;
        }
        if ended {
            self.record_finish_event();
        }
        Ok(None)
    }

    fn note_suspension(&mut self) {
        let suspended = self.condition("Suspended").map(|condition| condition.status == "True");
        match (self.is_suspended(), suspended) {
            (true, Some(true)) | (false, None | Some(false)) => {}
            _ if self.result.is_some() => {}
            (true, _) => {
                self.set("Suspended", "True", "JobSuspended", "Job suspended");
                self.status.start_time = None;
                self.this.normal(&*self.job, "Suspended", "Job suspended");
            }
            (false, Some(true)) => {
                self.set("Suspended", "False", "JobResumed", "Job resumed");
                self.status.start_time = Some(self.this.now());
                self.this.normal(&*self.job, "Resumed", "Job resumed");
            }
        }
    }

    /// Sets the final conditions: `SuccessCriteriaMet` or `FailureTarget` first, `Complete` or `Failed` when no pod is
    /// left.
    fn record_result(&mut self) -> bool {
        let Some(result) = self.result.clone() else { return false };
        let (target, last) =
            if result.succeeded { ("SuccessCriteriaMet", "Complete") } else { ("FailureTarget", "Failed") };
        if self.condition(target).is_none() {
            self.set(target, "True", &result.reason, &result.message);
        }
        let uncounted = self.status.uncounted_terminated_pods.clone().unwrap_or_default();
        let counted = uncounted.succeeded.is_none() && uncounted.failed.is_none();
        if !self.active.is_empty() || self.terminating > 0 || !counted {
            return false;
        }
        self.set(last, "True", &result.reason, &result.message);
        if result.succeeded {
            self.status.completion_time = Some(self.this.now());
        }
        true
    }

    fn record_finish_event(&self) {
        match &self.result {
            Some(result) if result.succeeded => self.this.normal(&*self.job, "Completed", "Job completed"),
            Some(result) => {
                let reason = REASONS.iter().find(|reason| **reason == result.reason).unwrap_or(&"JobFailed");
                self.this.warning(&*self.job, reason, result.message.clone());
            }
            None => {}
        }
    }

    fn condition(&self, kind: &str) -> Option<&JobCondition> {
        self.status.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
    }

    fn set(&mut self, kind: &str, status: &str, reason: &str, message: &str) {
        let now = self.this.now();
        let condition = JobCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_probe_time: Some(now.clone()),
            last_transition_time: Some(now),
        };
        let conditions = self.status.conditions.get_or_insert_default();
        match conditions.iter_mut().find(|condition| condition.type_ == kind) {
            Some(old) => *old = condition,
            None => conditions.push(condition),
        }
    }
}

/// Reasons of events about failed jobs.
const REASONS: &[&str] =
    &["BackoffLimitExceeded", "DeadlineExceeded", "PodFailurePolicy", "MaxFailedIndexesExceeded", "FailedIndexes"];
