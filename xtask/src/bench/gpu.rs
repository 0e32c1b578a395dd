//! One ClusterPolicy over many nodes: time until all are labelled and the policy is ready, whether that status is true,
//! latency of a joining node, cost, and load while idle.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::arena::{Arena, NAMESPACE, Play, Step, play};
use super::simulated::{self, JSON};
use super::watch_cache::WatchCache;
use super::{Common, Report};
use crate::cluster::control_plane::Workloads;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Number of nodes
    #[arg(long, default_value = "1000", value_name = "NUMBER")]
    nodes: usize,
    /// Also run a driver and a validator pod on each of them, and measure memory again
    #[arg(long)]
    pods: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Request budget per node, and for the rest.
const REQUESTS: f64 = 1.2;
const REST: f64 = 150.0;
/// Timeout of a step.
const DEADLINE: Duration = Duration::from_secs(900);

const POLICIES: &str = "/apis/nvidia.com/v1/clusterpolicies";
/// Label that an operator sets on GPU nodes.
const PRESENT: &str = "nvidia.com/gpu.present";

pub(super) async fn run(root: &Path, args: &Args) -> Result<()> {
    let mut plays = Vec::new();
    for arena in args.common.arenas(root, Workloads::Simulated).await? {
        plays.push(Gpu { fleet: Fleet::new(&arena), arena, nodes: args.nodes, pods: args.pods });
    }
    let columns = play(plays, args.common.idle).await?;
    let title = format!("A ClusterPolicy over {} nodes", args.nodes);
    let mut report = Report::new(&format!("gpu-{}", args.nodes), &title, columns);
    report.limit("requests for each node", REQUESTS + REST / args.nodes as f64);
    report.limit_idle(args.common.idle);
    let labelled = report.columns.first().and_then(|column| column.value("nodes labelled when it says ready"));
    report.expect(labelled == Some(args.nodes as f64), || "the policy says that it is ready, and is not".into());
    report.finish(root, &args.common.against)
}

struct Gpu {
    arena: Arena,
    fleet: Fleet,
    nodes: usize,
    pods: bool,
}

impl Play for Gpu {
    const STEPS: &'static [Step] = &[
        Step::Before,
        Step::Do("add nodes"),
        Step::Do("create the policy"),
        Step::Do("add a node"),
        Step::Do("run pods"),
        Step::Idle,
    ];

    fn arena(&mut self) -> &mut Arena {
        &mut self.arena
    }

    async fn step(&mut self, name: &'static str) -> Result<()> {
        if name == "run pods" && !self.pods {
            return Ok(());
        }
        let arena = &mut self.arena;
        arena.begin()?;
        match name {
            "add nodes" => self.fleet.add(arena, self.nodes).await?,
            "create the policy" => self.policy().await?,
            "add a node" => {
                simulated::gpu_nodes(&arena.cluster, vec!["late".into()]).await?;
                self.fleet.until_labelled(self.nodes + 1).await?;
                arena.column.main("a node that joins is labelled after", "s", arena.seconds());
            }
            _ => self.fleet.run_pods(arena).await?,
        }
        let arena = &mut self.arena;
        let requests = arena.wait_until_idle().await?;
        arena.column.requests(name, &requests);
        arena.column.detail(&format!("{name}: work"), "CPU s", arena.cpu()?);
        arena.column.detail(&format!("{name}: requests"), "", requests.total() as f64);
        arena.note_memory(&format!("after: {name}"))?;
        if name == "create the policy" {
            let work = arena.cpu()?;
            arena.column.main("work until silent", "CPU s", work);
            arena.column.main("requests until silent", "", requests.total() as f64);
            arena.column.detail("requests for each node", "", requests.total() as f64 / self.nodes as f64);
            arena.column.detail("silent after", "s", arena.seconds_to_last(&requests));
        }
        Ok(())
    }
}

