//! `capstan plan`: dry run of changes.

mod live;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use capstan_trial::{manifests, plan};
use clap::ValueEnum;

pub(crate) use live::options;

use crate::show;
use crate::source::Source;

#[derive(clap::Args)]
#[command(after_help = "Examples:
  capstan plan -f policy.yaml                     what this file would change in the current cluster
  capstan plan                                    what the operator would change without manifests
  capstan plan --from-cluster facts.json          save a snapshot for a plan elsewhere, without secrets
  capstan plan --snapshot facts.json -f policy.yaml -o markdown

Exit status: 0 nothing would change, 2 something would, 1 the plan failed.")]
pub(crate) struct Args {
    /// Manifests to apply in the dry run; may be repeated
    #[arg(short, long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// Write a snapshot of the cluster to this file, without secrets, and exit
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "snapshot"])]
    from_cluster: Option<PathBuf>,
    #[command(flatten)]
    source: Source,
    /// Output format
    #[arg(short, long, value_enum, default_value = "text")]
    output: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
    Yaml,
    /// For comments in pull requests
    Markdown,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    if let Some(file) = &args.from_cluster {
        let snapshot = args.source.get().await?.redacted();
        snapshot.save(file)?;
        let count: usize = snapshot.objects.values().map(Vec::len).sum();
        show::print(&format!("{count} objects written to {}\n", file.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let wanted = if args.file.is_empty() { Vec::new() } else { manifests::read(&args.file)? };
    let before = args.source.get().await?;
    let (options, notes) = options(&before)?;
    let plan = plan::run(&before, &wanted, options, notes)?;
    match args.output {
        Format::Text => show::print(&plan::text::text(&plan, show::paint()))?,
        Format::Markdown => show::print(&plan::text::markdown(&plan))?,
        Format::Json => show::data(&plan, show::Format::Json)?,
        Format::Yaml => show::data(&plan, show::Format::Yaml)?,
    }
    Ok(if plan.changes.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(crate::EXIT_FINDINGS) })
}
