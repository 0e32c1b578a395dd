//! Pods of a Job: creates the missing ones, each with its completion index, and deletes surplus ones.

use std::sync::Arc;
use std::time::Duration;

use capstan_apiserver::error::{Result, Status};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector};

use super::super::common::{
    Controller, created_at, ignore_not_found, name_of, namespace_is_terminating, parse_annotation, set_in, uid_of,
};
use super::super::pods::{self, from_template};
use super::{FINALIZER, Step, lock};
use crate::Pod;

const INDEX: &str = "batch.kubernetes.io/job-completion-index";
const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
const FIRST_BACKOFF: Duration = Duration::from_secs(10);
const LAST_BACKOFF: Duration = Duration::from_secs(600);
/// Maximum number of pods that one reconcile creates.
const BURST_REPLICAS: usize = 500;

/// Completion index of a pod.
pub(super) fn index_of(pod: &Pod) -> Option<usize> {
    parse_annotation(&pod.metadata, INDEX)
}

/// Earlier failures of the pod's index.
pub(super) fn failures_of(pod: &Pod) -> i32 {
    parse_annotation(&pod.metadata, INDEX_FAILURES).unwrap_or(0)
}

/// When the last container of a pod terminated.
pub(super) fn ended_at(pod: &Pod) -> Option<Timestamp> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let ends = statuses.iter().filter_map(|status| status.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref());
    ends.map(|time| time.0).max()
}

/// Removes the tracking finalizer that retains a pod until it is counted.
pub(super) async fn untrack(this: &Controller, pod: &Arc<Pod>) -> Result<()> {
    let mut next = Pod::clone(pod);
    next.metadata.finalizers.get_or_insert_default().retain(|finalizer| finalizer != FINALIZER);
    if next.metadata.finalizers.as_ref().is_some_and(Vec::is_empty) {
        next.metadata.finalizers = None;
    }
    ignore_not_found(this.writer.update(pod, &next).await.map(drop))
}

impl Step<'_> {
    /// Creates or deletes pods. Returns the requeue delay.
    pub(super) async fn manage_pods(&mut self) -> Result<Option<Duration>> {
        if self.result.is_some() {
            for pod in std::mem::take(&mut self.active) {
                self.this.delete_pod(&*self.job, &pod).await?;
                self.terminating += 1;
            }
            return Ok(None);
        }
        if self.is_suspended() {
            let all = self.active.len();
            self.drop_pods(all).await?;
            return Ok(None);
        }
        let wanted = self.wanted_active();
        if self.active.len() > wanted {
            self.drop_pods(self.active.len() - wanted).await?;
            return Ok(None);
        }
        let mut missing = wanted - self.active.len();
        if !self.counts_deleting() {
            missing = missing.saturating_sub(usize::try_from(self.terminating).unwrap_or(0));
        }
        if missing == 0 {
            return Ok(None);
        }
        match self.backoff() {
            Some(left) => Ok(Some(left)),
            None => self.create(missing.min(BURST_REPLICAS)).await,
        }
    }

    fn wanted_active(&self) -> usize {
        match self.spec.completions {
            None if self.succeeded_count() > 0 => self.active.len(),
            None => self.parallelism(),
            Some(completions) => {
                let ended = i32::try_from(self.failed.len()).unwrap_or(0) + self.succeeded_count();
                self.parallelism().min(usize::try_from(completions - ended).unwrap_or(0))
            }
        }
    }

    /// Remaining backoff of the next pod after failures.
    fn backoff(&self) -> Option<Duration> {
        let (count, last) = lock(self.failures).get(uid_of(&*self.job)).copied().unwrap_or_default();
        if count == 0 {
            return None;
        }
        let delay = FIRST_BACKOFF.saturating_mul(1 << (count - 1).min(16)).min(LAST_BACKOFF);
        let since = self.this.context.clock().now().duration_since(last);
        delay.checked_sub(Duration::try_from(since).unwrap_or_default()).filter(|left| !left.is_zero())
    }

    /// Deletes surplus pods. They do not count as failed.
    async fn drop_pods(&mut self, count: usize) -> Result<()> {
        self.active.sort_by_key(|pod| {
            let unassigned = pods::node_name(pod).is_empty();
            let pending = pods::phase(pod) == "Pending";
            (!unassigned, !pending, pods::is_ready(pod), -created_at(&**pod), name_of(&**pod).to_owned())
        });
        for pod in self.active.drain(..count).collect::<Vec<_>>() {
            untrack(self.this, &pod).await?;
            self.this.delete_pod(&*self.job, &pod).await?;
            self.terminating += 1;
        }
        Ok(())
    }

    async fn create(&mut self, count: usize) -> Result<Option<Duration>> {
        let new_pods: Vec<Pod> = match self.is_indexed() {
            true => self.pending_indexes(count).into_iter().map(|index| self.indexed_pod(index)).collect(),
            false => vec![self.plain_pod(); count],
        };
        let (created, failure): (usize, Option<Status>) = self.this.create_pods(&*self.job, new_pods).await;
        let uid = uid_of(&*self.job);
        if created > 0 {
            let all = self.this.context.caches.pods.controlled_by(uid);
            self.active = all.into_iter().filter(|pod| pods::is_active(pod)).collect();
        }
        match failure {
            Some(error) if !namespace_is_terminating(&error) => Err(error),
            _ => Ok(None),
        }
    }

    fn pending_indexes(&self, count: usize) -> Vec<usize> {
        let completions = usize::try_from(self.spec.completions.unwrap_or(0)).unwrap_or(0);
        let waiting = self.pods.iter().filter(|pod| !self.counts_deleting() && pods::is_deleting(pod));
        let busy: Vec<usize> = self.active.iter().chain(waiting).filter_map(|pod| index_of(pod)).collect();
        let free =
            |index: &usize| !busy.contains(index) && !self.succeeded.contains(*index) && !self.failed.contains(*index);
        (0..completions).filter(free).take(count).collect()
    }

    fn plain_pod(&self) -> Pod {
        let mut pod = from_template(&self.spec.template, &*self.job);
        pod.metadata.finalizers.get_or_insert_default().push(FINALIZER.to_owned());
        pod
    }

    fn indexed_pod(&self, index: usize) -> Pod {
        let mut pod = self.plain_pod();
        let name = format!("{}-{index}", name_of(&*self.job));
        pod.metadata.generate_name = Some(format!("{name}-"));
        set_in(&mut pod.metadata.labels, INDEX, index.to_string());
        set_in(&mut pod.metadata.annotations, INDEX, index.to_string());
        if self.spec.backoff_limit_per_index.is_some() {
            let before = self.pods.iter().filter(|pod| index_of(pod) == Some(index) && self.is_failed(pod));
            let failures = before.map(|pod| failures_of(pod) + 1).max().unwrap_or(0);
            set_in(&mut pod.metadata.annotations, INDEX_FAILURES, failures.to_string());
        }
        let spec = pod.spec_mut();
        spec.hostname = Some(name);
        let containers = spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten());
        containers.for_each(set_index_env);
        pod
    }
}

fn set_index_env(container: &mut Container) {
    const NAME: &str = "JOB_COMPLETION_INDEX";
    let env = container.env.get_or_insert_default();
    if env.iter().any(|variable| variable.name == NAME) {
        return;
    }
    let field = ObjectFieldSelector { field_path: format!("metadata.labels['{INDEX}']"), api_version: None };
    let source = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
    env.push(EnvVar { name: NAME.to_owned(), value_from: Some(source), value: None });
}
