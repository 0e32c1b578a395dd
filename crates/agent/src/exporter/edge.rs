//! Where the exporter touches the outside: scrapes, the kubelet, and objects of pods and devices.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_http::{Answer, answer, text};
use capstan_kubelet::pod_resources;
use futures::{StreamExt, TryStreamExt};
use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::{Api, PartialObjectMeta};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use regex::Regex;
use tokio::net::TcpListener;

use super::pods::{self, Attributes, Device, Held, Naming, PodFacts};
use super::web::Web;
use super::{Exporter, Options};
use crate::Cx;
use crate::supervise::Health;

/// How long the kubelet may take to answer.
const KUBELET_TIMEOUT: Duration = Duration::from_secs(10);
/// The driver whose devices are GPUs.
const DRIVER: &str = "gpu.nvidia.com";

/// What is known of pods and of devices in resource claims.
#[derive(Default)]
pub struct Cluster {
    pods: Arc<Mutex<BTreeMap<(String, String), PodFacts>>>,
    slices: Arc<Mutex<BTreeMap<(String, String), String>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cluster {
    /// Pods of this node, as far as they are followed.
    pub(super) fn pods(&self) -> BTreeMap<(String, String), PodFacts> {
        lock(&self.pods).clone()
    }

    /// Follows what the options ask for, in the background.
    pub(super) async fn follow(&self, options: &Options, cx: &Cx) {
        let wants_pods = options.kubernetes_enable_pod_labels
            || options.kubernetes_enable_pod_uid
            || options.kubernetes_virtual_gpus;
        if !options.kubernetes || !(wants_pods || options.kubernetes_enable_dra) {
            return;
        }
        let client = match cx.client().await {
            Ok(client) => client,
            Err(error) => return tracing::warn!(%error, "pod labels and claims not exported"),
        };
        if wants_pods {
            let watch = follow_pods(client.clone(), options.clone(), self.pods.clone());
            tokio::spawn(cx.stop.clone().run_until_cancelled_owned(watch));
        }
        if options.kubernetes_enable_dra {
            let watch = follow_slices(client, options.node_name.clone(), self.slices.clone());
            tokio::spawn(cx.stop.clone().run_until_cancelled_owned(watch));
        }
    }
}

/// Labels and UIDs of this node's pods: metadata alone, so that a node with many pods costs little.
async fn follow_pods(client: Client, options: Options, known: Arc<Mutex<BTreeMap<(String, String), PodFacts>>>) {
    let allowed: Vec<Regex> = options
        .kubernetes_pod_label_allowlist_regex
        .iter()
        .filter(|pattern| !pattern.is_empty())
        .filter_map(|pattern| Regex::new(pattern).inspect_err(|error| tracing::warn!(%error, "pattern ignored")).ok())
        .collect();
    let config = watcher::Config::default().fields(&format!("spec.nodeName={}", options.node_name));
    let mut events = watcher(Api::<PartialObjectMeta<Pod>>::all(client), config).default_backoff().boxed();
    let key = |pod: &PartialObjectMeta<Pod>| (pod.namespace().unwrap_or_default(), pod.name_any());
    let facts = |pod: &PartialObjectMeta<Pod>| {
        let labels = pod.labels().iter().filter(|(name, _)| {
            options.kubernetes_enable_pod_labels
                && (allowed.is_empty() || allowed.iter().any(|pattern| pattern.is_match(name)))
        });
        let uid = if options.kubernetes_enable_pod_uid { pod.uid().unwrap_or_default() } else { String::new() };
        PodFacts {
            id: pod.uid().unwrap_or_default(),
            uid,
            labels: labels.map(|(name, value)| (name.clone(), value.clone())).collect(),
        }
    };
    // What was known holds until a new list is complete: a scrape in between would lose its labels.
    let mut listed = BTreeMap::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(pod)) => drop(lock(&known).insert(key(&pod), facts(&pod))),
            Ok(Event::Delete(pod)) => drop(lock(&known).remove(&key(&pod))),
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(pod)) => drop(listed.insert(key(&pod), facts(&pod))),
            Ok(Event::InitDone) => *lock(&known) = std::mem::take(&mut listed),
            Err(error) => tracing::debug!(%error, "listing pods of this node failed"),
        }
    }
}

/// UUIDs of devices that claims hand out.
async fn follow_slices(client: Client, node: String, known: Arc<Mutex<BTreeMap<(String, String), String>>>) {
    let config = watcher::Config::default().fields(&format!("spec.driver={DRIVER},spec.nodeName={node}"));
    let slices = watcher(Api::<ResourceSlice>::all(client), config).default_backoff().applied_objects();
    let mut slices = slices.boxed();
    loop {
        match slices.try_next().await {
            Ok(Some(slice)) => {
                let found = devices(&slice);
                lock(&known).extend(found);
            }
            Ok(None) => return,
            Err(error) => tracing::debug!(%error, "listing devices of claims failed"),
        }
    }
}

/// Pool, name and UUID of the devices of a slice.
pub(super) fn devices(slice: &ResourceSlice) -> Vec<((String, String), String)> {
    let spec = &slice.spec;
    let named = spec.devices.iter().flatten().filter_map(|device| {
        let attribute = |name: &str| device.attributes.as_ref()?.get(name)?.string.clone();
        Some(((spec.pool.name.clone(), device.name.clone()), attribute("uuid")?))
    });
    named.collect()
}

