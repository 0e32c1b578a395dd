//! Virtual nodes on a real control plane: those of the simulation, as clients of the API.
//!
//! The nodes run on an embedded server of their own, on which there is nothing else. Pods that the real scheduler binds to
//! them are copied there, less what only the real server knows; what becomes of them is copied back. Scheduler and
//! controllers are the real ones, and containers behave by the same rules as on the embedded cluster.

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

/// The time between two looks.
const SYNC_INTERVAL: Duration = Duration::from_millis(100);
/// How often nodes say that they live, in looks.
const HEARTBEAT: u64 = 80;
/// How often claims are looked at, in looks.
const CLAIMS: u64 = 3;
/// How long a start may take, and how long the objects of a story may take to go.
const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(90);
/// Who writes.
pub(crate) const MANAGER: &str = "virtual-nodes";

/// A thread with nodes. They go with it.
pub(crate) struct Bridge {
    /// The nodes.
    pub(crate) nodes: Nodes,
    end: Option<oneshot::Sender<End>>,
}

/// The end of a story.
struct End {
    namespace: String,
    done: mpsc::Sender<()>,
}

impl Bridge {
    /// Starts it; nodes are there when this returns. It blocks.
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

    /// Removes what a story left, and returns when no operator can meet it again.
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
        told: BTreeMap::new(),
        count: 0,
    };
    while bridge.told.len() < cluster.nodes().names().len() {
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

/// Keeps a copy of what a server has.
fn follow<K>(api: Api<K>) -> Store<K>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + Sync + 'static,
{
    let (store, writer) = reflector::store();
    let stream = watcher(api, watcher::Config::default()).default_backoff().reflect(writer);
    tokio::spawn(stream.for_each(|_| std::future::ready(())));
    store
}

/// Keeps pods off other nodes: a real one cannot pull the images that stories name.
async fn cordon(real: &Client) -> kube::Result<()> {
    let api: Api<Node> = Api::all(real.clone());
    for other in api.list(&ListParams::default()).await? {
        let cordon = json!({"spec": {"unschedulable": true}});
        api.patch(&other.name_any(), &PatchParams::default(), &Patch::Merge(cordon)).await?;
    }
    Ok(())
}

/// What is looked at again and again.
struct Synchronizer {
    real: Client,
    sim: Client,
    /// On the real server, and on that of the nodes.
    pods: [Store<Pod>; 2],
    nodes: [Store<Node>; 2],
    /// Where logs are served.
    port: u16,
    /// Versions of nodes and pods that the real server knows, by their name on the server of the nodes.
    told: BTreeMap<String, String>,
    count: u64,
}

/// What both servers call a pod.
fn key(pod: &Pod) -> (String, String) {
    (pod.namespace().unwrap_or_default(), pod.name_any())
}

impl Synchronizer {
    /// Synchronizer once. What fails is seen again by the next look.
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

    /// Tells the real server how a node is doing, if that is news.
    async fn node(&mut self, node: &Node) -> kube::Result<()> {
        let (name, version) = (node.name_any(), node.resource_version().unwrap_or_default());
        if self.told.get(&name) == Some(&version) {
            return Ok(());
        }
        let api: Api<Node> = Api::all(self.real.clone());
        if !self.told.contains_key(&name) {
            match api.create(&PostParams::default(), &copy::node(node)).await {
                Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
                other => drop(other?),
            }
        }
        let status = Patch::Merge(copy::node_status(node, self.port));
        api.patch_status(&name, &PatchParams::default(), &status).await?;
        self.told.insert(name, version);
        Ok(())
    }

    /// Tells a node which labels it has now.
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

    /// Brings a pod and its copy together.
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
        if self.told.get(&uid) != Some(&version) {
            let api: Api<Pod> = Api::namespaced(self.real.clone(), &pod.namespace().unwrap_or_default());
            let patch = Patch::Merge(copy::pod_status(copy, pod));
            api.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await?;
            self.told.insert(uid, version);
        }
        if going(pod) && !going(copy) {
            remove(&self.sim, copy, pod.metadata.deletion_grace_period_seconds).await?;
        }
        Ok(())
    }

    /// Gives a pod to its node.
    async fn take_in(&self, pod: &Pod) -> kube::Result<()> {
        let name = pod.namespace().unwrap_or_default();
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}})).expect("a namespace");
        // It is there from the second pod on; pods are refused until it has its account.
        let _ = Api::<Namespace>::all(self.sim.clone()).create(&PostParams::default(), &namespace).await;
        let api: Api<Pod> = Api::namespaced(self.sim.clone(), &name);
        api.create(&PostParams::default(), &copy::pod(pod)).await.map(drop)
    }

    /// Takes the nodes away.
    async fn leave(&self) {
        let api: Api<Node> = Api::all(self.real.clone());
        let [_, sim] = &self.nodes;
        for node in sim.state() {
            let _ = api.delete(&node.name_any(), &DeleteParams::default()).await;
        }
    }
}

/// Deletes exactly this pod.
async fn remove(client: &Client, pod: &Pod, grace: Option<i64>) -> kube::Result<()> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let same = Preconditions { uid: pod.uid(), resource_version: None };
    let grace_period_seconds = grace.and_then(|grace| u32::try_from(grace).ok());
    let params = DeleteParams { grace_period_seconds, preconditions: Some(same), ..DeleteParams::default() };
    api.delete(&pod.name_any(), &params).await.map(drop)
}
