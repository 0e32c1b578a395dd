//! Scale test: time, CPU and memory until all nodes and pods are ready, and the latency of watch events.
//!
//!     cargo run --release -p capstan-sim --example scale -- [--nodes 5000] [--pods 75000] [--how mixed|pods|deployments|daemonsets] [--events]
//!
//! Fails if a limit that the project promises for the full size is exceeded; prints each limit beside the measured
//! value.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use capstan_apiserver::serve::Listen;
use capstan_sim::{Cluster, node, scheduler};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;

/// Pods of one deployment.
const REPLICAS: usize = 500;
/// Interval between two measurements of the watch latency.
const PROBE: Duration = Duration::from_millis(10);
/// How long latency is measured after all pods are ready.
const STEADY: Duration = Duration::from_secs(10);

#[derive(Clone)]
struct Options {
    nodes: usize,
    pods: usize,
    how: String,
    events: bool,
}

impl Options {
    fn parse() -> Self {
        let mut options = Self { nodes: 5_000, pods: 75_000, how: "mixed".to_owned(), events: false };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().unwrap_or_else(|| panic!("{word} needs a value"));
            match word.as_str() {
                "--nodes" => options.nodes = value().parse().expect("a number"),
                "--pods" => options.pods = value().parse().expect("a number"),
                "--how" => options.how = value(),
                "--events" => options.events = true,
                other => panic!("unknown option {other}"),
            }
        }
        options
    }
}

type Error = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Error> {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run(options))
}

async fn run(options: Options) -> Result<(), Error> {
    let small = time_to_ready().await?;
    let start = Instant::now();
    let cluster = start_cluster(&options).await?;
    println!("{:6.1} s  {} nodes are registered", start.elapsed().as_secs_f64(), options.nodes);
    let client = cluster.client();
    wait_for_nodes(&cluster, options.nodes).await;
    println!("{:6.1} s  all nodes take pods", start.elapsed().as_secs_f64());

    let seen = Arc::new(AtomicUsize::new(0));
    let ready = count_ready(&cluster);
    let mut delays = watch_delays(client.clone(), seen.clone()).await?;
    let (before, created) = (cluster.server.store().revision(), Instant::now());
    create(&client, &options).await?;
    println!("{:6.1} s  all workloads are created", start.elapsed().as_secs_f64());
    let mut told = Instant::now();
    while ready.load(Ordering::Relaxed) < options.pods {
        tokio::time::sleep(Duration::from_millis(50)).await;
        if told.elapsed() > Duration::from_secs(5) {
            told = Instant::now();
            let (seconds, done) = (start.elapsed().as_secs_f64(), ready.load(Ordering::Relaxed));
            println!("{seconds:6.1} s  {done} of {} pods are ready, {} MiB", options.pods, memory("VmRSS:") >> 10);
        }
    }
    let (elapsed, ramp, cpu) = (start.elapsed(), created.elapsed(), cpu_seconds());
    let writes = cluster.server.store().revision() - before;
    let mut busy = take(&mut delays);
    tokio::time::sleep(STEADY).await;
    let mut steady = take(&mut delays);

    let (counts, pods) = (cluster.server.store().counts(), options.pods as f64);
    println!();
    println!("pods per second      {:8.0}", pods / ramp.as_secs_f64());
    println!("writes per pod       {:8.2}", writes as f64 / pods);
    println!(
        "text per object      {:8.0} bytes of {} objects",
        counts.bytes as f64 / counts.objects as f64,
        counts.objects
    );
    println!("events in logs       {:8}", counts.events);
    println!("events watched       {:8}", seen.load(Ordering::Relaxed));
    println!("watch while busy     {}", percentiles(&mut busy));
    println!("watch when settled   {}", percentiles(&mut steady));
    println!("processor            {cpu:8.1} s until all pods were ready: {:.2} ms per pod", cpu * 1e3 / pods);
    println!("memory now           {:8} MiB", memory("VmRSS:") >> 10);
    println!();
    let late = |delays: &[Duration]| percentile(delays, 99.0).as_secs_f64() * 1e3;
    // On a shared machine, CPU seconds on two cores are comparable where wall-clock seconds are not.
    let kept = [
        within("small cluster ready", small.as_secs_f64() * 1e3, 300.0, "ms"),
        within("all pods ready", elapsed.as_secs_f64(), 180.0, "s"),
        within("processor, on 2 cores", cpu / 2.0, 180.0, "s"),
        within("peak memory", (memory("VmHWM:") >> 10) as f64, 2048.0, "MiB"),
        within("watch p99 while busy", late(&busy), 50.0, "ms"),
        within("watch p99 when settled", late(&steady), 50.0, "ms"),
    ];
    if kept.iter().all(|kept| *kept) { Ok(()) } else { Err("a limit does not hold".into()) }
}

