//! I/O of the exporter: HTTP, the kubelet's pod-resources API, and watches of pods and resource slices.

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

use super::pods::{self, Allocation, Attributes, Device, Naming, PodFacts};
use super::web::TlsReloader;
use super::{Exporter, Options};
use crate::Cx;
use crate::supervise::Health;

/// Timeout of pod-resources requests.
const KUBELET_TIMEOUT: Duration = Duration::from_secs(10);
/// The DRA driver of GPUs.
const DRIVER: &str = "gpu.nvidia.com";

/// Cached pods and resource slices.
#[derive(Default)]
pub struct Cluster {
    pods: Arc<Mutex<BTreeMap<(String, String), PodFacts>>>,
    slices: Arc<Mutex<BTreeMap<(String, String), String>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cluster {
    /// Pods of this node, if watched.
    pub(super) fn pods(&self) -> BTreeMap<(String, String), PodFacts> {
        lock(&self.pods).clone()
    }

    /// Starts the watches that the options need, in the background.
    pub(super) async fn start_watches(&self, options: &Options, cx: &Cx) {
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
            let watch = watch_pods(client.clone(), options.clone(), self.pods.clone());
            tokio::spawn(cx.stop.clone().run_until_cancelled_owned(watch));
        }
        if options.kubernetes_enable_dra {
            let watch = watch_slices(client, options.node_name.clone(), self.slices.clone());
            tokio::spawn(cx.stop.clone().run_until_cancelled_owned(watch));
        }
    }
}

/// Watches labels and UIDs of this node's pods; metadata only, to save memory.
async fn watch_pods(client: Client, options: Options, known: Arc<Mutex<BTreeMap<(String, String), PodFacts>>>) {
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
    // Keep the old entries until the relist completes: a scrape in between would lose its labels.
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

/// Watches UUIDs of the devices in resource slices.
async fn watch_slices(client: Client, node: String, known: Arc<Mutex<BTreeMap<(String, String), String>>>) {
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

/// Pool, name and UUID of the devices of a resource slice.
pub(super) fn devices(slice: &ResourceSlice) -> Vec<((String, String), String)> {
    let spec = &slice.spec;
    let named = spec.devices.iter().flatten().filter_map(|device| {
        let attribute = |name: &str| device.attributes.as_ref()?.get(name)?.string.clone();
        Some(((spec.pool.name.clone(), device.name.clone()), attribute("uuid")?))
    });
    named.collect()
}

/// Lists the devices allocated to containers, from the kubelet.
async fn allocations(socket: &Path) -> Vec<Allocation> {
    let listed = tokio::time::timeout(KUBELET_TIMEOUT, pod_resources::list(socket)).await;
    match listed {
        Ok(Ok(pods)) => pods.into_iter().flat_map(allocations_of_pod).collect(),
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

fn allocations_of_pod(pod: pod_resources::PodResources) -> Vec<Allocation> {
    let mut all = Vec::new();
    for container in pod.containers {
        let allocation = |device| Allocation {
            pod: pod.name.clone(),
            namespace: pod.namespace.clone(),
            container: container.name.clone(),
            device,
        };
        for devices in &container.devices {
            let resource = &devices.resource_name;
            let plugin = |id: &String| allocation(Device::Plugin { resource: resource.clone(), id: id.clone() });
            all.extend(devices.device_ids.iter().map(plugin));
        }
        for claim in &container.dynamic_resources {
            let ours = claim.claim_resources.iter().filter(|device| device.driver_name == DRIVER);
            all.extend(ours.map(|device| {
                allocation(Device::Claim {
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

/// The `Hostname` label: the node name, or the kernel's hostname.
pub(super) fn hostname(node: &str) -> Option<String> {
    if !node.is_empty() {
        return Some(node.to_owned());
    }
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Serves HTTP until stopped.
pub(super) async fn serve(listener: TcpListener, tls: TlsReloader, exporter: Arc<Exporter>, cx: Cx) {
    capstan_http::serve(
        listener,
        move || tls.acceptor(),
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
            let pods = exporter.device_labels().await;
            let metrics = exporter.text(&pods) + &health.metrics();
            answer(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", metrics)
        }
        "/health" => match exporter.unhealthy_reason() {
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
    /// Labels of allocated devices, by UUID.
    async fn device_labels(&self) -> BTreeMap<String, Vec<Attributes>> {
        let Some(snapshot) = self.state().snapshot.clone() else { return BTreeMap::new() };
        let options = &self.options;
        let mut device_labels = BTreeMap::new();
        if options.kubernetes && options.pod_resources_kubelet_socket.exists() {
            let allocations = allocations(&options.pod_resources_kubelet_socket).await;
            let naming =
                Naming { old_namespace: options.use_old_namespace, resources: options.nvidia_resource_names.clone() };
            let (slices, pods) = (lock(&self.cluster.slices).clone(), lock(&self.cluster.pods).clone());
            device_labels = pods::attributes(&allocations, &snapshot.inventory, &slices, &pods, &naming);
        }
        if let Some(dir) = &options.hpc_job_mapping_dir {
            for (uuid, jobs) in jobs(dir, &snapshot.inventory) {
                device_labels.entry(uuid).or_default().extend(jobs);
            }
        }
        device_labels
    }
}

/// HPC jobs: a file per GPU (`0`) or GPU instance (`0.7`), a job per line.
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
