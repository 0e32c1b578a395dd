//! `capstan doctor`: diagnoses a cluster: root causes with evidence and a fix.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use capstan_inspect::doctor;

use crate::show::{self, Format};
use crate::source::Source;

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,
    /// Chart values to validate as well
    #[arg(long, value_name = "FILE")]
    values: Option<PathBuf>,
    /// Grace period in seconds: shorter waits without another symptom are not reported
    #[arg(long, alias = "patience", value_name = "SECONDS", default_value = "30")]
    grace_period: u64,
    /// Output format
    #[arg(short, long, value_enum, default_value = "text")]
    output: Format,
}

const EXAMPLES: &str = "\
Examples:
  capstan doctor                              diagnose the current cluster
  capstan doctor --snapshot support.tar.gz    the same for an archive of `capstan gather`, offline
  capstan doctor --values values.yaml         check values for the chart before they are installed
  capstan doctor -o json | jq '.causes[].rule'

Exit status: 0 healthy, 2 something is wrong, 1 the cluster could not be read.";

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let values = match &args.values {
        Some(file) => {
            let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
            doctor::values::check(&file.display().to_string(), &text)
        }
        None => Vec::new(),
    };
    let snapshot = args.source.get().await?;
    let report = doctor::diagnose(&snapshot, Duration::from_secs(args.grace_period), values);
    match args.output {
        Format::Text => show::print(&report.text(show::paint()))?,
        format => show::data(&report, format)?,
    }
    Ok(if report.healthy { ExitCode::SUCCESS } else { ExitCode::from(crate::EXIT_FINDINGS) })
}