impl Gpu {
    /// The order of the two shows whether the reported status is true.
    async fn policy(&mut self) -> Result<()> {
        self.fleet.create(&self.arena).await?;
        let (fleet, arena, nodes) = (&self.fleet, &self.arena, self.nodes);
        let labelled = async {
            fleet.until_labelled(nodes).await?;
            anyhow::Ok(arena.seconds())
        };
        let ready = async {
            fleet.until_ready().await?;
            anyhow::Ok((arena.seconds(), fleet.labelled()))
        };
        let (labelled, (ready, then)) = futures::try_join!(labelled, ready)?;
        let column = &mut self.arena.column;
        column.main("all nodes are labelled after", "s", labelled);
        column.main("the policy says ready after", "s", ready);
        column.detail("nodes labelled when it says ready", "", then as f64);
        Ok(())
    }
}

/// Nodes and their pods on one control plane.
pub(super) struct Fleet {
    nodes: WatchCache,
    sets: WatchCache,
    policies: WatchCache,
}

impl Fleet {
    pub(super) fn new(arena: &Arena) -> Self {
        let follow = |path: &str| WatchCache::follow(&arena.cluster.client, path);
        let sets = follow(&format!("/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"));
        let fleet = Self { nodes: follow("/api/v1/nodes"), sets, policies: follow(POLICIES) };
        simulated::daemon_sets(&arena.cluster.client, fleet.sets.clone(), fleet.nodes.clone());
        fleet
    }

    /// Adds nodes.
    pub(super) async fn add(&self, arena: &Arena, count: usize) -> Result<()> {
        simulated::gpu_nodes(&arena.cluster, (0..count).map(|number| format!("gpu-{number}")).collect()).await?;
        self.nodes.until_count(DEADLINE, "nodes are there", count, |_| true).await
    }

    /// Creates the policy.
    pub(super) async fn create(&self, arena: &Arena) -> Result<()> {
        let policy = json!({
            "apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "cluster-policy"},
            "spec": {
                "operator": {}, "daemonsets": {}, "driver": {}, "toolkit": {}, "devicePlugin": {}, "dcgm": {},
                "dcgmExporter": {}, "gfd": {}, "nodeStatusExporter": {},
            },
        });
        arena.cluster.send("POST", POLICIES, JSON, &policy).await.map(drop)
    }

    fn labelled(&self) -> usize {
        self.nodes.count(is_labelled)
    }

    pub(super) async fn until_labelled(&self, count: usize) -> Result<()> {
        self.nodes.until_count(DEADLINE, "nodes are labelled", count, is_labelled).await
    }

    pub(super) async fn until_ready(&self) -> Result<()> {
        let ready = |policy: &Value| policy["status"]["state"] == "ready";
        self.policies.until_count(DEADLINE, "the policy is ready", 1, ready).await
    }

    /// Runs a driver and a validator pod on each node.
    async fn run_pods(&self, arena: &Arena) -> Result<()> {
        let wanted = |set: &&Value| {
            let labels = &set["spec"]["template"]["metadata"]["labels"];
            labels["app.kubernetes.io/component"] == "nvidia-driver" || labels["app"] == "nvidia-operator-validator"
        };
        let sets: Vec<Value> = self.sets.read(|all| all.values().filter(wanted).cloned().collect());
        let nodes: Vec<(String, Value)> = self.nodes.read(|all| {
            let labels = |node: &Value| node["metadata"]["labels"].clone();
            all.iter().map(|(name, node)| (name.trim_start_matches('/').to_owned(), labels(node))).collect()
        });
        for set in sets {
            let selector = &set["spec"]["template"]["spec"]["nodeSelector"];
            let here: Vec<String> = nodes
                .iter()
                .filter(|(_, labels)| simulated::selects(selector, labels))
                .map(|(name, _)| name.clone())
                .collect();
            simulated::each(here, |node| {
                let (client, set) = (arena.cluster.client.clone(), set.clone());
                async move { simulated::run_pod(&client, &set, &node).await }
            })
            .await?;
        }
        Ok(())
    }
}

fn is_labelled(node: &Value) -> bool {
    node["metadata"]["labels"][PRESENT] == "true"
}
