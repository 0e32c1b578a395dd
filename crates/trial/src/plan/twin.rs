//! A copy of a cluster in this process: the same objects, virtual nodes, virtual time, and the real operator.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use capstan_apiserver::auth::UserInfo;
use capstan_apiserver::serve::Path;
use capstan_gpu_sim::Pace;
use capstan_operator::Options;
use capstan_runtime::Clock;
use capstan_sim::{Cluster, controllers, node};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use capstan_inspect::Snapshot;
use capstan_inspect::snapshot::named;

use crate::manifests::{self, Manifest};
use crate::{Error, Result, in_virtual_time};

/// A cluster without writes for this long has settled.
const SETTLED_AFTER: Duration = Duration::from_secs(15 * 60);
/// How long identical writes may repeat before the cluster counts as settled.
const RETRIES_LIMIT: Duration = Duration::from_secs(3 * 3600);
/// Timeout of a rollout in virtual time.
const ROLLOUT_LIMIT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Result of a rollout.
pub(super) struct Outcome {
    /// The final snapshot.
    pub(super) after: Snapshot,
    /// Deleted pods of the original cluster, in order, with the time since the start.
    pub(super) deleted: Vec<(Duration, String)>,
    /// Time from the start to the last change.
    pub(super) took: Duration,
    /// Whether the cluster settled.
    pub(super) settled: bool,
    /// Objects that the operator wrote.
    pub(super) written: Written,
}

/// Written objects: resource, namespace and name. The name is empty if the server generated it.
pub(super) type Written = BTreeSet<(String, String, String)>;

/// The object of a request, from its path.
pub(super) fn object_of(path: &str) -> Option<(String, String, String)> {
    let Path { is_resource, resource, namespace, name, .. } = Path::parse(path);
    // Namespaces are cluster-scoped.
    let namespace = if resource == "namespaces" { String::new() } else { namespace };
    is_resource.then_some((resource, namespace, name))
}

/// Applies manifests to a copy of the cluster, and runs the operator there until it has settled.
pub(super) fn run(before: &Snapshot, manifests: &[Manifest], options: Options) -> Result<Outcome> {
    in_virtual_time(async || roll_out(before, manifests, options).await)
}

async fn roll_out(before: &Snapshot, manifests: &[Manifest], options: Options) -> Result<Outcome> {
    let cluster = copy(before).await?;
    let client = cluster.client();
    let audit = Arc::new(Mutex::new(Audit { last: Instant::now(), written: Written::new() }));
    let stop = CancellationToken::new();
    let (ready, is_ready) = tokio::sync::oneshot::channel();
    let options = Options { clock: Clock::starting_at(cluster.server.clock().now()), ..options };
    let observed = observed_client(&cluster, {
        let audit = audit.clone();
        move |request| {
            if let Some(path) = written(request) {
                let mut audit = lock(&audit);
                audit.last = Instant::now();
                audit.written.extend(object_of(path));
            }
        }
    });
    let mut operator = tokio::spawn(capstan_operator::run(observed, options, stop.clone(), ready));
    tokio::select! {
        _ = is_ready => {}
        () = tokio::time::sleep(SETTLED_AFTER) => return Err(Error::OperatorNotReady),
        ended = &mut operator => ended.map_err(|_| Error::Panicked)?.map_err(Error::Operator)?,
    }
    // Everything restarts on the copy: wait until it has reached the state of the cluster.
    let begin = Instant::now();
    let mut rest = watch(&client, before, &audit, begin).await?;
    if !manifests.is_empty() {
        rest.deleted.iter_mut().for_each(|(after, _)| *after = Duration::ZERO);
        let begin = Instant::now();
        for manifest in manifests {
            manifests::apply(&client, manifest).await?;
        }
        let then = watch(&client, before, &audit, begin).await?;
        rest = Settlement { deleted: [rest.deleted, then.deleted].concat(), ..then };
    }
    let after = Snapshot::read_objects(&client).await?;
    stop.cancel();
    let _ = operator.await;
    let written = std::mem::take(&mut lock(&audit).written);
    Ok(Outcome { after, deleted: rest.deleted, took: rest.took, settled: rest.settled, written })
}

/// The objects to restore in the copy. Webhook configurations are dropped, as their servers do not run there.
pub(crate) fn restorable(before: &Snapshot) -> Vec<Value> {
    let left_out = |kind: &str| {
        kind.ends_with(".admissionregistration.k8s.io") || ["Event", "Lease.coordination.k8s.io"].contains(&kind)
    };
    let objects = before.objects.iter().filter(|(kind, _)| !left_out(kind)).flat_map(|(_, objects)| objects);
    objects.cloned().map(with_hardware).collect()
}

/// Starts the copy.
async fn copy(before: &Snapshot) -> Result<Cluster> {
    let settings = node::Settings {
        rules: [containers(PULL), capstan_gpu_sim::rules(PACE)].concat(),
        events: node::Events::None,
        heartbeat: Duration::from_secs(3600),
        ..node::Settings::default()
    };
    let builder = Cluster::builder()
        .start_time(before.taken.unwrap_or(Timestamp::UNIX_EPOCH))
        .node_settings(settings)
        // Nodes without heartbeats stay reachable.
        .controller_settings(controllers::Settings { node_grace: None, ..controllers::Settings::default() })
        .restore(restorable(before));
    builder.start().await.map_err(Error::Cluster)
}

/// Assumed durations, stated with the plan, as registry and disks are unknown.
pub(crate) const PACE: Pace =
    Pace { driver: Duration::from_secs(180), toolkit: Duration::from_secs(15), check: Duration::from_secs(5) };