/// What the kubelet says that containers hold.
async fn held(socket: &Path) -> Vec<Held> {
    let asked = tokio::time::timeout(KUBELET_TIMEOUT, pod_resources::list(socket)).await;
    match asked {
        Ok(Ok(pods)) => pods.into_iter().flat_map(of_pod).collect(),
        Ok(Err(error)) => {
            tracing::warn!(%error, "pod-resources request failed");
            Vec::new()
        }
        Err(_) => {
            tracing::warn!("pod-resources request timed out");
            Vec::new()
        }
    }
}

fn of_pod(pod: pod_resources::PodResources) -> Vec<Held> {
    let mut all = Vec::new();
    for container in pod.containers {
        let held = |device| Held {
            pod: pod.name.clone(),
            namespace: pod.namespace.clone(),
            container: container.name.clone(),
            device,
        };
        for devices in &container.devices {
            let resource = &devices.resource_name;
            let plugin = |id: &String| held(Device::Plugin { resource: resource.clone(), id: id.clone() });
            all.extend(devices.device_ids.iter().map(plugin));
        }
        for claim in &container.dynamic_resources {
            let ours = claim.claim_resources.iter().filter(|device| device.driver_name == DRIVER);
            all.extend(ours.map(|device| {
                held(Device::Claim {
                    claim: claim.claim_name.clone(),
                    namespace: claim.claim_namespace.clone(),
                    driver: device.driver_name.clone(),
                    pool: device.pool_name.clone(),
                    name: device.device_name.clone(),
                })
            }));
        }
    }
    all
}

/// The name that lines carry: the node's, or the machine's.
pub(super) fn hostname(node: &str) -> Option<String> {
    if !node.is_empty() {
        return Some(node.to_owned());
    }
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Answers scrapes until told to stop.
pub(super) async fn serve(listener: TcpListener, web: Web, exporter: Arc<Exporter>, cx: Cx) {
    capstan_http::serve(
        listener,
        move || web.acceptor(),
        cx.stop,
        move |request| {
            let (exporter, health) = (exporter.clone(), cx.health.clone());
            async move { respond(&exporter, &health, request.method(), request.uri().path()).await }
        },
    )
    .await;
}

async fn respond(exporter: &Exporter, health: &Health, method: &Method, path: &str) -> Answer {
    if method != Method::GET && method != Method::HEAD {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
    }
    let mut answer = match path {
        "/metrics" => {
            let pods = exporter.holders().await;
            let metrics = exporter.text(&pods) + &health.metrics();
            answer(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", metrics)
        }
        "/health" => match exporter.sick() {
            None => text(StatusCode::OK, "OK"),
            Some(why) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
        },
        "/" => {
            let page = "<html><head><title>GPU metrics</title></head><body><h1>GPU metrics</h1><p><a href=\"./metrics\">Metrics</a></p></body></html>\n";
            answer(StatusCode::OK, "text/html; charset=utf-8", page)
        }
        _ => text(StatusCode::NOT_FOUND, "try /metrics or /health\n"),
    };
    let safe = http::HeaderValue::from_static("nosniff");
    answer.headers_mut().insert(http::header::X_CONTENT_TYPE_OPTIONS, safe);
    answer
}

impl Exporter {
    /// Attributes of devices in use, by UUID.
    async fn holders(&self) -> BTreeMap<String, Vec<Attributes>> {
        let Some(look) = self.state().look.clone() else { return BTreeMap::new() };
        let options = &self.options;
        let mut holders = BTreeMap::new();
        if options.kubernetes && options.pod_resources_kubelet_socket.exists() {
            let held = held(&options.pod_resources_kubelet_socket).await;
            let naming =
                Naming { old_namespace: options.use_old_namespace, resources: options.nvidia_resource_names.clone() };
            let (slices, pods) = (lock(&self.cluster.slices).clone(), lock(&self.cluster.pods).clone());
            holders = pods::attributes(&held, &look.inventory, &slices, &pods, &naming);
        }
        if let Some(dir) = &options.hpc_job_mapping_dir {
            for (uuid, jobs) in jobs(dir, &look.inventory) {
                holders.entry(uuid).or_default().extend(jobs);
            }
        }
        holders
    }
}

/// Jobs of a cluster without Kubernetes: a file per GPU (`0`) or instance (`0.7`), a job per line.
pub(super) fn jobs(dir: &Path, inventory: &capstan_hw::gpu::nvidia::Inventory) -> Vec<(String, Vec<Attributes>)> {
    let read = |name: String| {
        let text = std::fs::read_to_string(dir.join(name)).ok()?;
        let jobs: Vec<Attributes> = text
            .lines()
            .map(str::trim)
            .filter(|job| !job.is_empty())
            .map(|job| BTreeMap::from([("hpc_job".to_owned(), job.to_owned())]))
            .collect();
        (!jobs.is_empty()).then_some(jobs)
    };
    let mut all = Vec::new();
    for gpu in &inventory.gpus {
        all.extend(read(gpu.index.to_string()).map(|jobs| (gpu.uuid.clone(), jobs)));
        for part in &gpu.mig_devices {
            all.extend(read(format!("{}.{}", gpu.index, part.gi)).map(|jobs| (part.uuid.clone(), jobs)));
        }
    }
    all
}