fn within(name: &str, value: f64, limit: f64, unit: &str) -> bool {
    let kept = value < limit;
    println!("{name:24} {value:8.1} {unit:3} of {limit:6.0} {unit:3} {}", if kept { "kept" } else { "NOT KEPT" });
    kept
}

/// Time until a client sees three nodes ready in a new cluster with TLS.
async fn time_to_ready() -> Result<Duration, Error> {
    let start = Instant::now();
    let cluster = Cluster::builder().nodes(3).listen(Listen::default()).start().await?;
    let nodes = Api::<Node>::all(cluster.client()).list(&ListParams::default()).await?;
    let conditions = nodes.items.iter().flat_map(|node| node.status.iter().flat_map(|s| s.conditions.iter().flatten()));
    let ready = conditions.filter(|condition| condition.type_ == "Ready" && condition.status == "True").count();
    assert_eq!(ready, 3, "nodes are ready when the cluster has started");
    Ok(start.elapsed())
}

/// CPU time of this process in seconds; the kernel counts in hundredths.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The program name, in parentheses, may contain any character.
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ');
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

async fn start_cluster(options: &Options) -> Result<Cluster, Error> {
    let nodes = node::Settings {
        nodes: (0..options.nodes).map(template).collect(),
        events: if options.events { node::Events::All } else { node::Events::Warnings },
        ..node::Settings::default()
    };
    let scheduler = scheduler::Settings { report_success: options.events, ..scheduler::Settings::default() };
    Ok(Cluster::builder().node_settings(nodes).scheduler_settings(scheduler).start().await?)
}

fn template(index: usize) -> node::NodeTemplate {
    node::NodeTemplate::new(format!("node-{index:04}"))
        .label("topology.kubernetes.io/zone", format!("zone-{}", index % 3))
        .label("node.kubernetes.io/instance-type", "large")
        .capacity("example.com/device", "8")
}

async fn wait_for_nodes(cluster: &Cluster, count: usize) {
    let nodes = &cluster.context().caches.nodes;
    let usable =
        |node: &Arc<Node>| node.spec.as_ref().is_none_or(|spec| spec.taints.as_ref().is_none_or(Vec::is_empty));
    while nodes.list().iter().filter(|node| usable(node)).count() < count {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Counts ready pods.
fn count_ready(cluster: &Cluster) -> Arc<AtomicUsize> {
    fn is_ready(pod: &capstan_sim::Pod) -> bool {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
    }
    let ready = Arc::new(AtomicUsize::new(0));
    let count = ready.clone();
    cluster.context().caches.pods.subscribe(move |change| {
        let (was, is) = (change.old.is_some_and(|pod| is_ready(pod)), change.new.is_some_and(|pod| is_ready(pod)));
        if is && !was {
            count.fetch_add(1, Ordering::Relaxed);
        } else if was && !is {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    });
    ready
}

/// Watches all pods as a client does, and measures the latency from the start of a write to its watch event.
async fn watch_delays(
    client: kube::Client,
    seen: Arc<AtomicUsize>,
) -> Result<tokio::sync::mpsc::UnboundedReceiver<Duration>, Error> {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    let probes: Api<Pod> = Api::namespaced(client.clone(), "kube-system");
    let spec = json!({"schedulerName": "nobody", "containers": [{"name": "c", "image": "probe"}]});
    let probe: Pod = serde_json::from_value(json!({"metadata": {"name": "probe"}, "spec": spec}))?;
    probes.create(&PostParams::default(), &probe).await?;
    let origin = Instant::now();
    let all: Api<Pod> = Api::all(client);
    let mut events = all.watch(&WatchParams::default(), "0").await?.boxed();
    tokio::spawn(async move {
        while let Ok(Some(event)) = events.try_next().await {
            seen.fetch_add(1, Ordering::Relaxed);
            if let WatchEvent::Modified(pod) = event
                && let Some(sent) = pod.metadata.annotations.and_then(|all| all.get("sent")?.parse::<u64>().ok())
            {
                let now = origin.elapsed();
                let _ = sender.send(now.saturating_sub(Duration::from_nanos(sent)));
            }
        }
        println!("the watch ended");
    });
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(PROBE).await;
            let sent = origin.elapsed().as_nanos().to_string();
            let patch = json!({"metadata": {"annotations": {"sent": sent}}});
            let _ = probes.patch("probe", &PatchParams::default(), &Patch::Merge(&patch)).await;
        }
    });
    Ok(receiver)
}

