//! Completion of a Job: success policy, backoff limit, pod failure policy.

use k8s_openapi::api::batch::v1::{Job, JobSpec, PodFailurePolicyRule};
use k8s_openapi::api::core::v1::ContainerStatus;

use super::super::common::{name_of, namespace_of};
use super::super::pods;
use super::{Indexes, Step};
use crate::Pod;

/// Final result of a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JobResult {
    /// Whether it succeeded.
    pub(super) succeeded: bool,
    /// Reason of the condition.
    pub(super) reason: String,
    /// Message of the condition.
    pub(super) message: String,
}

impl JobResult {
    pub(super) fn failure(reason: &str, message: impl Into<String>) -> Self {
        Self { succeeded: false, reason: reason.to_owned(), message: message.into() }
    }

    fn success(reason: &str, message: impl Into<String>) -> Self {
        Self { succeeded: true, reason: reason.to_owned(), message: message.into() }
    }
}

/// Whether the Job has a `Complete` or `Failed` condition.
pub(crate) fn is_finished(job: &Job) -> bool {
    has(job, "Complete") || has(job, "Failed")
}

/// Whether the Job has the `FailureTarget` condition: it fails once its pods are gone.
pub(super) fn has_failure_target(job: &Job) -> bool {
    has(job, "FailureTarget")
}

fn has(job: &Job, kind: &str) -> bool {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == kind && condition.status == "True")
}

impl Step<'_> {
    /// Decides whether the Job is finished. An earlier decision is final.
    pub(super) fn decide_result(&mut self) {
        if let Some(result) = self.decided() {
            self.result = Some(result);
        } else if self.result.is_none() {
            self.result = self.failure().or_else(|| self.success());
        }
    }

    fn decided(&self) -> Option<JobResult> {
        let conditions = self.job.status.as_ref()?.conditions.as_ref()?;
        let result = |kind: &str, succeeded: bool| {
            let found = conditions.iter().find(|condition| condition.type_ == kind && condition.status == "True")?;
            let (reason, message) = (found.reason.clone().unwrap_or_default(), found.message.clone());
            Some(JobResult { succeeded, reason, message: message.unwrap_or_default() })
        };
        result("FailureTarget", false).or_else(|| result("SuccessCriteriaMet", true))
    }

    fn failure(&self) -> Option<JobResult> {
        let limit = self.spec.backoff_limit.unwrap_or(6);
        if self.failed_count() > limit || self.restarted_too_often(limit) {
            return Some(JobResult::failure("BackoffLimitExceeded", "Job has reached the specified backoff limit"));
        }
        if self.until_deadline().is_some_and(|left| left.is_zero()) {
            return Some(JobResult::failure("DeadlineExceeded", "Job was active longer than specified deadline"));
        }
        if self.is_indexed() && self.spec.backoff_limit_per_index.is_some() {
            let failed = i32::try_from(self.failed.len()).unwrap_or(i32::MAX);
            if self.spec.max_failed_indexes.is_some_and(|max| failed > max) {
                let message = "Job has exceeded the specified maximal number of failed indexes";
                return Some(JobResult::failure("MaxFailedIndexesExceeded", message));
            }
            let ended = self.succeeded.len() + self.failed.len();
            let completions = usize::try_from(self.spec.completions.unwrap_or(0)).unwrap_or(0);
            if failed > 0 && ended >= completions {
                return Some(JobResult::failure("FailedIndexes", "Job has failed indexes"));
            }
        }
        None
    }

    /// With `restartPolicy: OnFailure` pods do not fail; their containers restart.
    fn restarted_too_often(&self, limit: i32) -> bool {
        let policy = self.spec.template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
        if policy != Some("OnFailure") {
            return false;
        }
        let restarts = self.active.iter().map(|pod| {
            let status = pod.status.as_ref();
            let of = |list: Option<&Vec<ContainerStatus>>| {
                list.into_iter().flatten().map(|status| status.restart_count).sum::<i32>()
            };
            of(status.and_then(|s| s.container_statuses.as_ref()))
                + of(status.and_then(|s| s.init_container_statuses.as_ref()))
        });
        let restarts: i32 = restarts.sum();
        if limit == 0 { restarts > 0 } else { restarts >= limit }
    }

    fn success(&self) -> Option<JobResult> {
        if let Some(result) = self.success_by_policy() {
            return Some(result);
        }
        let reached = match self.spec.completions {
            Some(completions) => self.succeeded_count() >= completions,
            None => self.succeeded_count() > 0 && self.active.is_empty() && self.terminating == 0,
        };
        let message = "Reached expected number of succeeded pods";
        (reached && !self.is_suspended()).then(|| JobResult::success("CompletionsReached", message))
    }

    fn success_by_policy(&self) -> Option<JobResult> {
        let completions = usize::try_from(self.spec.completions?).ok()?;
        let rules = &self.spec.success_policy.as_ref()?.rules;
        let matched = rules.iter().position(|rule| {
            let wanted = rule.succeeded_indexes.as_deref().map(|text| Indexes::parse(text, completions));
            let done = match &wanted {
                Some(wanted) => (0..completions).filter(|i| wanted.contains(*i) && self.succeeded.contains(*i)).count(),
                None => self.succeeded.len(),
            };
            match (rule.succeeded_count, wanted) {
                (Some(count), _) => i32::try_from(done).unwrap_or(i32::MAX) >= count,
                (None, Some(wanted)) => done == wanted.len(),
                (None, None) => false,
            }
        })?;
        Some(JobResult::success("SuccessPolicy", format!("Matched rules at index {matched}")))
    }
}

