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

#[cfg(test)]
mod tests;