fn take(delays: &mut tokio::sync::mpsc::UnboundedReceiver<Duration>) -> Vec<Duration> {
    std::iter::from_fn(|| delays.try_recv().ok()).collect()
}

async fn create(client: &kube::Client, options: &Options) -> Result<(), Error> {
    let (on_nodes, replicated, single) = match options.how.as_str() {
        "pods" => (0, 0, options.pods),
        "deployments" => (0, options.pods, 0),
        "daemonsets" => (options.pods, 0, 0),
        // Two thirds are DaemonSet pods, as agents are.
        _ => (options.pods / 3 * 2, options.pods - options.pods / 3 * 2, 0),
    };
    let sets = on_nodes / options.nodes.max(1);
    let replicated = replicated + on_nodes - sets * options.nodes;
    let api: Api<DaemonSet> = Api::default_namespaced(client.clone());
    for i in 0..sets {
        let name = format!("agent-{i}");
        let body = json!({"metadata": {"name": name}, "spec": workload(&name)});
        api.create(&PostParams::default(), &serde_json::from_value(body)?).await?;
    }
    let api: Api<Deployment> = Api::default_namespaced(client.clone());
    for (i, first) in (0..replicated).step_by(REPLICAS).enumerate() {
        let name = format!("web-{i}");
        let mut spec = workload(&name);
        spec["replicas"] = json!(REPLICAS.min(replicated - first));
        api.create(&PostParams::default(), &serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?)
            .await?;
    }
    let api: Api<Pod> = Api::default_namespaced(client.clone());
    let pods = futures::stream::iter(0..single).map(|i| {
        let api = api.clone();
        async move {
            let name = format!("pod-{i}");
            let body = json!({"metadata": {"name": name, "labels": {"app": "single"}}, "spec": pod_spec()});
            api.create(&PostParams::default(), &serde_json::from_value(body)?).await?;
            Ok::<(), Error>(())
        }
    });
    pods.buffer_unordered(16).try_collect::<Vec<()>>().await?;
    Ok(())
}

fn workload(name: &str) -> serde_json::Value {
    json!({
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": pod_spec()},
    })
}

fn pod_spec() -> serde_json::Value {
    json!({
        "containers": [{
            "name": "main",
            "image": "registry.example.com/team/application:1.2.3",
            "args": ["--verbose", "--port=8080"],
            "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
            "ports": [{"containerPort": 8080}],
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
        }],
    })
}

fn percentile(sorted: &[Duration], percent: f64) -> Duration {
    let at = (sorted.len() as f64 * percent / 100.0) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(Duration::MAX)
}

fn percentiles(delays: &mut [Duration]) -> String {
    delays.sort_unstable();
    let millis = |percent| percentile(delays, percent).as_secs_f64() * 1e3;
    format!(
        "p50 {:.2} ms  p99 {:.2} ms  most {:.2} ms  ({} probes)",
        millis(50.0),
        millis(99.0),
        millis(100.0),
        delays.len()
    )
}

/// A line of `/proc/self/status`, in KiB.
fn memory(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let found = status.lines().find_map(|text| text.strip_prefix(line)?.trim().strip_suffix(" kB")?.parse().ok());
    found.unwrap_or(0)
}
