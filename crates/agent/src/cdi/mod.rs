//! The CDI specs of this node: what a container with a GPU gets.
//!
//! [`generate`] inspects the driver's files and device nodes and returns a [`Spec`]; it writes nothing. [`write()`]
//! writes it where runtimes find it, [`maintain()`] does both whenever driver, libraries or MIG layout change, and removes
//! the spec with the driver. Start reading at `generate.rs`.

mod cli;
mod common;
mod csv;
mod devices;
mod files;
mod generate;
mod hooks;
mod ldcache;
mod maintain;
mod modes;
mod plugin;
mod settings;
mod write;
mod wsl;

pub use capstan_cdi::Spec;
pub use cli::{Command, run};
pub use generate::{generate, generate_if_any};
pub use hooks::HookName;
pub use maintain::{MaintainOptions, maintain};
pub use plugin::{Extras, write_for_plugin};
pub use settings::{FeatureFlags, Mode, NameStrategy, Settings};
pub use write::{remove, write};

use std::sync::Arc;

use capstan_hw::gpu::nvidia::Source;
use capstan_hw::gpu::nvidia::driver::Roots;

use crate::roles::{Entry, entry};
use crate::{Cx, Error, Result};

/// This role's entry in the agent's list.
pub(crate) const ROLE: Entry =
    entry!(capstan_node::CDI_SPECS.name, "Maintain the CDI spec of this node", MaintainOptions, maintain_here);

/// The `cdi` command in the agent's list.
pub(crate) const CDI: Entry = entry!("cdi", "Print, list or change CDI specs", CdiOptions, command);

async fn maintain_here(options: MaintainOptions, cx: Cx) -> Result<()> {
    maintain(MaintainOptions { output: cx.path(&options.output), ..options }, cx).await
}

#[derive(Debug, Clone, clap::Args)]
struct CdiOptions {
    #[command(subcommand)]
    command: Command,
}

/// Runs a `cdi` command on a blocking thread, since driver calls may be slow.
async fn command(options: CdiOptions, cx: Cx) -> Result<()> {
    let result = tokio::task::spawn_blocking(move || {
        let open = |roots: &Roots| match roots == &cx.roots {
            true => Source::shared(&cx.hardware),
            false => {
                let (open, roots): (_, Roots) = (Arc::clone(&cx.open_driver), roots.clone());
                Source::new(move || open(&roots))
            }
        };
        run(&options.command, &open, &cx.root, &mut std::io::stdout())
    });
    result.await.map_err(|error| Error::External(error.to_string()))?
}

#[cfg(test)]
mod tests;
