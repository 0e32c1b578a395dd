//! `cargo xtask bench`: cost of operators on a real API server, measured by the server and the kernel.
//!
//! Everything runs in its own network namespace, isolated from the machine, with Service addresses routed locally. API
//! server and garbage collector are real; nodes, workload controllers and model servers are simulated by this process,
//! so that their latency is not measured. A scenario is a file, and a line in [`Scenario`].

mod arena;
mod audit;
mod chart;
mod cluster;
mod failover;
mod gpu;
mod models;
mod nim;
mod report;
mod restart;
mod simulated;
mod upgrade;
mod usage;
mod watch_cache;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use arena::{Arena, Candidate};
use report::Report;

use crate::cluster::control_plane::Workloads;
use crate::image::order::Layout;

#[derive(clap::Subcommand)]
pub(crate) enum Scenario {
    /// Many NIMServices at once: time, requests per service, requests while idle, memory
    Nim(nim::Args),
    /// A ClusterPolicy over many nodes, and a node that joins
    Gpu(gpu::Args),
    /// Restart of the operator with all objects in place
    Restart(restart::Args),
    /// Failover of the leader, by SIGTERM and by SIGKILL
    Failover(failover::Args),
    /// Driver upgrade on all nodes
    Upgrade(upgrade::Args),
}

/// Options of all scenarios.
#[derive(clap::Args, Clone)]
struct Common {
    /// Measure this binary instead of a build of this tree; several take turns, step by step
    #[arg(long, value_name = "FILE")]
    binary: Vec<PathBuf>,
    /// Command line of the binary at the same position: words with {kubeconfig}, {health} and {name}. KUBECONFIG is set
    /// as well
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    args: Vec<String>,
    /// Compare with an earlier run: its JSON file
    #[arg(long, value_name = "FILE")]
    against: Vec<PathBuf>,
    /// Idle seconds, before and after
    #[arg(long, default_value = "60", value_name = "SECONDS")]
    idle: u64,
}

impl Common {
    /// Operators, each on its own control plane.
    async fn arenas(&self, root: &Path, workloads: Workloads) -> Result<Vec<Arena>> {
        cluster::network()?;
        let mut arenas = Vec::new();
        for (number, candidate) in (0..).zip(self.candidates(root)?) {
            arenas.push(Arena::start(root, number, &candidate, workloads).await?);
        }
        Ok(arenas)
    }

    /// Programs with unique names.
    fn candidates(&self, root: &Path) -> Result<Vec<Candidate>> {
        let own = [root.join(OWN)];
        let binaries = if self.binary.is_empty() { &own[..] } else { &self.binary[..] };
        let mut all: Vec<Candidate> = Vec::new();
        for (place, binary) in binaries.iter().enumerate() {
            let file = binary.file_name().unwrap_or_default().to_string_lossy();
            let same = all.iter().filter(|one| one.name.starts_with(&*file)).count();
            let name = if same == 0 { file.into_owned() } else { format!("{file}-{}", same + 1) };
            let binary = std::fs::canonicalize(binary).with_context(|| format!("no {}", binary.display()))?;
            all.push(Candidate { name, binary, args: self.args.get(place).cloned().filter(|args| !args.is_empty()) });
        }
        Ok(all)
    }
}

/// The shipped build of this tree.
const OWN: &str = "target/image/dist/capstan";
/// The release build of this command: the simulation should use as little CPU as possible.
const PLAYER: &str = "target/release/xtask";

/// Set inside the network namespace.
const INSIDE: &str = "CAPSTAN_BENCH_INSIDE";

pub(crate) fn run(root: &Path, scenario: &Scenario) -> Result<()> {
    let common = match scenario {
        Scenario::Nim(args) => &args.common,
        Scenario::Gpu(args) => &args.common,
        Scenario::Restart(args) => &args.common,
        Scenario::Failover(args) => &args.common,
        Scenario::Upgrade(args) => &args.common,
    };
    if std::env::var_os(INSIDE).is_none() {
        crate::cargo(root, &["build", "--release", "--package", "xtask"])?;
        if common.binary.is_empty() {
            crate::image::shipped(root, &Layout::Traced)?;
        }
        return enter(&root.join(PLAYER));
    }
    println!("load before: {}", std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match scenario {
            Scenario::Nim(args) => nim::run(root, args).await,
            Scenario::Gpu(args) => gpu::run(root, args).await,
            Scenario::Restart(args) => restart::run(root, args).await,
            Scenario::Failover(args) => failover::run(root, args).await,
            Scenario::Upgrade(args) => upgrade::run(root, args).await,
        }
    })
}

/// Restarts this command in its own network namespace.
fn enter(program: &Path) -> Result<()> {
    let status = Command::new("unshare")
        .args(["--map-root-user", "--net"])
        .arg(program)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .status()
        .context("cannot run unshare, which comes with util-linux")?;
    if !status.success() {
        bail!("the benchmark failed");
    }
    Ok(())
}
