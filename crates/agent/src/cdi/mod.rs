//! The CDI specs of this node: what a container gets when it asks for a GPU, and keeping that true.
//!
//! [`generate`] looks at the driver's files and device nodes and returns a [`Spec`]; nothing is written. [`write()`] puts
//! one where runtimes find it, [`keep()`] does both whenever driver, libraries or MIG layout change, and takes the spec
//! away when the driver goes. Start reading at `generate.rs`.

mod cli;
mod common;
mod csv;
mod devices;
mod files;
mod generate;
mod hooks;
mod keep;
mod ldcache;
mod modes;
mod plugin;
mod settings;
mod write;
mod wsl;

pub use capstan_cdi::Spec;
pub use cli::{Command, run};
pub use generate::{generate, generate_if_any};
pub use hooks::HookName;
pub use keep::{KeepOptions, keep};
pub use plugin::{Extras, write_for_plugin};
pub use settings::{FeatureFlags, Mode, NameStrategy, Settings};
pub use write::{remove, write};

use std::sync::Arc;

use capstan_hw::gpu::nvidia::Source;
use capstan_hw::gpu::nvidia::driver::Roots;

use crate::roles::{Entry, entry};
use crate::{Cx, Error, Result};

/// What keeps the spec true, in the agent's list.
pub(crate) const ROLE: Entry =
    entry!(capstan_node::CDI_SPECS.name, "Keep the CDI spec of this node true", KeepOptions, keep_here);

/// The command about specs in the agent's list.
pub(crate) const CDI: Entry = entry!("cdi", "Print, list or change CDI specs", CdiOptions, command);

async fn keep_here(options: KeepOptions, cx: Cx) -> Result<()> {
    keep(KeepOptions { output: cx.path(&options.output), ..options }, cx).await
}

#[derive(Debug, Clone, clap::Args)]
struct CdiOptions {
    #[command(subcommand)]
    command: Command,
}

/// A command about specs asks the driver, which may take its time: not on the executor's thread.
async fn command(options: CdiOptions, cx: Cx) -> Result<()> {
    let asked = tokio::task::spawn_blocking(move || {
        let open = |roots: &Roots| match roots == &cx.roots {
            true => Source::shared(&cx.hardware),
            false => {
                let (open, roots): (_, Roots) = (Arc::clone(&cx.open_driver), roots.clone());
                Source::new(move || open(&roots))
            }
        };
        run(&options.command, &open, &cx.root, &mut std::io::stdout())
    });
    asked.await.map_err(|error| Error::Outside(error.to_string()))?
}

#[cfg(test)]
mod tests;
