//! Job controller: runs pods until a number of them succeeded.
//!
//! A finalizer retains each pod until it is counted: its UID goes into `uncountedTerminatedPods`, then the finalizer is
//! removed, then the count is incremented. So each pod is counted exactly once, even if it is deleted or this process
//! restarts.

mod indexes;
mod manage;
mod policy;
mod status;
mod ttl;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use capstan_apiserver::error::Result;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};

use super::common::{Controller, Outcome, Reconciled, nonzero, uid_of};
use super::pods;
use crate::Pod;
use crate::context::Context;
use indexes::Indexes;
use policy::JobResult;

/// Retains a pod until its Job has counted it.
pub(crate) const FINALIZER: &str = "batch.kubernetes.io/job-tracking";

pub(crate) fn start(context: &Context) {
    let controller = Controller::new(context, "job-controller", "job-controller");
    controller.watch(&context.caches.jobs);
    controller.watch_owned::<Job, _>(&context.caches.pods);
    let failures = Arc::new(Failures::default());
    controller.run(2, move |this, key| {
        let failures = failures.clone();
        async move { reconcile(&this, &failures, &key).await }
    });
    ttl::start(context);
}

/// By Job: failed pods since the last success, and when the last one failed.
type Failures = Mutex<HashMap<String, (u32, Timestamp)>>;

async fn reconcile(this: &Controller, failures: &Failures, key: &str) -> Reconciled {
    let Some(job) = this.context.caches.jobs.get(key) else { return Ok(Outcome::Done) };
    let spec = job.spec.clone().unwrap_or_default();
    if spec.managed_by.as_deref().is_some_and(|by| by != "kubernetes.io/job-controller") {
        return Ok(Outcome::Done);
    }
    let pods = match &spec.selector {
        Some(selector) => this.claim(&*job, selector, &this.context.caches.pods).await?,
        None => this.context.caches.pods.controlled_by(uid_of(&*job)),
    };
    if policy::is_finished(&job) || job.metadata.deletion_timestamp.is_some() {
        lock(failures).remove(uid_of(&*job));
        return release(this, &pods).await.map(|()| Outcome::Done);
    }
    let mut step = Step::new(this, failures, job, spec, pods);
    step.record_start();
    step.count();
    step.decide_result();
    let managed = step.manage_pods().await;
    let wait = step.write().await?;
    managed.map(|soon| Outcome::requeue_after([soon, wait, step.until_deadline()].into_iter().flatten().min()))
}

/// Removes the finalizer of pods whose Job no longer counts them.
async fn release(this: &Controller, pods: &[Arc<Pod>]) -> Result<()> {
    for pod in pods.iter().filter(|pod| is_tracked(pod)) {
        manage::untrack(this, pod).await?;
    }
    Ok(())
}

/// One reconcile of a job.
struct Step<'a> {
    this: &'a Controller,
    failures: &'a Failures,
    job: Arc<Job>,
    spec: JobSpec,
    /// The new status.
    status: JobStatus,
    pods: Vec<Arc<Pod>>,
    active: Vec<Arc<Pod>>,
    /// Pods with a deletion timestamp that have not terminated.
    terminating: i32,
    /// Pods whose finalizer is removed after the status write.
    counted: Vec<Arc<Pod>>,
    succeeded: Indexes,
    failed: Indexes,
    result: Option<JobResult>,
}

impl<'a> Step<'a> {
    fn new(this: &'a Controller, failures: &'a Failures, job: Arc<Job>, spec: JobSpec, pods: Vec<Arc<Pod>>) -> Self {
        let status = job.status.clone().unwrap_or_default();
        let active = pods.iter().filter(|pod| pods::is_active(pod)).cloned().collect();
        let terminating = pods.iter().filter(|pod| pods::is_deleting(pod) && !pods::is_terminal(pod)).count();
        let completions = usize::try_from(spec.completions.unwrap_or(0)).unwrap_or(0);
        let read = |text: &Option<String>| Indexes::parse(text.as_deref().unwrap_or_default(), completions);
        let (succeeded, failed) = (read(&status.completed_indexes), read(&status.failed_indexes));
        let terminating = i32::try_from(terminating).unwrap_or(i32::MAX);
        let counted = Vec::new();
        Self { this, failures, job, spec, status, pods, active, terminating, counted, succeeded, failed, result: None }
    }

    fn is_indexed(&self) -> bool {
        self.spec.completion_mode.as_deref() == Some("Indexed")
    }

    fn is_suspended(&self) -> bool {
        self.spec.suspend == Some(true)
    }

    fn parallelism(&self) -> usize {
        usize::try_from(self.spec.parallelism.unwrap_or(1)).unwrap_or(0)
    }

    /// Whether a terminating pod counts as failed before it has terminated.
    fn counts_deleting(&self) -> bool {
        match self.spec.pod_replacement_policy.as_deref() {
            Some(policy) => policy != "Failed",
            None => self.spec.pod_failure_policy.is_none(),
        }
    }

    fn is_failed(&self, pod: &Pod) -> bool {
        let phase = pods::phase(pod);
        phase == "Failed" || (self.counts_deleting() && pods::is_deleting(pod) && phase != "Succeeded")
    }

