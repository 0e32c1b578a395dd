//! Plans against what then happens: a cluster, a plan, the same manifests for real, and what the operator wrote.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use capstan_gpu_sim::{Pace, gpu_node};
use capstan_operator::Options;
use capstan_runtime::Clock;
use capstan_sim::{Cluster, node};
use tokio_util::sync::CancellationToken;

use super::changes::{self, Change};
use super::{plan, twin};
use crate::snapshot::{self, Snapshot};
use crate::up::manifests;

/// A cluster with an operator on it.
struct World {
    cluster: Cluster,
    /// What the operator wrote: paths of objects.
    written: Arc<Mutex<BTreeSet<String>>>,
    stop: CancellationToken,
}

impl World {
    async fn start() -> Self {
        let rules = [twin::containers(), capstan_gpu_sim::rules(Pace::default())].concat();
        let nodes = (0..2).map(|index| gpu_node(&format!("gpu-{index}"), 8)).collect();
        let settings = node::Settings { nodes, rules, ..node::Settings::default() };
        let start = "2027-01-15T08:00:00Z".parse().unwrap();
        let cluster = Cluster::builder().start_time(start).seed(7).node_settings(settings).start().await.unwrap();
        let world = Self { cluster, written: Arc::default(), stop: CancellationToken::new() };
        for manifest in [manifests::storage_class(), manifests::namespace("capstan")] {
            manifests::apply(&world.cluster.client(), &manifest).await.unwrap();
        }
        let clock = Clock::starting_at(world.cluster.server.clock().now());
        let (ready, is_ready) = tokio::sync::oneshot::channel();
        let mut options = Options { clock, ..Options::in_process() };
        options.gpu.agent.image = crate::own_image();
        tokio::spawn(capstan_operator::run(world.client(), options, world.stop.clone(), ready));
        is_ready.await.unwrap();
        world
    }

    /// The operator's client.
    fn client(&self) -> kube::Client {
        let (api, written) = (self.cluster.api().clone(), self.written.clone());
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            if *request.method() != http::Method::GET {
                written.lock().unwrap().insert(request.uri().path().to_owned());
            }
            let api = api.clone();
            async move { Ok::<_, std::convert::Infallible>(api.answer(request).await) }
        });
        kube::Client::new(service, "default")
    }

    /// The cluster once nothing changes any more.
    async fn settled(&self) -> Snapshot {
        let client = self.cluster.client();
        let mut before = String::new();
        loop {
            tokio::time::sleep(Duration::from_secs(900)).await;
            let now = snapshot::objects(&client).await.unwrap();
            let pods = serde_json::to_string(&now.objects.get("Pod")).unwrap()
                + &self.written.lock().unwrap().len().to_string();
            if pods == before {
                return now;
            }
            before = pods;
        }
    }

    async fn apply(&self, file: &Path) {
        for manifest in manifests::read(&[file.to_owned()]).unwrap() {
            manifests::apply(&self.cluster.client(), &manifest).await.unwrap();
        }
    }

    /// What a plan says of a file, and what happens then.
    async fn foretold_and_seen(&self, file: &Path) -> (Vec<Change>, Vec<Change>, BTreeSet<String>) {
        let before = self.settled().await;
        let wanted = manifests::read(&[file.to_owned()]).unwrap();
        let (options, _) = super::live::options(&before).unwrap();
        let outcome = twin::run(&before, &wanted, options).unwrap();
        let foretold = plan(&before, outcome, Vec::new()).changes;
        self.written.lock().unwrap().clear();
        self.apply(file).await;
        let after = self.settled().await;
        let seen = changes::between(&before, &after);
        let written = std::mem::take(&mut *self.written.lock().unwrap());
        (foretold, seen, written)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn examples(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(folder);
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The path of an object, without status.
fn is_of(path: &str, change: &Change) -> bool {
    let path = path.trim_end_matches("/status");
    let place = if change.namespace.is_empty() { String::new() } else { format!("/namespaces/{}/", change.namespace) };
    path.contains(&place) && path.ends_with(&format!("/{}", change.name))
}

async fn comes_true(file: &Path) {
    let world = World::start().await;
    if !file.ends_with("minimal.yaml") && file.parent().is_some_and(|folder| folder.ends_with("nim")) {
        world.apply(&examples("gpu").into_iter().find(|file| file.ends_with("minimal.yaml")).unwrap()).await;
    }
    let (foretold, seen, written) = world.foretold_and_seen(file).await;
    assert!(!foretold.is_empty(), "{}: nothing foretold", file.display());
    let show = |changes: &[Change]| serde_json::to_string_pretty(changes).unwrap();
    assert!(foretold == seen, "{}: foretold {}\nseen {}", file.display(), show(&foretold), show(&seen));
    // Statuses, events and pods for a while are no part of a plan; whatever else was written is.
    let passing = ["/status", "/events", "/pods/", "/leases/"];
    for path in written.iter().filter(|path| !passing.iter().any(|part| path.contains(part))) {
        assert!(foretold.iter().any(|change| is_of(path, change)), "{}: {path} was not foretold", file.display());
    }
}

#[tokio::test(start_paused = true)]
async fn plans_of_gpu_examples_come_true() {
    for file in examples("gpu") {
        comes_true(&file).await;
    }
}

#[tokio::test(start_paused = true)]
async fn plans_of_nim_examples_come_true() {
    for file in examples("nim") {
        comes_true(&file).await;
    }
}

#[tokio::test(start_paused = true)]
async fn where_all_is_done_nothing_would_change() {
    let world = World::start().await;
    world.apply(&examples("gpu").into_iter().find(|file| file.ends_with("minimal.yaml")).unwrap()).await;
    let before = world.settled().await;
    let (options, _) = super::live::options(&before).unwrap();
    let outcome = twin::run(&before, &[], options).unwrap();
    assert_eq!(plan(&before, outcome, Vec::new()).changes, []);
}

#[tokio::test(start_paused = true)]
async fn a_changed_driver_names_the_pods_that_go() {
    let world = World::start().await;
    world.apply(&examples("gpu").into_iter().find(|file| file.ends_with("minimal.yaml")).unwrap()).await;
    let before = world.settled().await;
    let text = r#"{apiVersion: nvidia.com/v1, kind: ClusterPolicy, metadata: {name: cluster-policy}, spec: {driver: {version: "999.1"}}}"#;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("newer.yaml");
    std::fs::write(&file, text).unwrap();
    let wanted = manifests::read(&[file]).unwrap();
    let (options, _) = super::live::options(&before).unwrap();
    let plan = plan(&before, twin::run(&before, &wanted, options).unwrap(), Vec::new());
    assert!(plan.pods.iter().any(|gone| gone.pod.contains("nvidia-driver-daemonset")), "{:?}", plan.pods);
    assert_eq!(plan.nodes, ["gpu-0", "gpu-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_manifest_that_the_cluster_refuses_is_told_with_its_field() {
    let world = World::start().await;
    let before = world.settled().await;
    let text = "{apiVersion: nvidia.com/v1, kind: ClusterPolicy, metadata: {name: p}, spec: {operator: {defaultRuntime: podman}}}";
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bad.yaml");
    std::fs::write(&file, text).unwrap();
    let wanted = manifests::read(&[file]).unwrap();
    let (options, _) = super::live::options(&before).unwrap();
    let error = format!("{:#}", twin::run(&before, &wanted, options).err().unwrap());
    assert!(error.contains("spec.operator.defaultRuntime"), "{error}");
}
