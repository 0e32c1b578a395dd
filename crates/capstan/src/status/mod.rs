//! `capstan status`: the status of the cluster as a tree with a summary line. With `--watch`, as it changes.

mod watch;

use std::process::ExitCode;

use anyhow::Result;
use capstan_inspect::status;

use crate::show::{self, Format};
use crate::source::Source;

const EXAMPLES: &str = "\
Examples:
  capstan status                                  # the cluster of your kubeconfig
  capstan status --watch                          # full screen, until q
  capstan status -o json | jq .verdict.text       # for programs
  capstan status --snapshot capstan-gather.tar.gz # what an archive tells
  until capstan status >/dev/null; do sleep 5; done

Ends with 0 if everything is ready, with 2 if something is not, with 1 if that cannot be told.";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,
    /// Output format
    #[arg(short, long, value_enum, default_value = "text")]
    output: Format,
    /// Watch for changes: full screen on a terminal, otherwise one line per change of the summary
    #[arg(short, long, conflicts_with = "snapshot")]
    watch: bool,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    if args.watch {
        return watch::run(&args.source, args.output).await;
    }
    let snapshot = args.source.of_kinds(&status::kinds()).await?;
    let tree = status::tree(&snapshot);
    match args.output {
        Format::Text => show::print(&status::text::draw(&tree, show::paint()))?,
        format => show::data(&tree, format)?,
    }
    Ok(code(tree.verdict.ready))
}

fn code(ready: bool) -> ExitCode {
    if ready { ExitCode::SUCCESS } else { ExitCode::from(crate::EXIT_FINDINGS) }
}
