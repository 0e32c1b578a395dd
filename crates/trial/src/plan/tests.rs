//! Compares plans with the result: a cluster, a plan, the same manifests applied, and the operator's writes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use capstan_gpu_sim::{Pace, gpu_node};
use capstan_inspect::{Snapshot, snapshot};
use capstan_operator::Options;
use capstan_runtime::Clock;
use capstan_sim::{Cluster, controllers, node};
use tokio_util::sync::CancellationToken;

use super::changes::{self, Change};
use super::twin::{self, Written};
use super::{ours, run};
use crate::{Result, manifests};

/// Rounds of 15 minutes after which a cluster counts as settled, whatever is retried.
const ROUNDS: usize = 12;

/// The operator's own image.
const IMAGE: &str = "registry.example/capstan:1";

/// Options of the operator, in the cluster and in the trial.
fn options() -> Options {
    let mut options = Options::in_process();
    options.gpu.agent.image = IMAGE.into();
    options
}

/// A cluster with an operator.
struct World {
    cluster: Cluster,
    /// Objects that the operator wrote.
    written: Arc<Mutex<Written>>,
    /// The same without status writes.
    specs: Arc<Mutex<Written>>,
    stop: CancellationToken,
}

impl World {
    async fn start() -> Self {
        let rules =
            [twin::containers(std::time::Duration::from_secs(30)), capstan_gpu_sim::rules(Pace::default())].concat();
        let nodes = (0..2).map(|index| gpu_node(&format!("gpu-{index}"), 8)).collect();
        // Hours pass in these stories: heartbeats and events would dominate.
        let heartbeat = Duration::from_secs(3600);
        let settings =
            node::Settings { nodes, rules, heartbeat, events: node::Events::None, ..node::Settings::default() };
        let patient = controllers::Settings { node_grace: None, ..controllers::Settings::default() };
        let start = "2027-01-15T08:00:00Z".parse().unwrap();
        let builder = Cluster::builder().start_time(start).seed(7).node_settings(settings);
        let cluster = builder.controller_settings(patient).start().await.unwrap();
        let world = Self { cluster, written: Arc::default(), specs: Arc::default(), stop: CancellationToken::new() };
        for manifest in [manifests::storage_class(), manifests::namespace("capstan")] {
            manifests::apply(&world.cluster.client(), &manifest).await.unwrap();
        }
        let clock = Clock::starting_at(world.cluster.server.clock().now());
        let (ready, is_ready) = tokio::sync::oneshot::channel();
        let options = Options { clock, ..options() };
        tokio::spawn(capstan_operator::run(world.client(), options, world.stop.clone(), ready));
        is_ready.await.unwrap();
        world
    }

    /// The operator's client.
    fn client(&self) -> kube::Client {
        let (written, specs) = (self.written.clone(), self.specs.clone());
        twin::observed_client(&self.cluster, move |request| {
            let Some(path) = twin::written(request) else { return };
            written.lock().unwrap().extend(twin::object_of(path));
            if !path.ends_with("/status") {
                specs.lock().unwrap().extend(twin::object_of(path));
            }
        })
    }

    /// The snapshot of the settled cluster.
    async fn settled(&self) -> Snapshot {
        let client = self.cluster.client();
        let mut before = String::new();
        // Retries may go on for ever: the cluster is settled when nothing else changes for long.
        for _ in 0..ROUNDS {
            tokio::time::sleep(Duration::from_secs(900)).await;
            // A full snapshot, with CRDs, is much larger: it is read only at the end.
            let now = Snapshot::read_kinds(&client, &["Pod"]).await.unwrap();
            let pods = serde_json::to_string(&now.objects.get("Pod")).unwrap()
                + &self.written.lock().unwrap().len().to_string();
            if pods == before {
                break;
            }
            before = pods;
        }
        Snapshot::read_objects(&client).await.unwrap()
    }

    async fn apply(&self, files: &[PathBuf]) {
        for manifest in manifests::read(files).unwrap() {
            manifests::apply(&self.cluster.client(), &manifest).await.unwrap();
        }
    }

