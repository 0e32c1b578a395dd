//! `capstan status`: the whole cluster as one tree, its first line the verdict.
//!
//! [`tree`] decides from a snapshot and nothing else, [`text`] draws, [`watch`] looks again.

mod models;
mod nodes;
pub(crate) mod operator;
mod resources;
mod text;
mod tree;
mod watch;

#[cfg(test)]
mod tests;

use std::process::ExitCode;

use anyhow::Result;

use crate::show::{self, Format, Paint};
use crate::snapshot::{self, Source};

pub(crate) use tree::tree;

const EXAMPLES: &str = "\
Examples:
  capstan status                                  # the cluster of your kubeconfig
  capstan status --watch                          # full screen, until q
  capstan status -o json | jq .verdict.text       # for programs
  capstan status --snapshot capstan-gather.tar.gz # what an archive tells
  until capstan status >/dev/null; do sleep 5; done

Ends with 0 if everything is ready, with 2 if something is not, with 1 if that cannot be told.";

/// Kinds that a status is made of: the others need not be read for it.
const KINDS: &[&str] = &[
    "ClusterPolicy.nvidia.com",
    "NVIDIADriver.nvidia.com",
    "GPUCluster.nvidia.com",
    "NIMService.apps.nvidia.com",
    "NIMCache.apps.nvidia.com",
    "NIMPipeline.apps.nvidia.com",
    "NIMBuild.apps.nvidia.com",
    "CustomResourceDefinition.apiextensions.k8s.io",
    "Deployment.apps",
    "Lease.coordination.k8s.io",
    "Node",
    "Pod",
];

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,
    /// Output format
    #[arg(short, long, value_enum, default_value = "text")]
    output: Format,
    /// Go on looking: full screen on a terminal, elsewhere a line whenever the verdict changes
    #[arg(short, long, conflicts_with = "snapshot")]
    watch: bool,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    if args.watch {
        return watch::run(&args.source, args.output).await;
    }
    let snapshot = args.source.look(KINDS).await?;
    let tree = tree(&snapshot);
    match args.output {
        Format::Text => show::print(&text::draw(&tree, Paint::detect()))?,
        format => show::data(&tree, format)?,
    }
    Ok(code(tree.verdict.ready))
}

/// The text of a snapshot's status, without colours.
pub(crate) fn plain(snapshot: &snapshot::Snapshot) -> String {
    text::draw(&tree(snapshot), Paint::none())
}

fn code(ready: bool) -> ExitCode {
    if ready { ExitCode::SUCCESS } else { ExitCode::from(crate::FOUND) }
}
