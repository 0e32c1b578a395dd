//! The OCI hooks that a CDI spec names: a container runtime runs them when it creates a GPU container.
//!
//! A hook runs as root on a file system of an untrusted image: every path is resolved inside the container's root
//! ([`inside`]), and nothing outside of it is touched. A hook with nothing to do succeeds; so does an unknown one,
//! since a newer spec must not keep containers from starting.

mod compat;
mod elf;
mod inside;
mod isolate;
mod ldcache;
mod params;
mod profile;
mod state;
mod symlinks;

use std::io::Read;

use clap::Parser;

use crate::roles::{Entry, entry};
use crate::{Cx, Error, Result};
use inside::Inside;

/// The `hook` command in the agent's list.
pub(crate) const HOOK: Entry = entry!("hook", "Run a CDI hook for a container runtime", Options, run_words);

#[derive(Debug, Clone, clap::Args)]
#[command(disable_help_flag = true)]
struct Options {
    /// The hook and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

async fn run_words(options: Options, _: Cx) -> Result<()> {
    run(&options.words, &mut std::io::stdin())
}

/// A hook and its arguments.
#[derive(Debug, Parser)]
#[command(name = "nvidia-cdi-hook", no_binary_name = true)]
struct Line {
    /// The container's state; standard input when not given.
    #[arg(long, global = true, hide = true)]
    container_spec: Option<std::path::PathBuf>,
    #[command(subcommand)]
    hook: Hook,
}

#[derive(Debug, clap::Subcommand)]
enum Hook {
    /// Creates symlinks in the container.
    CreateSymlinks {
        /// `<target>::<link>`.
        #[arg(long)]
        link: Vec<String>,
    },
    /// Enables the CUDA forward compatibility libraries of the image.
    EnableCudaCompat {
        /// Version of the host's driver.
        #[arg(long, default_value = "")]
        host_driver_version: String,
        /// Newest CUDA that the host's driver supports.
        #[arg(long, default_value = "")]
        host_cuda_version: String,
        /// Directory of the forward compatibility libraries.
        #[arg(long, default_value = compat::ROOT)]
        cuda_compat_container_root: String,
    },
    /// Updates the ldconfig cache of the container.
    UpdateLdcache {
        /// A library directory.
        #[arg(long)]
        folder: Vec<String>,
        /// The host's ldconfig.
        #[arg(long, default_value = "")]
        ldconfig_path: String,
    },
    /// Keeps the driver from creating device nodes in the container.
    DisableDeviceNodeModification,
    /// Limits graphics libraries to the GPUs of the container.
    UpdateApplicationProfile,
    /// Changes the mode of a directory.
    Chmod {
        /// Mode in octal.
        #[arg(long)]
        mode: String,
        /// Paths to change.
        #[arg(long)]
        path: Vec<String>,
    },
}

/// Known hooks; others may be newer.
const KNOWN: [&str; 6] = [
    "create-symlinks",
    "enable-cuda-compat",
    "update-ldcache",
    "disable-device-node-modification",
    "update-application-profile",
    "chmod",
];

/// Runs the hook named by `words` (without the program name) on the container that `input` describes.
pub fn run(words: &[String], input: &mut dyn Read) -> Result<()> {
    let name = words.iter().find(|word| !word.starts_with('-'));
    let Some(name) = name.filter(|name| KNOWN.contains(&name.as_str())) else {
        tracing::warn!(hook = ?name, "unknown hook; ignored");
        return Ok(());
    };
    let line = Line::try_parse_from(words).map_err(|error| Error::Config(format!("hook {name}: {error}")))?;
    let root = state::container_root(line.container_spec.as_deref(), input)?;
    if root.as_os_str().is_empty() {
        return Err(Error::Config(format!("hook {name}: the container's state names no root")));
    }
    let inside = Inside::open(&root).map_err(failed(format!("cannot open {}", root.display())))?;
    match line.hook {
        Hook::CreateSymlinks { link } => symlinks::create(&inside, &link),
        Hook::EnableCudaCompat { host_driver_version, host_cuda_version, cuda_compat_container_root } => {
            compat::enable(&inside, &host_driver_version, &host_cuda_version, &cuda_compat_container_root)
        }
        Hook::UpdateLdcache { folder, ldconfig_path } => ldcache::update(&inside, &root, &folder, &ldconfig_path),
        Hook::DisableDeviceNodeModification => params::disable(&inside),
        Hook::UpdateApplicationProfile => profile::update(&inside),
        Hook::Chmod { mode, path } => symlinks::chmod(&inside, &mode, &path),
    }
}

/// Wraps an I/O error with the failed operation.
fn failed(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
    let what = what.into();
    |source| Error::Io { what, source }
}

#[cfg(test)]
mod tests;
