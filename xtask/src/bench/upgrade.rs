//! Driver upgrade on all nodes: duration and cost of the rollout. Controllers and scheduler are real, as they create
//! the new pods; kubelets are simulated, and start and stop pods at once.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::arena::{Arena, NAMESPACE, Play, Step, play};
use super::simulated::{self, JSON, MERGE};
use super::watch_cache::{Objects, WatchCache};
use super::{Common, Report};
use crate::cluster::control_plane::Workloads;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Number of nodes
    #[arg(long, default_value = "100", value_name = "NUMBER")]
    nodes: usize,
    /// maxUnavailable, a number or a percentage
    #[arg(long, default_value = "25%", value_name = "AMOUNT")]
    max_unavailable: String,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Timeout of a step.
const DEADLINE: Duration = Duration::from_secs(1800);
const POLICY: &str = "/apis/nvidia.com/v1/clusterpolicies/cluster-policy";
const POLICIES: &str = "/apis/nvidia.com/v1/clusterpolicies";
/// Label with the driver upgrade state of a node.
const STATE: &str = "nvidia.com/gpu-driver-upgrade-state";
const OLD: &str = "580.65.06";
const NEW: &str = "580.82.07";

pub(super) async fn run(root: &Path, args: &Args) -> Result<()> {
    let mut plays = Vec::new();
    for arena in args.common.arenas(root, Workloads::Real).await? {
        let follow = |path: &str| WatchCache::follow(&arena.cluster.client, path);
        let pods = follow(&format!("/api/v1/namespaces/{NAMESPACE}/pods"));
        simulated::kubelets(&arena.cluster.client, pods.clone());
        let (nodes, policies) = (follow("/api/v1/nodes"), follow(POLICIES));
        let unavailable = args.max_unavailable.clone();
        plays.push(Upgrade { arena, nodes, pods, policies, count: args.nodes, unavailable });
    }
    let columns = play(plays, args.common.idle).await?;
    let title = format!("A driver upgrade of {} nodes, {} at once", args.nodes, args.max_unavailable);
    let mut report = Report::new(&format!("upgrade-{}", args.nodes), &title, columns);
    report.limit_idle(args.common.idle);
    report.finish(root, &args.common.against)
}

struct Upgrade {
    arena: Arena,
    nodes: WatchCache,
    pods: WatchCache,
    policies: WatchCache,
    count: usize,
    unavailable: String,
}

impl Play for Upgrade {
    const STEPS: &'static [Step] = &[Step::Do("install"), Step::Do("upgrade"), Step::Idle];

    fn arena(&mut self) -> &mut Arena {
        &mut self.arena
    }

    async fn step(&mut self, name: &'static str) -> Result<()> {
        if name == "install" {
            let names = (0..self.count).map(|number| format!("gpu-{number}")).collect();
            simulated::gpu_nodes(&self.arena.cluster, names).await?;
            self.arena.begin()?;
            self.arena.cluster.send("POST", POLICIES, JSON, &policy(&self.unavailable)).await?;
        } else {
            self.arena.begin()?;
            let change = json!({"spec": {"driver": {"version": NEW}}});
            self.arena.cluster.send("PATCH", POLICY, MERGE, &change).await?;
        }
        self.until_on_all(if name == "install" { OLD } else { NEW }).await?;
        let arena = &mut self.arena;
        arena.column.main(&format!("{name}: all nodes are done after"), "s", arena.seconds());
        let requests = arena.wait_until_idle().await?;
        arena.column.requests(name, &requests);
        arena.column.main(&format!("{name}: work until silent"), "CPU s", arena.cpu()?);
        arena.column.main(&format!("{name}: requests for each node"), "", requests.total() as f64 / self.count as f64);
        arena.note_memory(&format!("after: {name}"))
    }
}

impl Upgrade {
    /// Waits until that driver runs on every node, all are uncordoned, and the policy is ready.
    async fn until_on_all(&self, version: &str) -> Result<()> {
        let runs = |pod: &Value| {
            let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
            let images = containers.filter_map(|container| container["image"].as_str());
            let ours = pod["metadata"]["labels"]["app.kubernetes.io/component"] == "nvidia-driver";
            ours && pod["status"]["phase"] == "Running"
                && pod["metadata"]["deletionTimestamp"].is_null()
                && images.into_iter().any(|image| image.contains(version))
        };
        self.pods.until_count(DEADLINE, "drivers run", self.count, runs).await?;
        let done = |node: &Value| {
            let state = node["metadata"]["labels"][STATE].as_str().unwrap_or("upgrade-done");
            state == "upgrade-done" && node["spec"]["unschedulable"] != true
        };
        self.nodes.until_count(DEADLINE, "nodes are done", self.count, done).await?;
        let ready = |all: &Objects| all.values().all(|policy| policy["status"]["state"] == "ready");
        self.policies.until(DEADLINE, "the policy is ready", ready).await
    }
}

fn policy(unavailable: &str) -> Value {
    let off = json!({"enabled": false});
    let upgrade = json!({"autoUpgrade": true, "maxParallelUpgrades": 0, "maxUnavailable": unavailable});
    json!({
        "apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "cluster-policy"},
        "spec": {
            "operator": {}, "daemonsets": {}, "toolkit": {}, "devicePlugin": {}, "gfd": {}, "nodeStatusExporter": {},
            // Fewer pods, the same upgrade.
            "dcgm": off, "dcgmExporter": off, "migManager": off,
            "driver": {
                "repository": "example.com", "image": "driver", "version": OLD, "upgradePolicy": upgrade,
            },
        },
    })
}
