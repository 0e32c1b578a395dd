//! Virtual nodes on a real control plane, as API clients.
//!
//! The nodes run on their own embedded server, without controllers or scheduler. Pods that the real scheduler binds to
//! them are copied there, without fields that only the real server knows; their status is copied back. Scheduler and
//! controllers are real, and containers behave by the same rules as on the embedded cluster.

mod claims;
mod copy;
mod logs;
mod sweep;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc;
use std::time::Duration;

use capstan_sim::node::{self, Nodes};
use capstan_sim::{Cluster, scheduler};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Config, ResourceExt};
use serde_json::json;
use tokio::sync::oneshot;

/// Sync interval.
const SYNC_INTERVAL: Duration = Duration::from_millis(100);
/// Heartbeat interval of nodes, in syncs.
const HEARTBEAT: u64 = 80;
/// Interval of claim provisioning, in syncs.
const CLAIMS: u64 = 3;
/// Timeout of the start, and of the deletion of a story's objects.
const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(90);
/// Field manager.
pub(crate) const MANAGER: &str = "virtual-nodes";

/// A thread with nodes, which are removed with it.
pub(crate) struct Bridge {
    /// The nodes.
    pub(crate) nodes: Nodes,
    end: Option<oneshot::Sender<End>>,
}

/// Request to end a story.
struct End {
    namespace: String,
    done: mpsc::Sender<()>,
}

impl Bridge {
    /// Starts the nodes; blocks until they are registered.
    pub(crate) fn start(config: Config, settings: node::Settings) -> Self {
        let (ready, is_ready) = mpsc::channel();
        let (end, is_over) = oneshot::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(run(config, settings, ready, is_over));
        });
        let nodes = is_ready.recv_timeout(CONVERGENCE_TIMEOUT).expect("nodes can be made");
        Self { nodes, end: Some(end) }
    }

    /// Deletes the objects of a story, and returns when no operator can observe them again.
    pub(crate) fn end(&mut self, namespace: &str) {
        let (done, is_done) = mpsc::channel();
        let end = End { namespace: namespace.to_owned(), done };
        if self.end.take().is_some_and(|over| over.send(end).is_ok()) {
            let _ = is_done.recv_timeout(CONVERGENCE_TIMEOUT);
        }
    }
}

async fn run(
    config: Config,
    settings: node::Settings,
    ready: mpsc::Sender<Nodes>,
    mut is_over: oneshot::Receiver<End>,
) {
    let idle = scheduler::Settings { enabled: false, ..scheduler::Settings::default() };
    let builder = Cluster::builder().node_settings(settings).scheduler_settings(idle);
    let cluster = builder.start().await.expect("the nodes start");
    let (real, sim) = (Client::try_from(config).expect("a client"), cluster.client());
    cordon(&real).await.expect("other nodes can be cordoned");
    let port = logs::serve(sim.clone()).await.expect("logs can be served");
    let mut bridge = Synchronizer {
        pods: [follow(Api::all(real.clone())), follow(Api::all(sim.clone()))],
        nodes: [follow(Api::all(real.clone())), follow(Api::all(sim.clone()))],
        port,
        real,
        sim,
        synced_versions: BTreeMap::new(),
        count: 0,
    };
    while bridge.synced_versions.len() < cluster.nodes().names().len() {
        bridge.sync().await;
    }
    let _ = ready.send(cluster.nodes().clone());
    let end = loop {
        tokio::select! {
            end = &mut is_over => break end,
            () = bridge.sync() => {}
        }
    };
    let Ok(End { namespace, done }) = end else { return };
    let real = bridge.real.clone();
    let tidy = async {
        tokio::select! {
            () = sweep::sweep(&real, &namespace) => {}
            () = async { loop { bridge.sync().await } } => {}
        }
    };
    let _ = tokio::time::timeout(CONVERGENCE_TIMEOUT, tidy).await;
    bridge.leave().await;
    let _ = done.send(());
}

/// A watched cache.
fn follow<K>(api: Api<K>) -> Store<K>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + Sync + 'static,
{
    let (store, writer) = reflector::store();
    let stream = watcher(api, watcher::Config::default()).default_backoff().reflect(writer);
    tokio::spawn(stream.for_each(|_| std::future::ready(())));
    store
}

/// Cordons other nodes: a real one cannot pull the images of stories.
async fn cordon(real: &Client) -> kube::Result<()> {
    let api: Api<Node> = Api::all(real.clone());
    for other in api.list(&ListParams::default()).await? {
        let cordon = json!({"spec": {"unschedulable": true}});
        api.patch(&other.name_any(), &PatchParams::default(), &Patch::Merge(cordon)).await?;
    }
    Ok(())
}

/// State of the sync loop.
struct Synchronizer {
    real: Client,
    sim: Client,
    /// Pods on the real server, and on that of the nodes.
    pods: [Store<Pod>; 2],
    nodes: [Store<Node>; 2],
    /// Port of the log server.
    port: u16,
    /// Resource versions of nodes and pods that were copied to the real server, by name.
    synced_versions: BTreeMap<String, String>,
    count: u64,
}

/// Namespace and name of a pod on both servers.
fn key(pod: &Pod) -> (String, String) {
    (pod.namespace().unwrap_or_default(), pod.name_any())
}

