//! `capstan gather`: writes a support archive, without secrets.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use capstan_inspect::gather::{self, Size};

use crate::show;
use crate::source::Source;

const EXAMPLES: &str = "\
Examples:
  capstan gather                                   # writes capstan-gather.tar.gz
  capstan gather -o /tmp/case-42.tar.gz --max-size 10MiB
  capstan status --snapshot capstan-gather.tar.gz  # other commands read it, offline

Values of Secrets, environment variables that look like secrets, and keys and tokens in logs are redacted.";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,
    /// Output file
    #[arg(short, long, value_name = "FILE", default_value = "capstan-gather.tar.gz")]
    output: PathBuf,
    /// Maximum size: the oldest logs are dropped first
    #[arg(long, value_name = "SIZE", default_value = "50MiB")]
    max_size: Size,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let snapshot = match &args.source.snapshot {
        Some(_) => args.source.get().await?.redacted(),
        None => gather::read(&args.source.client().await?).await?,
    };
    let done = gather::archive(snapshot, &args.output, args.max_size.0)?;
    show::print(&format!("{}\n", args.output.display()))?;
    eprintln!("{} objects, {} logs, {}", done.objects, done.logs, done.size);
    for note in done.notes {
        eprintln!("{note}");
    }
    Ok(ExitCode::SUCCESS)
}
