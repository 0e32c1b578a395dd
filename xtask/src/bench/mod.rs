//! `cargo xtask bench`: what the release operator costs on a real API server, as that server and the kernel count it.
//!
//! Everything runs in a network of its own, so that nothing on the machine is in the way and addresses of Services lead
//! here: API server, controllers and scheduler are real, nodes and model servers are played by this process. A scenario
//! is a file, and a line in [`Scenario`].

mod audit;
mod cluster;
mod memory;
mod nim;
mod players;
mod report;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

#[derive(clap::Subcommand)]
pub(crate) enum Scenario {
    /// Many NIMServices at once: requests for each, requests while nothing changes, memory
    Nim(nim::Args),
}

/// What all scenarios take.
#[derive(clap::Args, Clone)]
struct Common {
    /// Measure this binary instead of a release build of this tree
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Seconds without changes, before and after
    #[arg(long, default_value = "60", value_name = "SECONDS")]
    idle: u64,
}

/// Names the binary, inside the network.
const INSIDE: &str = "CAPSTAN_BENCH_INSIDE";

pub(crate) fn run(root: &Path, scenario: &Scenario) -> Result<()> {
    let Scenario::Nim(args) = scenario;
    match std::env::var_os(INSIDE) {
        None => enter(&binary(root, &args.common)?),
        Some(binary) => nim::run(root, args, Path::new(&binary)),
    }
}

/// The binary to measure.
fn binary(root: &Path, common: &Common) -> Result<PathBuf> {
    if let Some(binary) = &common.binary {
        return std::fs::canonicalize(binary).with_context(|| format!("no {}", binary.display()));
    }
    crate::cargo(root, &["build", "--release", "--package", "capstan"])?;
    Ok(root.join("target/release/capstan"))
}

/// Starts this command again in a network of its own.
fn enter(binary: &Path) -> Result<()> {
    let args = std::env::args_os().skip(1);
    let status = Command::new("unshare")
        .args(["--map-root-user", "--net"])
        .arg(std::env::current_exe()?)
        .args(args)
        .env(INSIDE, binary)
        .status()
        .context("cannot run unshare, which comes with util-linux")?;
    if !status.success() {
        bail!("the benchmark failed");
    }
    Ok(())
}
