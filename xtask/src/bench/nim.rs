//! Many NIMServices at once: time until their objects exist and they are Ready, cost per service, load while idle, and
//! memory.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::arena::{Arena, NAMESPACE, Play, Step, play};
use super::cluster::send;
use super::simulated::{self, JSON};
use super::watch_cache::WatchCache;
use super::{Common, Report, models};
use crate::cluster::control_plane::Workloads;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Number of services
    #[arg(long, default_value = "500", value_name = "NUMBER")]
    services: usize,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Request budget per service.
const REQUESTS: f64 = 8.0;
/// Memory budget in megabytes, and the number of services it applies to.
const MEGABYTES: f64 = 40.0;
const COUNT: usize = 500;
/// Timeout of a step.
const DEADLINE: Duration = Duration::from_secs(900);

/// Steps. Scheduler and kubelet time is not the operator's, so pods run before the time until services are Ready is
/// measured, whose Deployments are available.
const CREATE: &str = "create services";
const PODS: &str = "run pods";
const START: &str = "make Deployments available";

const SERVICES: &str = "/apis/apps.nvidia.com/v1alpha1/namespaces/default/nimservices";
/// Port of model servers.
pub(super) const PORT: u16 = 8000;

pub(super) async fn run(root: &Path, args: &Args) -> Result<()> {
    models::serve(PORT)?;
    let mut plays = Vec::new();
    for arena in args.common.arenas(root, Workloads::Simulated).await? {
        plays.push(Nim { models: Models::new(&arena).await?, arena, services: args.services });
    }
    let columns = play(plays, args.common.idle).await?;
    let title = format!("{} NIMServices at once", args.services);
    let mut report = Report::new(&format!("nim-{}", args.services), &title, columns);
    report.limit("requests for each", REQUESTS);
    report.limit_idle(args.common.idle);
    if args.services <= COUNT {
        report.limit("memory at most", MEGABYTES);
    }
    report.finish(root, &args.common.against)
}

struct Nim {
    arena: Arena,
    models: Models,
    services: usize,
}

impl Play for Nim {
    const STEPS: &'static [Step] = &[Step::Before, Step::Do(CREATE), Step::Do(PODS), Step::Do(START), Step::Idle];

    fn arena(&mut self) -> &mut Arena {
        &mut self.arena
    }

    async fn step(&mut self, name: &'static str) -> Result<()> {
        let arena = &mut self.arena;
        arena.begin()?;
        match name {
            CREATE => {
                self.models.create(arena, self.services).await?;
                arena.column.main("all children are there after", "s", arena.seconds());
            }
            PODS => simulated::pods(&arena.cluster, &self.models.deployments).await?,
            _ => {
                simulated::available(&arena.cluster, &self.models.deployments).await?;
                let available_at = arena.seconds();
                self.models.until_ready(self.services).await?;
                arena.column.main("all are Ready after the first was available", "s", arena.seconds());
                arena.column.detail("all are Ready after the last was available", "s", arena.seconds() - available_at);
            }
        }
        let requests = arena.wait_until_idle().await?;
        arena.column.requests(name, &requests);
        arena.column.detail(&format!("{name}: work"), "CPU s", arena.cpu()?);
        arena.column.detail(&format!("{name}: requests"), "", requests.total() as f64);
        if name == START {
            let sum = |of: &str| -> f64 {
                [CREATE, PODS, START].iter().filter_map(|step| arena.column.value(&format!("{step}: {of}"))).sum()
            };
            let (work, requests) = (sum("work"), sum("requests"));
            arena.column.main("work until silent", "CPU s", work);
            arena.column.main("requests for each", "", requests / self.services as f64);
            arena.note_memory("when all are Ready")?;
        }
        Ok(())
    }
}

/// NIMServices and their objects on one control plane.
pub(super) struct Models {
    services: WatchCache,
    deployments: WatchCache,
    children: WatchCache,
}

impl Models {
    pub(super) async fn new(arena: &Arena) -> Result<Self> {
        simulated::node(&arena.cluster).await?;
        let follow = |path: &str| WatchCache::follow(&arena.cluster.client, path);
        Ok(Self {
            services: follow(SERVICES),
            deployments: follow(&format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments")),
            children: follow(&format!("/api/v1/namespaces/{NAMESPACE}/services")),
        })
    }

    /// Creates services, and waits until each has a Deployment and a Service.
    pub(super) async fn create(&self, arena: &Arena, count: usize) -> Result<()> {
        simulated::each((0..count).collect(), |number| {
            let client = arena.cluster.client.clone();
            async move { send(&client, "POST", SERVICES, JSON, &service(number)).await.map(drop) }
        })
        .await?;
        let owned = |object: &Value| object["metadata"]["ownerReferences"][0]["kind"] == "NIMService";
        self.deployments.until_count(DEADLINE, "Deployments are there", count, owned).await?;
        self.children.until_count(DEADLINE, "Services are there", count, owned).await
    }

    /// Runs their pods, and waits until they are Ready.
    pub(super) async fn start(&self, arena: &Arena, count: usize) -> Result<()> {
        simulated::pods(&arena.cluster, &self.deployments).await?;
        simulated::available(&arena.cluster, &self.deployments).await?;
        self.until_ready(count).await
    }

    async fn until_ready(&self, count: usize) -> Result<()> {
        let ready = |one: &Value| one["status"]["state"] == "Ready";
        self.services.until_count(DEADLINE, "services are ready", count, ready).await
    }
}

fn service(number: usize) -> Value {
    json!({
        "apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NIMService",
        "metadata": {"name": format!("model-{number}"), "namespace": NAMESPACE},
        "spec": {
            "image": {"repository": format!("localhost:{PORT}/nim/llama"), "tag": models::TAG},
            "storage": {"emptyDir": {}}, "replicas": 1, "resources": {"limits": {"nvidia.com/gpu": 1}},
        },
    })
}
