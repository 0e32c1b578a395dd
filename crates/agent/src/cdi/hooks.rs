//! The hooks of a spec, which a runtime runs when it creates a container. Implemented in [`crate::hook`].

use std::str::FromStr;

use capstan_cdi::Hook;

use super::Settings;
use crate::Error;

/// A hook by its subcommand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HookName {
    /// Creates symlinks to libraries and device nodes.
    CreateSymlinks,
    /// Enables the image's CUDA forward compatibility libraries.
    EnableCudaCompat,
    /// Updates the ldconfig cache.
    UpdateLdcache,
    /// Keeps the driver from creating device nodes in the container.
    DisableDeviceNodeModification,
    /// Limits graphics libraries to the container's GPUs.
    UpdateApplicationProfile,
    /// Makes directories of device nodes accessible.
    Chmod,
    /// All hooks; can be disabled, not enabled.
    All,
}

impl HookName {
    /// The subcommand.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CreateSymlinks => "create-symlinks",
            Self::EnableCudaCompat => "enable-cuda-compat",
            Self::UpdateLdcache => "update-ldcache",
            Self::DisableDeviceNodeModification => "disable-device-node-modification",
            Self::UpdateApplicationProfile => "update-application-profile",
            Self::Chmod => "chmod",
            Self::All => "all",
        }
    }
}

impl FromStr for HookName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let all = [
            Self::CreateSymlinks,
            Self::EnableCudaCompat,
            Self::UpdateLdcache,
            Self::DisableDeviceNodeModification,
            Self::UpdateApplicationProfile,
            Self::Chmod,
            Self::All,
        ];
        let found = all.into_iter().find(|hook| hook.as_str() == text);
        found.ok_or_else(|| {
            let names: Vec<&str> = all.iter().map(|hook| hook.as_str()).collect();
            Error::Config(format!("no hook is called '{text}'; there are {}", names.join(", ")))
        })
    }
}

/// A hook with its arguments, if enabled.
pub(super) fn hook(settings: &Settings, name: HookName, arguments: Vec<String>) -> Option<Hook> {
    if !settings.wants(name) {
        return None;
    }
    let program = settings.hook.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    // Programs with other commands have hooks below a subcommand.
    let below: &[&str] = match program.as_str() {
        "nvidia-ctk" => &["hook"],
        "capstan" => &["agent", "hook"],
        _ => &[],
    };
    let below = below.iter().map(|word| (*word).to_owned());
    let words = std::iter::once(program).chain(below).chain([name.as_str().to_owned()]);
    Some(Hook {
        hook_name: "createContainer".into(),
        path: settings.hook.to_string_lossy().into_owned(),
        args: words.chain(arguments).collect(),
        env: vec!["NVIDIA_CTK_DEBUG=false".into()],
        timeout: None,
    })
}

/// The hook that creates symlinks, given as target and link; `None` without any.
pub(super) fn links(settings: &Settings, links: &[(String, String)]) -> Option<Hook> {
    if links.is_empty() {
        return None;
    }
    let words = links.iter().flat_map(|(target, link)| ["--link".to_owned(), format!("{target}::{link}")]);
    hook(settings, HookName::CreateSymlinks, words.collect())
}
