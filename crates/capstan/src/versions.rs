//! `capstan versions`: desired and running images, drivers and versions.

use std::process::ExitCode;

use anyhow::Result;
use capstan_inspect::versions;

use crate::show::{self, Format};
use crate::source::Source;

const EXAMPLES: &str = "\
Examples:
  capstan versions
  capstan versions -o json | jq '.components[] | select(.differs)'
  capstan versions --snapshot capstan-gather.tar.gz";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,
    /// Output format
    #[arg(short, long, value_enum, default_value = "text")]
    output: Format,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let snapshot = args.source.of_kinds(&versions::kinds()).await?;
    let found = versions::versions(&snapshot);
    match args.output {
        Format::Text => show::print(&versions::draw(&found, show::paint()))?,
        format => show::data(&found, format)?,
    }
    Ok(ExitCode::SUCCESS)
}
