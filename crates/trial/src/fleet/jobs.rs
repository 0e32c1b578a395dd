//! GPU jobs on a simulated fleet: pods that request GPUs for a while, one after the other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_sim::node::{Behaviour, Body, ContainerContext, ExitCode, Match};
use capstan_sim::{Cluster, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::spec::{self, Share};

/// Label of the pods; its value is the job number.
const JOB: &str = "sim.capstan.dev/job";
const NAMESPACE: &str = "default";

/// Results of the jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobsOutcome {
    /// Jobs that completed.
    pub finished: usize,
    /// Jobs that were evicted or deleted.
    pub interrupted: usize,
    /// Total run time of the interrupted jobs, in hours.
    pub hours_lost: f64,
}

/// The jobs of a fleet. Clones share one state.
#[derive(Clone, Default)]
pub(super) struct Jobs {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    outcome: JobsOutcome,
    /// Start times of running jobs, by pod name.
    running: HashMap<String, Instant>,
}

/// Behaviour of their containers: each runs for its own time.
pub(super) fn rule(jobs: &spec::Jobs) -> (Match, Behaviour) {
    let length = jobs.length.0;
    let body = Body::new(move |cx: ContainerContext| async move {
        let name = cx.pod.metadata.name.clone().unwrap_or_default();
        // Ten steps from half the length to one and a half.
        let step = (0..10).find(|step| spec::chosen(*step, &name, Share(0.2))).unwrap_or(9);
        tokio::time::sleep(length.mul_f64(0.55 + 0.1 * step as f64)).await;
        ExitCode::SUCCESS
    });
    let which = Match { labels: [(JOB.to_owned(), "*".to_owned())].into(), ..Match::default() };
    (which, Behaviour { body: Some(body), ..Behaviour::default() })
}

impl Jobs {
    /// Starts the jobs on a cluster with this many nodes: whenever one ends, the next starts.
    pub(super) fn start(cluster: &Cluster, jobs: &spec::Jobs, nodes: usize) -> Self {
        let this = Self::default();
        let (ended, mut next) = mpsc::unbounded_channel::<(usize, Option<Arc<Pod>>)>();
        for number in 0..jobs.share.of(nodes) {
            // The receiver lives as long as the cluster.
            let _ = ended.send((number, None));
        }
        let watched = this.clone();
        cluster.context().caches.pods.subscribe(move |change| {
            let pod = change.last();
            let label = pod.metadata.labels.as_ref().and_then(|labels| labels.get(JOB));
            let Some(number) = label.and_then(|label| label.parse().ok()) else { return };
            if watched.lock().handle_pod(pod, change.new.is_none()) {
                let left = change.new.cloned();
                let _ = ended.send((number, left));
            }
        });
        let writer = cluster.context().controller("sim-jobs");
        let gpus = jobs.gpus;
        cluster.context().spawn(async move {
            let mut count = 0_usize;
            while let Some((number, left)) = next.recv().await {
                if let Some(pod) = left {
                    let _ = writer.delete(&*pod, Default::default()).await;
                }
                count += 1;
                if let Err(error) = writer.create(&pod(number, count, gpus)).await {
                    tracing::debug!(%error, "job not created");
                }
            }
        });
        this
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Results so far.
    pub(super) fn outcome(&self) -> JobsOutcome {
        self.lock().outcome
    }

    /// Resets the results at the start of the scenario.
    pub(super) fn begin(&self) {
        self.lock().outcome = JobsOutcome::default();
    }
}

impl State {
    /// Handles a pod event. Returns whether its job has just ended.
    fn handle_pod(&mut self, pod: &Pod, gone: bool) -> bool {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
        let finished = phase == "Succeeded";
        if !(gone || finished || phase == "Failed") {
            if phase == "Running" && !self.running.contains_key(name) {
                self.running.insert(name.to_owned(), Instant::now());
            }
            return false;
        }
        match self.running.remove(name) {
            Some(_) if finished => self.outcome.finished += 1,
            Some(since) => {
                self.outcome.interrupted += 1;
                self.outcome.hours_lost += since.elapsed().as_secs_f64() / 3600.0;
            }
            // It ended before, or never ran: only one that never ran is replaced.
            None => return gone && phase == "Pending",
        }
        true
    }
}

fn pod(number: usize, count: usize, gpus: u16) -> Pod {
    let spec = json!({
        "restartPolicy": "Never",
        "containers": [{"name": "work", "image": "job:1", "resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}}}],
    });
    Pod {
        metadata: ObjectMeta {
            name: Some(format!("job-{number}-{count}")),
            namespace: Some(NAMESPACE.to_owned()),
            labels: Some([(JOB.to_owned(), number.to_string())].into()),
            ..ObjectMeta::default()
        },
        spec: serde_json::from_value(spec).ok().map(Arc::new),
        ..Pod::default()
    }
}

/// Time for the first jobs to start, so that a scenario begins on a busy fleet.
pub(super) const WARM_UP: Duration = Duration::from_secs(600);
