//! `capstan sim`: a fleet in this process, in virtual time, and the operator itself on it: what an install, an upgrade or a
//! failure would be like before it happens.

mod chart;
mod fleet;
mod jobs;
mod report;
mod scenario;
mod tally;
#[cfg(test)]
mod tests;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use fleet::{Fleet, Time};
use report::{Budget, Report, Requests};
use scenario::{Choice, Scenario};
use world::World;

use crate::show::{self, Format, Paint};
use crate::snapshot::{Snapshot, Source};

#[derive(clap::Args)]
#[command(after_help = "Examples:
  capstan sim install --nodes 1000                          from bare nodes to ready
  capstan sim driver-upgrade -f examples/sim/fleet.yaml     a driver for 5,000 nodes, 5 % at a time
  capstan sim failures -f fleet.yaml --chart upgrade.svg    one that does not load on some of them
  capstan sim outage --from-cluster --driver 580.95.05      on a copy of the current cluster

Nothing is sent to any cluster, except that --from-cluster reads the current one.
Exit status: 0 all nodes serve at the end, 2 some do not or the budget was exceeded, 1 it cannot be told.")]
pub(crate) struct Args {
    /// What happens
    #[arg(value_enum)]
    scenario: Scenario,
    /// The fleet
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Nodes, where no file describes the fleet
    #[arg(long, default_value = "100", conflicts_with = "file", value_parser = clap::value_parser!(u16).range(1..))]
    nodes: u16,
    /// Begin with a copy of the cluster, or with --snapshot of what a file holds
    #[arg(long, conflicts_with = "nodes")]
    from_cluster: bool,
    #[command(flatten)]
    source: Source,
    /// Version of the new driver [default: next]
    #[arg(long, value_name = "VERSION")]
    driver: Option<String>,
    /// Pool whose operating system changes; all when absent
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    /// How much time passes
    #[arg(long, default_value = "24h", value_name = "TIME")]
    until: Time,
    /// Write a chart to this file
    #[arg(long, value_name = "FILE.svg")]
    chart: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value = "text")]
    output: Format,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let fleet = match &args.file {
        Some(file) => Fleet::read(file)?,
        None => Fleet::of(args.nodes.into()),
    };
    let restored = args.from_cluster || args.source.snapshot.is_some();
    if restored && args.scenario == Scenario::Install {
        return Err(anyhow!("a cluster that is there is not installed again: leave --from-cluster and --snapshot out"));
    }
    let snapshot = if restored { Some(args.source.get().await?) } else { None };
    let choice =
        Choice { scenario: args.scenario, driver: args.driver, pool: args.pool, until: args.until.0.max(MINUTE) };
    let report = simulate(fleet, snapshot.as_ref(), &choice)?;
    if let Some(file) = &args.chart {
        let write = std::fs::write(file, chart::svg(&report));
        write.with_context(|| format!("cannot write the chart to {}", file.display()))?;
    }
    match args.output {
        Format::Text => show::print(&report.text(Paint::detect()))?,
        format => show::data(&report, format)?,
    }
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::from(crate::FOUND) })
}

/// Less would be over before anything was looked at.
const MINUTE: Duration = Duration::from_secs(60);

/// Plays it on a thread of its own, where time passes only when there is nothing to do.
fn simulate(fleet: Fleet, snapshot: Option<&Snapshot>, choice: &Choice) -> Result<Report> {
    choice.check()?;
    let work = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
        let report = runtime.block_on(played(fleet, snapshot, choice));
        // To take thousands of nodes apart would take another second, and the process ends now.
        std::mem::forget(runtime);
        report
    };
    std::thread::scope(|scope| scope.spawn(work).join().map_err(|_| anyhow!("the simulation panicked"))?)
}

async fn played(fleet: Fleet, snapshot: Option<&Snapshot>, choice: &Choice) -> Result<Report> {
    let begin = Instant::now();
    let world = World::start(fleet, snapshot, choice.until).await?;
    let outcome = scenario::play(&world, choice, snapshot.is_some()).await?;
    let counted = world.tally.result();
    let budget = outcome.budget.map(|allowed| Budget { allowed, most: counted.most, mean: counted.mean });
    let requests = Requests {
        reads: world.traffic.reads.load(Ordering::Relaxed),
        writes: world.traffic.writes.load(Ordering::Relaxed),
    };
    Ok(Report {
        scenario: choice.scenario,
        nodes: counted.nodes,
        virtual_seconds: choice.until.as_secs(),
        real_seconds: begin.elapsed().as_secs_f64(),
        verdict: outcome.verdict,
        timeline: counted.moments,
        budget,
        node_hours_lost: counted.node_hours,
        gpu_hours_lost: counted.gpu_hours,
        jobs: outcome.jobs,
        requests,
        end: counted.end,
        samples: counted.samples,
    })
}
