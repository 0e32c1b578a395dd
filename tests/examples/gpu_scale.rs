//! How large a fleet of GPU nodes can be: requests until it is ready, the operator's memory, and how soon a node that joins
//! is labelled.
//!
//!     cargo run --release -p capstan-tests --example gpu_scale -- [--nodes 1000]
//!     cargo run --release -p capstan-tests --example gpu_scale -- --nodes 5000 --binary target/release/capstan
//!     cargo run --release -p capstan-tests --example gpu_scale -- --requests 1000
//!
//! With `--nodes` the operator runs in a process of its own, so that its memory can be told from that of the cluster: this
//! program again, which has all of the cluster in it, or with `--binary` the `capstan operator` of another. With
//! `--requests` it runs in virtual time, and its requests are counted: with nodes that are told nothing, and with nodes
//! that are told everything.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use capstan_apiserver::serve::Listen;
use capstan_operator::Options;
use capstan_operator::gpu::{Readiness, StartupTaint};
use capstan_sim::{Cluster, controllers, node};
use capstan_tests::gpu::{self, POLICY};
use capstan_tests::world::operands_in;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

type Error = Box<dyn std::error::Error + Send + Sync>;

const NAMESPACE: &str = "capstan";

/// The operator has seen all nodes by then.
const CALM: Duration = Duration::from_secs(20);
/// Twice a minute the operator gives back what it no longer needs.
const REST: Duration = Duration::from_secs(65);

fn main() -> Result<(), Error> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match words.as_slice() {
        [mode, kubeconfig] if mode == "--operator" => runtime.block_on(operator(kubeconfig)),
        [option, nodes] if option == "--requests" => requests(nodes.parse()?),
        [option, nodes] if option == "--nodes" => runtime.block_on(run(nodes.parse()?, None)),
        [option, nodes, other, path] if option == "--nodes" && other == "--binary" => {
            runtime.block_on(run(nodes.parse()?, Some(Path::new(path))))
        }
        [] => runtime.block_on(run(1000, None)),
        _ => Err("give --nodes NUMBER [--binary PATH], --requests NUMBER or nothing".into()),
    }
}

/// Requests from nothing to ready, for one more node, and while nothing changes.
fn requests(nodes: u16) -> Result<(), Error> {
    let everything = Readiness { condition: true, taint: Some(StartupTaint::parse("capstan.dev/starting")?) };
    let mut kept = Vec::new();
    for (name, readiness, limited) in [("nothing", Readiness::default(), true), ("everything", everything, false)] {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
        let start = Instant::now();
        let cost = runtime.block_on(gpu::fleet_with_readiness(nodes, readiness));
        let total: usize = cost.install.values().sum();
        println!("nodes are told {name}, in {:.0} s of real time", start.elapsed().as_secs_f64());
        println!("  install {total} requests: {:?}", cost.install);
        println!("  one more node, labelled after {:?}: {:?}", cost.labelled, cost.join);
        println!("  idle for ten minutes: {:?}", cost.idle);
        kept.push(!limited || within("requests to ready", total as f64, cost.budget() as f64 + 1.0, ""));
    }
    if kept.iter().all(|kept| *kept) { Ok(()) } else { Err("a limit does not hold".into()) }
}

/// The operator alone.
async fn operator(kubeconfig: &str) -> Result<(), Error> {
    let file = kube::config::Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(file, &kube::config::KubeConfigOptions::default()).await?;
    let options = Options { apply_crds: false, gpu: operands_in(NAMESPACE), ..Options::in_process() };
    let (ready, _is_ready) = tokio::sync::oneshot::channel();
    capstan_operator::run(Client::try_from(config)?, options, CancellationToken::new(), ready).await?;
    Ok(())
}

/// The operator in a process of its own.
fn spawn(binary: Option<&Path>, kubeconfig: &Path) -> Result<tokio::process::Child, Error> {
    let mut command = match binary {
        None => {
            let mut own = tokio::process::Command::new(std::env::current_exe()?);
            own.arg("--operator").arg(kubeconfig);
            own
        }
        Some(binary) => {
            let mut other = tokio::process::Command::new(binary);
            other.args(["operator", "--skip-crds", "--health-probe-bind-address=0", "--namespace", NAMESPACE]);
            other.arg("--kubeconfig").arg(kubeconfig).envs(operands_in(NAMESPACE).images);
            other
        }
    };
    Ok(command.stdin(Stdio::null()).kill_on_drop(true).spawn()?)
}

