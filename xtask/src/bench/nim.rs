//! Many NIMServices at once: what each costs the API server, what the operator asks while nothing changes, and how much
//! memory it takes.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::Common;
use super::audit::{Audit, Counts, total};
use super::cluster::Cluster;
use super::memory::Memory;
use super::players;
use super::report::Report;
use crate::cluster::control_plane::OPERATOR;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many
    #[arg(long, default_value = "500", value_name = "NUMBER")]
    services: u64,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Requests that one service may cost.
const REQUESTS: u64 = 8;
/// Megabytes that the operator may take.
const MEGABYTES: u64 = 40;
/// How long all of them may take.
const DEADLINE: Duration = Duration::from_secs(900);
/// Without a request for so long everything is done.
const CALM: Duration = Duration::from_secs(10);
/// The time between two looks, and between two signs of life of the node.
const LOOK: Duration = Duration::from_millis(250);
const HEARTBEAT: Duration = Duration::from_secs(10);

const SERVICES: &str = "/apis/apps.nvidia.com/v1alpha1/namespaces/default/nimservices";
const PORT: u16 = 8000;

pub(super) fn run(root: &Path, args: &Args, binary: &Path) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let cluster = Cluster::start(root)?;
        players::serve_models(PORT)?;
        players::node(&cluster).await?;
        let pid = cluster.operator(binary)?;
        let mut bench = Bench { audit: Audit::new(&cluster.home, OPERATOR)?, cluster, pid, beat: Instant::now() };
        bench.measure(args).await?.finish(root, "nim")
    })
}

struct Bench {
    cluster: Cluster,
    audit: Audit,
    pid: u32,
    beat: Instant,
}

impl Bench {
    async fn measure(&mut self, args: &Args) -> Result<Report> {
        let pause = Duration::from_secs(args.common.idle);
        self.wait(pause).await?;
        self.audit.since()?;
        let before = Memory::of(self.pid)?;
        let begin = Instant::now();
        self.create(args.services).await?;
        let highest = self.until_ready(args.services).await?;
        let took = begin.elapsed();
        let mut spent = self.audit.since()?;
        self.calm(&mut spent).await?;
        let after = Memory::of(self.pid)?;
        self.wait(pause).await?;
        let idle = self.audit.since()?;
        let settled = Memory::of(self.pid)?;
        Ok(report(args, took, &spent, &idle, [before, highest, after, settled]))
    }

    async fn create(&self, services: u64) -> Result<()> {
        players::each((0..services).collect(), |number| {
            let client = self.cluster.client.clone();
            async move {
                let body = service(number).to_string().into_bytes();
                let request = http::Request::post(SERVICES).header("content-type", "application/json").body(body)?;
                client.request::<Value>(request).await?;
                Ok(())
            }
        })
        .await
    }

    /// Waits until every service is ready, and returns the most memory that was seen.
    async fn until_ready(&mut self, services: u64) -> Result<Memory> {
        let (begin, mut highest) = (Instant::now(), Memory::default());
        loop {
            players::run_pods(&self.cluster).await?;
            self.look().await?;
            let now = Memory::of(self.pid)?;
            highest = if now.resident > highest.resident { now } else { highest };
            let all = self.cluster.list(SERVICES).await?;
            let named = |one: &&Value| one["status"]["state"] == "Ready" && one["status"]["model"]["name"] == "bench";
            let ready = all.iter().filter(named).count() as u64;
            if ready == services {
                return Ok(highest);
            }
            ensure!(begin.elapsed() < DEADLINE, "{ready} of {services} services are ready after {DEADLINE:?}");
        }
    }

    /// Waits until the operator asks nothing any more.
    async fn calm(&mut self, spent: &mut Counts) -> Result<()> {
        let begin = Instant::now();
        loop {
            self.wait(CALM).await?;
            let more = self.audit.since()?;
            if more.is_empty() {
                return Ok(());
            }
            for (request, count) in more {
                *spent.entry(request).or_default() += count;
            }
            ensure!(begin.elapsed() < DEADLINE, "the operator does not come to rest");
        }
    }

    /// Lets time pass for everybody.
    async fn wait(&mut self, time: Duration) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < time {
            self.look().await?;
        }
        Ok(())
    }

    async fn look(&mut self) -> Result<()> {
        if self.beat.elapsed() > HEARTBEAT {
            self.beat = Instant::now();
            players::heartbeat(&self.cluster).await?;
        }
        tokio::time::sleep(LOOK).await;
        Ok(())
    }
}

fn service(number: u64) -> Value {
    json!({
        "apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NIMService",
        "metadata": {"name": format!("model-{number}"), "namespace": "default"},
        "spec": {
            "image": {"repository": format!("localhost:{PORT}/nim/llama"), "tag": players::TAG},
            "storage": {"emptyDir": {}}, "replicas": 1, "resources": {"limits": {"nvidia.com/gpu": 1}},
        },
    })
}

fn report(args: &Args, took: Duration, spent: &Counts, idle: &Counts, memory: [Memory; 4]) -> Report {
    let (services, seconds) = (args.services, args.common.idle);
    let each = total(spent) as f64 / services as f64;
    let mut report = Report::default();
    report.row("NIMServices", format!("{services}, all Ready after {:.0} s", took.as_secs_f64()));
    report.row("requests", format!("{} in all, {each:.2} for each", total(spent)));
    for (request, count) in spent {
        report.row(&format!("  {request}"), count.to_string());
    }
    report.row(&format!("requests in {seconds} s without changes"), total(idle).to_string());
    let names = ["before", "at most on the way", "when all are Ready", "after a pause"];
    for (name, memory) in names.iter().zip(memory) {
        let megabytes = |kilobytes: u64| format!("{:.1} MB", kilobytes as f64 * 1024.0 / 1e6);
        report.row(
            &format!("memory {name}"),
            format!("{}, {} of it its own", megabytes(memory.resident), megabytes(memory.own)),
        );
    }
    report.json("services", services);
    report.json("seconds", took.as_secs_f64());
    report.json("requests", json!(spent));
    report.json("idleRequests", json!(idle));
    report.json(
        "memory",
        names.iter().zip(memory).map(|(name, memory)| json!({"when": name, "is": memory.json()})).collect::<Vec<_>>(),
    );
    report
        .expect(total(spent) <= REQUESTS * services, || format!("{each:.2} requests for each of {services} services"));
    report.expect(idle.is_empty(), || format!("{} requests while nothing changed", total(idle)));
    let most = memory.iter().map(|memory| memory.resident * 1024 / 1_000_000).max().unwrap_or_default();
    report.expect(most < MEGABYTES, || format!("{most} MB of memory"));
    report
}