impl Synchronizer {
    /// Syncs once. Failures are retried by the next sync.
    async fn sync(&mut self) {
        tokio::time::sleep(SYNC_INTERVAL).await;
        let [real, sim] = self.nodes.each_ref().map(Store::state);
        for node in &sim {
            let _ = self.node(node).await;
            if let Some(real) = real.iter().find(|real| real.name_any() == node.name_any()) {
                let _ = self.labels(real, node).await;
            }
        }
        let names: BTreeSet<String> = sim.iter().map(|node| node.name_any()).collect();
        if self.count.is_multiple_of(HEARTBEAT) {
            let _ = self.heartbeat(&names).await;
        }
        if self.count.is_multiple_of(CLAIMS) {
            let _ = claims::sync(&self.real).await;
        }
        self.count += 1;
        let [real, sim] = self
            .pods
            .each_ref()
            .map(|store| store.state().into_iter().map(|pod| (key(&pod), pod)).collect::<BTreeMap<_, _>>());
        let bound = |pod: &Pod| {
            pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).is_some_and(|node| names.contains(&node))
        };
        for (key, pod) in real.iter().filter(|(_, pod)| bound(pod)) {
            let _ = self.pod(pod, sim.get(key).map(|copy| &**copy)).await;
        }
        for copy in sim.iter().filter(|(key, _)| !real.contains_key(*key)).map(|(_, copy)| copy) {
            let _ = remove(&self.sim, copy, Some(0)).await;
        }
    }

    /// Writes the status of a node to the real server, if it changed.
    async fn node(&mut self, node: &Node) -> kube::Result<()> {
        let (name, version) = (node.name_any(), node.resource_version().unwrap_or_default());
        if self.synced_versions.get(&name) == Some(&version) {
            return Ok(());
        }
        let api: Api<Node> = Api::all(self.real.clone());
        if !self.synced_versions.contains_key(&name) {
            match api.create(&PostParams::default(), &copy::node(node)).await {
                Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
                other => drop(other?),
            }
        }
        let status = Patch::Merge(copy::node_status(node, self.port));
        api.patch_status(&name, &PatchParams::default(), &status).await?;
        self.synced_versions.insert(name, version);
        Ok(())
    }

    /// Copies the labels of a node from the real server.
    async fn labels(&self, real: &Node, node: &Node) -> kube::Result<()> {
        let Some(labels) = copy::labels(real, node) else { return Ok(()) };
        let api: Api<Node> = Api::all(self.sim.clone());
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        api.patch(&node.name_any(), &PatchParams::default(), &patch).await.map(drop)
    }

    async fn heartbeat(&self, names: &BTreeSet<String>) -> kube::Result<()> {
        let leases: Api<Lease> = Api::namespaced(self.real.clone(), "kube-node-lease");
        for name in names {
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
                "spec": {"holderIdentity": name, "leaseDurationSeconds": 40,
                    "renewTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()},
            });
            leases.patch(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(lease)).await?;
        }
        Ok(())
    }

    /// Syncs a pod and its copy.
    async fn pod(&mut self, pod: &Pod, copy: Option<&Pod>) -> kube::Result<()> {
        let going = |pod: &Pod| pod.metadata.deletion_timestamp.is_some();
        let Some(copy) = copy else {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            return match phase {
                _ if going(pod) => remove(&self.real, pod, Some(0)).await,
                Some("Succeeded" | "Failed") => Ok(()),
                _ => self.take_in(pod).await,
            };
        };
        if copy.annotations().get(copy::UID) != pod.metadata.uid.as_ref() {
            return remove(&self.sim, copy, Some(0)).await;
        }
        let uid = copy.uid().unwrap_or_default();
        let version = copy.resource_version().unwrap_or_default();
        if self.synced_versions.get(&uid) != Some(&version) {
            let api: Api<Pod> = Api::namespaced(self.real.clone(), &pod.namespace().unwrap_or_default());
            let patch = Patch::Merge(copy::pod_status(copy, pod));
            api.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await?;
            self.synced_versions.insert(uid, version);
        }
        if going(pod) && !going(copy) {
            remove(&self.sim, copy, pod.metadata.deletion_grace_period_seconds).await?;
        }
        Ok(())
    }

    /// Creates the copy of a pod for its node.
    async fn take_in(&self, pod: &Pod) -> kube::Result<()> {
        let name = pod.namespace().unwrap_or_default();
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}})).expect("a namespace");
        // The namespace exists from the second pod on; pods are rejected until it has its ServiceAccount.
        let _ = Api::<Namespace>::all(self.sim.clone()).create(&PostParams::default(), &namespace).await;
        let api: Api<Pod> = Api::namespaced(self.sim.clone(), &name);
        api.create(&PostParams::default(), &copy::pod(pod)).await.map(drop)
    }

    /// Removes the nodes.
    async fn leave(&self) {
        let api: Api<Node> = Api::all(self.real.clone());
        let [_, sim] = &self.nodes;
        for node in sim.state() {
            let _ = api.delete(&node.name_any(), &DeleteParams::default()).await;
        }
    }
}

/// Deletes this pod, with its UID as precondition.
async fn remove(client: &Client, pod: &Pod, grace: Option<i64>) -> kube::Result<()> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let same = Preconditions { uid: pod.uid(), resource_version: None };
    let grace_period_seconds = grace.and_then(|grace| u32::try_from(grace).ok());
    let params = DeleteParams { grace_period_seconds, preconditions: Some(same), ..DeleteParams::default() };
    api.delete(&pod.name_any(), &params).await.map(drop)
}