/// Assumed duration of an image pull.
const PULL: Duration = Duration::from_secs(30);

/// Containers that are not GPU operands.
pub(crate) fn containers(pull: Duration) -> Vec<(node::Match, node::Behaviour)> {
    let of = |pod: &str| node::Match { pod: Some(pod.into()), ..node::Match::default() };
    let any = node::Behaviour {
        pull_time: Some(pull),
        started_after: Some(Duration::from_secs(5)),
        ready_after: Some(Duration::from_secs(5)),
        ..node::Behaviour::default()
    };
    let exit = |exit| node::Behaviour { exit: Some(exit), ..any.clone() };
    vec![
        (node::Match::default(), any.clone()),
        // The output of an image is unknown before it runs.
        (of("*-pod"), exit(node::Exit::Never)),
        (of("*-job-*"), exit(node::Exit::after(Duration::from_secs(300), 0))),
    ]
}

/// Virtual nodes get their GPU count from a label.
fn with_hardware(mut object: Value) -> Value {
    if object["kind"] == "Node" {
        let gpu_labels = [
            object["status"]["capacity"]["nvidia.com/gpu"].as_str().filter(|count| *count != "0"),
            object["metadata"]["labels"]["nvidia.com/gpu.count"].as_str(),
        ];
        let gpus = gpu_labels.into_iter().flatten().next().unwrap_or("8").to_owned();
        let labels = &mut object["metadata"]["labels"];
        if labels[capstan_gpu_sim::HARDWARE].is_null() {
            labels[capstan_gpu_sim::HARDWARE] = gpus.into();
        }
    }
    object
}

/// Audit of the operator's requests.
struct Audit {
    /// Time of the last write.
    last: Instant,
    written: Written,
}

fn lock(audit: &Mutex<Audit>) -> std::sync::MutexGuard<'_, Audit> {
    audit.lock().unwrap_or_else(PoisonError::into_inner)
}

type Request = http::Request<kube::client::Body>;

/// The path of a write request.
pub(super) fn written(request: &Request) -> Option<&str> {
    (request.method() != http::Method::GET).then(|| request.uri().path())
}

/// A client that calls an observer with every request before it is sent.
pub(crate) fn observed_client(cluster: &Cluster, observe: impl Fn(&Request) + Send + 'static) -> Client {
    let api = cluster.api().as_user(UserInfo::admin());
    let service = tower::service_fn(move |request: Request| {
        observe(&request);
        let api = api.clone();
        async move { Ok::<_, std::convert::Infallible>(api.answer(request).await) }
    });
    Client::new(service, "default")
}

/// How a cluster settled.
struct Settlement {
    deleted: Vec<(Duration, String)>,
    took: Duration,
    settled: bool,
}

/// Waits until the cluster has settled, and records when pods of the original cluster are deleted.
async fn watch(client: &Client, before: &Snapshot, audit: &Mutex<Audit>, begin: Instant) -> Result<Settlement> {
    let pods = before.of("", "Pod").iter();
    let known: BTreeMap<String, String> = pods
        .filter_map(|pod| {
            let (namespace, name) = named(pod);
            let node = pod["spec"]["nodeName"].as_str().unwrap_or("no node");
            Some((pod["metadata"]["uid"].as_str()?.to_owned(), format!("{namespace}/{name} on {node}")))
        })
        .collect();
    let mut events = watcher::watcher(Api::<Pod>::all(client.clone()), watcher::Config::default()).boxed();
    let (mut deleted, mut last) = (Vec::new(), begin);
    // Number of distinct changes, and when the last one happened.
    let mut new = (0, begin);
    loop {
        let distinct = lock(audit).written.len() + deleted.len();
        if distinct > new.0 {
            new = (distinct, Instant::now());
        }
        match tokio::time::timeout_at(last + SETTLED_AFTER, events.try_next()).await {
            Ok(event) => match event.map_err(|source| Error::Watch { what: "the pods of the trial run", source })? {
                Some(Event::Delete(pod)) => {
                    last = Instant::now();
                    if let Some(text) = pod.uid().and_then(|uid| known.get(&uid)) {
                        deleted.push((begin.elapsed(), text.clone()));
                    }
                }
                Some(Event::Apply(_)) => last = Instant::now(),
                Some(_) => {}
                None => return Err(Error::WatchEnded("the pods of the trial run")),
            },
            Err(_) => match lock(audit).last {
                // A write without a pod change: more may follow.
                write if write > last => last = write,
                _ => return Ok(Settlement { deleted, took: last - begin, settled: true }),
            },
        }
        if new.1.elapsed() > RETRIES_LIMIT || begin.elapsed() > ROLLOUT_LIMIT {
            return Ok(Settlement { deleted, took: last - begin, settled: false });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_tell_what_they_are_about() {
        let of = |path: &str| object_of(path).map(|(resource, namespace, name)| [resource, namespace, name].join(" "));
        assert_eq!(of("/api/v1/nodes/n").as_deref(), Some("nodes  n"));
        assert_eq!(of("/api/v1/namespaces/ns").as_deref(), Some("namespaces  ns"));
        assert_eq!(of("/apis/apps/v1/namespaces/ns/daemonsets/d/status").as_deref(), Some("daemonsets ns d"));
        assert_eq!(of("/apis/batch/v1/namespaces/ns/jobs").as_deref(), Some("jobs ns "));
        assert_eq!(of("/version"), None);
    }
}
