//! `capstan sim`: simulates an install, an upgrade or a failure on a virtual fleet.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use capstan_trial::fleet::{self, Choice, Fleet, Scenario, Time};
use clap::ValueEnum;
use clap::builder::PossibleValue;

use crate::show::{self, Format};
use crate::source::Source;

#[derive(clap::Args)]
#[command(after_help = "Examples:
  capstan sim install --nodes 1000                          from bare nodes to ready
  capstan sim driver-upgrade -f examples/sim/fleet.yaml     driver upgrade on 5,000 nodes, 5 % at a time
  capstan sim failures -f fleet.yaml --chart upgrade.svg    a driver that fails on some of them
  capstan sim outage --from-cluster --driver 580.95.05      on a copy of the current cluster

Nothing is sent to any cluster, except that --from-cluster reads the current one.
Exit status: 0 all nodes serve at the end, 2 some do not or the budget was exceeded, 1 it cannot be told.")]
pub(crate) struct Args {
    /// Scenario
    #[arg(value_enum)]
    scenario: Chosen,
    /// Fleet file
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Number of nodes, without a fleet file
    #[arg(long, default_value = "100", conflicts_with = "file", value_parser = clap::value_parser!(u16).range(1..))]
    nodes: u16,
    /// Start from a copy of the cluster, or with --snapshot of a file
    #[arg(long, conflicts_with = "nodes")]
    from_cluster: bool,
    #[command(flatten)]
    source: Source,
    /// New driver version [default: next]
    #[arg(long, value_name = "VERSION")]
    driver: Option<String>,
    /// Pool whose operating system is upgraded; all if absent
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    /// Simulated time
    #[arg(long, default_value = "24h", value_name = "TIME")]
    until: Time,
    /// Write an SVG chart to this file
    #[arg(long, value_name = "FILE.svg")]
    chart: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value = "text")]
    output: Format,
}

/// A scenario as an argument.
#[derive(Clone, Copy)]
struct Chosen(Scenario);

impl ValueEnum for Chosen {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [Chosen; Scenario::ALL.len()] = {
            let mut all = [Chosen(Scenario::Install); Scenario::ALL.len()];
            let mut at = 0;
            while at < all.len() {
                all[at] = Chosen(Scenario::ALL[at]);
                at += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, about) = self.0.description();
        Some(PossibleValue::new(name).help(about))
    }
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let fleet = match &args.file {
        Some(file) => Fleet::read(file)?,
        None => Fleet::of(args.nodes.into()),
    };
    let restored = args.from_cluster || args.source.snapshot.is_some();
    let snapshot = if restored { Some(args.source.get().await?) } else { None };
    let options = match &snapshot {
        Some(snapshot) => crate::plan::options(snapshot)?.0,
        None => crate::operator::in_process(),
    };
    let choice = Choice { scenario: args.scenario.0, driver: args.driver, pool: args.pool, until: args.until.0 };
    let report = fleet::simulate(fleet, snapshot.as_ref(), options, &choice)?;
    if let Some(file) = &args.chart {
        let write = std::fs::write(file, fleet::svg(&report));
        write.with_context(|| format!("cannot write the chart to {}", file.display()))?;
    }
    match args.output {
        Format::Text => show::print(&report.text(show::paint()))?,
        format => show::data(&report, format)?,
    }
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::from(crate::EXIT_FINDINGS) })
}