/// Effect of a failed pod on its Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Counts towards the backoff limit.
    Count,
    /// None.
    Ignore,
    /// Fails its index.
    FailIndex,
    /// Fails the Job, with this message.
    FailJob(String),
}

impl Action {
    pub(super) fn counts(&self) -> bool {
        *self != Self::Ignore
    }

    pub(super) fn fails_index(&self) -> bool {
        *self == Self::FailIndex
    }

    pub(super) fn fails_job(&self, _pod: &Pod) -> Option<JobResult> {
        match self {
            Self::FailJob(message) => Some(JobResult::failure("PodFailurePolicy", message.clone())),
            _ => None,
        }
    }
}

/// Action of the first pod failure policy rule that matches.
pub(super) fn failure_action(spec: &JobSpec, pod: &Pod) -> Action {
    let rules = spec.pod_failure_policy.iter().flat_map(|policy| &policy.rules);
    if pods::phase(pod) != "Failed" {
        return Action::Count;
    }
    for (index, rule) in rules.enumerate() {
        let Some(what) = matched(rule, pod) else { continue };
        return match rule.action.as_str() {
            "Ignore" => Action::Ignore,
            "FailIndex" => Action::FailIndex,
            "FailJob" => Action::FailJob(format!("{what} matching FailJob rule at index {index}")),
            _ => Action::Count,
        };
    }
    Action::Count
}

fn matched(rule: &PodFailurePolicyRule, pod: &Pod) -> Option<String> {
    let (namespace, name) = (namespace_of(pod), name_of(pod));
    if let Some(wanted) = &rule.on_exit_codes {
        let status = pod.status.as_ref()?;
        let statuses = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
        for status in statuses {
            let Some(code) = exit_code(status).filter(|code| *code != 0) else { continue };
            let concerned = wanted.container_name.as_ref().is_none_or(|name| *name == status.name);
            if concerned && wanted.values.contains(&code) == (wanted.operator == "In") {
                let container = &status.name;
                return Some(format!("Container {container} for pod {namespace}/{name} failed with exit code {code}"));
            }
        }
        return None;
    }
    let patterns = rule.on_pod_conditions.iter().flatten();
    let found = patterns.into_iter().find(|pattern| {
        let wanted = pattern.status.as_deref().unwrap_or("True");
        pods::condition(pod, &pattern.type_).is_some_and(|condition| condition.status == wanted)
    })?;
    Some(format!("Pod {namespace}/{name} has condition {}", found.type_))
}

fn exit_code(status: &ContainerStatus) -> Option<i32> {
    Some(status.state.as_ref()?.terminated.as_ref()?.exit_code)
}
