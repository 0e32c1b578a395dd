//! Failover: how long there is no leader after the leader ends, by SIGTERM and by SIGKILL.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use super::arena::{Arena, Play, Step, play};
use super::cluster::{FIRST, SECOND};
use super::watch_cache::WatchCache;
use super::{Common, Report};
use crate::cluster::control_plane::Workloads;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) common: Common,
}

/// Timeout until another operator leads.
const DEADLINE: Duration = Duration::from_secs(120);
/// Limits in seconds: SIGTERM releases the lease; after SIGKILL it has to expire first.
const AFTER_TERM: f64 = 5.0;
const AFTER_KILL: f64 = 20.0;

pub(super) async fn run(root: &Path, args: &Args) -> Result<()> {
    let mut plays = Vec::new();
    for arena in args.common.arenas(root, Workloads::Simulated).await? {
        let leases = WatchCache::follow(&arena.cluster.client, "/apis/coordination.k8s.io/v1/leases");
        plays.push(Failover { arena, leases });
    }
    let columns = play(plays, args.common.idle).await?;
    let mut report = Report::new("failover", "Leader failover", columns);
    report.limit("another leads after SIGTERM", AFTER_TERM);
    report.limit("another leads after SIGKILL", AFTER_KILL);
    report.finish(root, &args.common.against)
}

struct Failover {
    arena: Arena,
    leases: WatchCache,
}

impl Play for Failover {
    const STEPS: &'static [Step] = &[Step::Do("TERM"), Step::Do("KILL")];

    fn arena(&mut self) -> &mut Arena {
        &mut self.arena
    }

    /// The leader is the first process in the first step, the second process in the other.
    async fn step(&mut self, signal: &'static str) -> Result<()> {
        let (leader, other) = if signal == "TERM" { (FIRST, SECOND) } else { (SECOND, FIRST) };
        let leads = |leases: &super::watch_cache::Objects| holder(leases).is_some();
        self.leases.until(DEADLINE, "somebody leads", leads).await?;
        let standing_by = self.arena.launch(other)?;
        // A new standby may not have observed the lease yet.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let before = self.leases.read(holder).context("nobody leads")?;
        let begin = Instant::now();
        self.arena.process(leader).signal(signal)?;
        let another = |leases: &super::watch_cache::Objects| holder(leases).is_some_and(|now| now != before);
        self.leases.until(DEADLINE, "another one leads", another).await?;
        let name = format!("another leads after SIG{signal}");
        self.arena.column.main(&name, "s", begin.elapsed().as_secs_f64());
        self.arena.pid = standing_by;
        self.arena.process(leader).ended()
    }
}

/// Holder of the operators' lease. Those of the control plane and of nodes are in other namespaces.
fn holder(leases: &super::watch_cache::Objects) -> Option<String> {
    let of_operators = |key: &str| !key.starts_with("kube-");
    let holder = |lease: &Value| lease["spec"]["holderIdentity"].as_str().map(str::to_owned);
    leases
        .iter()
        .filter(|(key, _)| of_operators(key))
        .find_map(|(_, lease)| holder(lease))
        .filter(|who| !who.is_empty())
}