async fn run(nodes: usize, binary: Option<&Path>) -> Result<(), Error> {
    let start = Instant::now();
    let said = |text: String| println!("{:6.1} s  {text}", start.elapsed().as_secs_f64());
    let templates = (0..nodes).map(|index| capstan_gpu_sim::gpu_node(&format!("gpu-{index}"), 8)).collect();
    let settings = node::Settings {
        nodes: templates,
        rules: capstan_gpu_sim::rules(capstan_gpu_sim::Pace::default()),
        events: node::Events::None,
        heartbeat: Duration::from_secs(3600),
        ..node::Settings::default()
    };
    let patient = controllers::Settings { node_grace: None, ..controllers::Settings::default() };
    let builder = Cluster::builder().node_settings(settings).controller_settings(patient).listen(Listen::default());
    let cluster = builder.start().await?;
    let client = cluster.client();
    said(format!("{nodes} nodes are there"));
    apply(&client, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})).await?;
    for kind in capstan_api::kinds() {
        apply(&client, serde_json::to_value(kind.definition())?).await?;
    }
    let folder = std::env::temp_dir().join(format!("gpu-scale-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let kubeconfig = folder.join("kubeconfig");
    let config = cluster.kubeconfig().ok_or("the cluster listens")?;
    std::fs::write(&kubeconfig, config.text())?;
    let mut child = spawn(binary, &kubeconfig)?;
    let process = child.id().ok_or("the operator runs")?;
    tokio::time::sleep(CALM).await;
    said(format!("the operator knows the nodes: {}", memory(process)));
    apply(&client, gpu::policy()).await?;
    let policies = api(&client, gpu::API, "ClusterPolicy", "clusterpolicies");
    let mut told = String::new();
    loop {
        let status = policies.get(POLICY).await?.data["status"].clone();
        if status["state"] == "ready" {
            break;
        }
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let driver = conditions.into_iter().find(|one| one["type"] == "Driver").map(|one| one["message"].to_string());
        if let Some(driver) = driver.filter(|driver| *driver != told) {
            said(format!("driver {driver}: {}", memory(process)));
            told = driver;
        }
        if child.try_wait()?.is_some() {
            return Err("the operator ended".into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    said(format!("the policy is ready: {}", memory(process)));
    let (patched, joined) = (patched(&client).await?, join(&cluster, &client).await?);
    tokio::time::sleep(REST).await;
    said(format!("after a minute: {}", memory(process)));
    println!();
    println!("nodes labelled       {patched:8}");
    let kept = [
        within("a node that joins", joined.as_secs_f64() * 1e3, 500.0, "ms"),
        within("memory of the operator", megabytes(process, "VmHWM:"), 80.0, "MB"),
    ];
    child.kill().await?;
    let _ = std::fs::remove_dir_all(folder);
    if kept.iter().all(|kept| *kept) { Ok(()) } else { Err("a limit does not hold".into()) }
}

fn within(name: &str, value: f64, limit: f64, unit: &str) -> bool {
    let kept = value < limit;
    println!("{name:24} {value:8.1} {unit:3} of {limit:6.0} {unit:3} {}", if kept { "kept" } else { "NOT KEPT" });
    kept
}

/// How many nodes say that they have GPUs.
async fn patched(client: &Client) -> Result<usize, Error> {
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client.clone());
    Ok(nodes.list(&ListParams::default().labels("nvidia.com/gpu.present=true")).await?.items.len())
}

/// How long a node that joins waits for its labels.
async fn join(cluster: &Cluster, client: &Client) -> Result<Duration, Error> {
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client.clone());
    let start = Instant::now();
    cluster.nodes().add(capstan_gpu_sim::gpu_node("late", 8)).await.map_err(|error| error.to_string())?;
    loop {
        let labels = nodes.get("late").await?.metadata.labels.unwrap_or_default();
        if labels.contains_key("nvidia.com/gpu.present") {
            return Ok(start.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// What the kernel says of a process's memory, in MB of a million bytes.
fn megabytes(process: u32, field: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().unwrap_or_default();
    kib * 1024.0 / 1e6
}

/// How much memory a process has, of its own and at most so far.
fn memory(process: u32) -> String {
    let [now, own, most] = ["VmRSS:", "RssAnon:", "VmHWM:"].map(|field| megabytes(process, field));
    format!("{now:.1} MB, {own:.1} of its own, {most:.1} at most")
}

fn api(client: &Client, version: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    Api::all_with(
        client.clone(),
        &ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural),
    )
}

/// Makes a cluster-wide object.
async fn apply(client: &Client, object: Value) -> Result<(), Error> {
    let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
    let (version, kind, name) = (text(&object["apiVersion"]), text(&object["kind"]), text(&object["metadata"]["name"]));
    let plural = match kind.as_str() {
        "ClusterPolicy" => "clusterpolicies".to_owned(),
        other => format!("{}s", other.to_lowercase()),
    };
    let object: DynamicObject = serde_json::from_value(object)?;
    let api = api(client, &version, &kind, &plural);
    if kind == "Namespace" {
        api.create(&PostParams::default(), &object).await?;
    } else {
        api.patch(&name, &PatchParams::apply("kubectl").force(), &Patch::Apply(&object)).await?;
    }
    Ok(())
}