    /// Sets `startTime` when the Job is first reconciled or resumed.
    fn record_start(&mut self) {
        if self.status.start_time.is_none() && !self.is_suspended() {
            self.status.start_time = Some(self.this.now());
        }
    }

    fn until_deadline(&self) -> Option<Duration> {
        let deadline = self.spec.active_deadline_seconds?;
        let start = self.status.start_time.as_ref()?;
        if self.result.is_some() || self.is_suspended() {
            return None;
        }
        let left = start.0.as_second() + deadline - self.this.now().0.as_second();
        Some(Duration::from_secs(u64::try_from(left).unwrap_or(0)))
    }

    fn succeeded_count(&self) -> i32 {
        let uncounted = self.status.uncounted_terminated_pods.as_ref().and_then(|pods| pods.succeeded.as_ref());
        self.status.succeeded.unwrap_or(0) + uncounted.map_or(0, |uids| i32::try_from(uids.len()).unwrap_or(0))
    }

    fn failed_count(&self) -> i32 {
        let uncounted = self.status.uncounted_terminated_pods.as_ref().and_then(|pods| pods.failed.as_ref());
        self.status.failed.unwrap_or(0) + uncounted.map_or(0, |uids| i32::try_from(uids.len()).unwrap_or(0))
    }

    /// Moves UIDs of pods without a finalizer into the counts, and collects pods that terminated since.
    fn count(&mut self) {
        let tracked: HashMap<String, Arc<Pod>> = self
            .pods
            .iter()
            .filter(|pod| is_tracked(pod))
            .map(|pod| (uid_of(&**pod).to_owned(), pod.clone()))
            .collect();
        let uncounted = self.status.uncounted_terminated_pods.get_or_insert_default();
        let (mut succeeded, mut failed) = (0, 0);
        for (uids, count) in [(&mut uncounted.succeeded, &mut succeeded), (&mut uncounted.failed, &mut failed)] {
            let Some(known) = uids else { continue };
            let before = known.len();
            known.retain(|uid| tracked.contains_key(uid));
            *count = i32::try_from(before - known.len()).unwrap_or(0);
            self.counted.extend(known.iter().map(|uid| tracked[uid].clone()));
            if known.is_empty() {
                *uids = None;
            }
        }
        self.status.succeeded = nonzero(self.status.succeeded.unwrap_or(0) + succeeded);
        self.status.failed = nonzero(self.status.failed.unwrap_or(0) + failed);
        for pod in self.pods.clone().iter().filter(|pod| is_tracked(pod)) {
            if self.counted.iter().all(|mine| mine.metadata.uid != pod.metadata.uid) {
                self.count_pod(pod);
            }
        }
        if self.is_indexed() {
            self.status.completed_indexes = self.succeeded.text();
            self.status.failed_indexes = match self.spec.backoff_limit_per_index {
                Some(_) => Some(self.failed.text().unwrap_or_default()),
                None => None,
            };
            self.status.succeeded = nonzero(i32::try_from(self.succeeded.len()).unwrap_or(i32::MAX));
        }
    }

    fn count_pod(&mut self, pod: &Arc<Pod>) {
        let index = manage::index_of(pod);
        let valid = !self.is_indexed() || index.is_some_and(|index| self.succeeded.is_valid(index));
        let over = policy::has_failure_target(&self.job);
        if pods::phase(pod) == "Succeeded" {
            self.record_pod_result(pod, true);
            match index.filter(|_| self.is_indexed()) {
                Some(index) => self.succeeded.insert(index),
                None => push(&mut self.status, Succeeded, uid_of(&**pod)),
            }
        } else if self.is_failed(pod) || over {
            let matched = policy::failure_action(&self.spec, pod);
            if matched.counts() && valid {
                self.record_pod_result(pod, false);
                push(&mut self.status, Failed, uid_of(&**pod));
                if let (Some(index), Some(limit)) = (index, self.spec.backoff_limit_per_index)
                    && (matched.fails_index() || manage::failures_of(pod) >= limit)
                {
                    self.failed.insert(index);
                }
            }
            if let Some(reason) = matched.fails_job(pod) {
                self.result.get_or_insert(reason);
            }
        } else {
            return;
        }
        self.counted.push(pod.clone());
    }

    /// Records the result of a pod: the backoff grows with each failure in a row.
    fn record_pod_result(&self, pod: &Pod, success: bool) {
        let mut failures = lock(self.failures);
        let entry = failures.entry(uid_of(&*self.job).to_owned()).or_default();
        if success {
            *entry = (0, Timestamp::default());
        } else {
            *entry = (entry.0 + 1, manage::ended_at(pod).unwrap_or_else(|| self.this.now().0).max(entry.1));
        }
    }
}

#[derive(Clone, Copy)]
enum Ended {
    Succeeded,
    Failed,
}
use Ended::{Failed, Succeeded};

fn push(status: &mut JobStatus, ended: Ended, uid: &str) {
    let uncounted = status.uncounted_terminated_pods.get_or_insert_default();
    let uids = match ended {
        Succeeded => &mut uncounted.succeeded,
        Failed => &mut uncounted.failed,
    };
    uids.get_or_insert_default().push(uid.to_owned());
}

fn is_tracked(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER)
}

fn lock(failures: &Failures) -> std::sync::MutexGuard<'_, HashMap<String, (u32, Timestamp)>> {
    failures.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