    /// The planned changes of files, and the changes after they are applied.
    async fn planned_and_actual(&self, files: &[PathBuf]) -> (Vec<Change>, Vec<Change>, Written) {
        let before = self.settled().await;
        let wanted = manifests::read(files).unwrap();
        let planned = run(&before, &wanted, options(), Vec::new()).unwrap().changes;
        self.written.lock().unwrap().clear();
        self.specs.lock().unwrap().clear();
        self.apply(files).await;
        let after = self.settled().await;
        let actual = ours(changes::between(&before, &after), &wanted, &self.written.lock().unwrap());
        let specs = std::mem::take(&mut *self.specs.lock().unwrap());
        (planned, actual, specs)
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

async fn assert_plan_matches(world: &World, files: &[PathBuf]) {
    let (planned, actual, written) = world.planned_and_actual(files).await;
    assert!(!planned.is_empty(), "{files:?}: nothing foretold");
    let show = |changes: &[Change]| serde_json::to_string_pretty(changes).unwrap();
    assert!(planned == actual, "{files:?}: foretold {}\nseen {}", show(&planned), show(&actual));
    // Events, temporary pods and leases are no part of a plan; every other write is.
    for (resource, namespace, name) in written.iter().filter(|one| !["events", "pods", "leases"].contains(&&*one.0)) {
        let is = |change: &&Change| snapshot::plural(&change.kind) == *resource && change.name == *name;
        assert!(planned.iter().any(|change| is(&change)), "{files:?}: {resource} {namespace}/{name} was not foretold");
    }
}

#[tokio::test(start_paused = true)]
async fn plans_of_gpu_examples_come_true() {
    // Each file is for a cluster without the others.
    for file in examples("gpu") {
        assert_plan_matches(&World::start().await, &[file]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn plans_of_nim_examples_come_true() {
    let (world, _) = working().await;
    assert_plan_matches(&world, &examples("nim")).await;
}

/// A cluster with working GPUs and the minimal policy.
async fn working() -> (World, Snapshot) {
    let world = World::start().await;
    world.apply(&[minimal()]).await;
    let before = world.settled().await;
    (world, before)
}

fn minimal() -> PathBuf {
    examples("gpu").into_iter().find(|file| file.ends_with("minimal.yaml")).unwrap()
}

/// The plan of the minimal policy after an edit.
fn plan_of(before: &Snapshot, from: &str, to: &str) -> Result<super::Plan> {
    let text = std::fs::read_to_string(minimal()).unwrap();
    assert!(text.contains(from), "{from}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("policy.yaml");
    std::fs::write(&file, text.replace(from, to)).unwrap();
    let wanted = manifests::read(&[file]).unwrap();
    run(before, &wanted, options(), Vec::new())
}

#[tokio::test(start_paused = true)]
async fn where_all_is_done_nothing_would_change() {
    let (_world, before) = working().await;
    assert_eq!(plan_of(&before, "dcgm: {}", "dcgm: {}").unwrap().changes, []);
}

#[tokio::test(start_paused = true)]
async fn a_changed_driver_names_the_pods_that_go() {
    let (_world, before) = working().await;
    let plan =
        plan_of(&before, "version: 595.91.07", "version: 596.1.2\n    upgradePolicy: {autoUpgrade: true}").unwrap();
    assert!(plan.pods.iter().any(|gone| gone.pod.contains("nvidia-driver-daemonset")), "{:?}", plan.pods);
    assert_eq!(plan.nodes, ["gpu-0", "gpu-1"]);
    let label = "metadata.labels[nvidia.com/gpu-driver-upgrade-state]";
    let ends = plan.changes.iter().flat_map(|change| &change.fields).filter(|field| field.path == label);
    let ends: Vec<_> = ends.filter_map(|field| field.after.clone()).collect();
    assert_eq!(ends, ["upgrade-done", "upgrade-done"]);
}

#[tokio::test(start_paused = true)]
async fn a_manifest_that_the_cluster_refuses_is_told_with_its_field() {
    let (_world, before) = working().await;
    let error =
        plan_of(&before, "image: driver\n", "image: driver\n    kernelModuleType: closed\n").unwrap_err().to_string();
    assert!(error.contains("spec.driver.kernelModuleType"), "{error}");
}
