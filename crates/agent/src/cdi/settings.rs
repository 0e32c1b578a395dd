//! What a spec shall hold, beyond what the hardware says.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::str::FromStr;

use capstan_cdi::Kind;

use super::hooks::HookName;
use crate::{Error, Result};

/// What a spec is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Mode {
    /// What fits this machine.
    #[default]
    Auto,
    /// GPUs and MIG devices as NVML tells.
    Nvml,
    /// Every NVIDIA device node, for those who manage the driver.
    Management,
    /// What the files of a Tegra system list.
    Csv,
    /// The GPU of a Windows host.
    Wsl,
    /// Channels to the memory of other nodes.
    Imex,
    /// Storage that is read straight into a GPU.
    Gds,
    /// Network adapters that read and write a GPU's memory.
    Mofed,
    /// Fast copies to and from a GPU.
    Gdrcopy,
    /// The switches between GPUs.
    Nvswitch,
}

impl Mode {
    /// The kind of a spec that does not say another one.
    fn kind(self) -> (&'static str, &'static str) {
        match self {
            Self::Auto | Self::Nvml | Self::Csv | Self::Wsl => ("nvidia.com", "gpu"),
            Self::Management => ("management.nvidia.com", "gpu"),
            Self::Imex => ("nvidia.com", "imex-channel"),
            Self::Gds => ("nvidia.com", "gds"),
            Self::Mofed => ("nvidia.com", "mofed"),
            Self::Gdrcopy => ("nvidia.com", "gdrcopy"),
            Self::Nvswitch => ("nvidia.com", "nvswitch"),
        }
    }
}

/// How a device is named. Several ways give several names to one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum NameStrategy {
    /// `0`, `0:1`.
    Index,
    /// `gpu0`, `mig0:1`.
    TypeIndex,
    /// `GPU-…`, `MIG-…`.
    Uuid,
}

/// What is done otherwise on demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FeatureFlags {
    /// Takes libraries too that carry no driver version, such as `libEGL`.
    pub explicit_driver_libraries: bool,
    /// Says of each GPU whether it shares the host's memory, and makes kinds of that.
    pub coherent_annotations: bool,
    /// Does not let a container's process join the groups that own device nodes.
    pub no_additional_gids: bool,
    /// Leaves the sockets of daemons out.
    pub no_ipc: bool,
}

impl FeatureFlags {
    /// Reads the names that users know. Those of things that we never do are accepted and mean nothing.
    pub fn parse<S: AsRef<str>>(names: &[S]) -> Result<Self> {
        let mut flags = Self::default();
        for name in names.iter().map(|name| name.as_ref().trim()).filter(|name| !name.is_empty()) {
            match name {
                "enable-explicit-driver-libraries" => flags.explicit_driver_libraries = true,
                "enable-coherent-annotations" => flags.coherent_annotations = true,
                "no-additional-gids-for-device-nodes" => flags.no_additional_gids = true,
                "disable-ipc-discoverer" => flags.no_ipc = true,
                "disable-nvsandboxutils" | "disable-nvsandbox-utils" | "disable-multiple-csv-devices" => {}
                other => return Err(Error::Config(format!("no feature flag is called '{other}'"))),
            }
        }
        Ok(flags)
    }
}

/// What a spec shall hold, beyond what the hardware says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// What it is made from.
    pub mode: Mode,
    /// Root of `/proc` and `/sys`.
    pub root: PathBuf,
    /// Vendor, if not the mode's own.
    pub vendor: Option<String>,
    /// Class, if not the mode's own.
    pub class: Option<String>,
    /// How devices are named.
    pub names: Vec<NameStrategy>,
    /// Which devices: `all`, `none`, indices or UUIDs.
    pub devices: Vec<String>,
    /// Whether there is a device `all`.
    pub all_device: bool,
    /// The program of the hooks, on the host.
    pub hook: PathBuf,
    /// Where we see that program: a spec is refused while there is none. `None` when we cannot look.
    pub hook_here: Option<PathBuf>,
    /// The program that writes the loader's cache, on the host.
    pub ldconfig: Option<PathBuf>,
    /// Hooks to leave out.
    pub disabled_hooks: BTreeSet<HookName>,
    /// Hooks to have even so.
    pub enabled_hooks: BTreeSet<HookName>,
    /// What is done otherwise.
    pub flags: FeatureFlags,
    /// More directories of libraries.
    pub library_search_paths: Vec<PathBuf>,
    /// More directories of configuration files.
    pub config_search_paths: Vec<PathBuf>,
    /// Lists of a Tegra system.
    pub csv_files: Vec<PathBuf>,
    /// Lines of those lists to leave out, with `*` for any text.
    pub csv_ignore: Vec<String>,
    /// Where a container of a Tegra system has its newer CUDA libraries.
    pub compat_root: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: Mode::Auto,
            root: "/".into(),
            vendor: None,
            class: None,
            names: vec![NameStrategy::Index, NameStrategy::Uuid],
            devices: vec!["all".into()],
            all_device: true,
            hook: "/usr/bin/nvidia-cdi-hook".into(),
            hook_here: None,
            ldconfig: None,
            disabled_hooks: BTreeSet::new(),
            enabled_hooks: BTreeSet::new(),
            flags: FeatureFlags::default(),
            library_search_paths: Vec::new(),
            config_search_paths: Vec::new(),
            csv_files: Vec::new(),
            csv_ignore: Vec::new(),
            compat_root: None,
        }
    }
}

impl Settings {
    /// The kind of the spec.
    pub fn kind(&self) -> Result<Kind> {
        let (vendor, class) = self.mode.kind();
        let vendor = self.vendor.as_deref().filter(|set| !set.is_empty()).unwrap_or(vendor);
        let class = self.class.as_deref().filter(|set| !set.is_empty()).unwrap_or(class);
        Kind::new(vendor, class).map_err(|error| Error::Config(error.to_string()))
    }

    /// Whether a hook is wanted. One that is named to be there is, whatever else is said.
    pub(super) fn wants(&self, hook: HookName) -> bool {
        let off = self.disabled_hooks.contains(&HookName::All) || self.disabled_hooks.contains(&hook);
        self.enabled_hooks.contains(&hook) || !(off || hook == HookName::Chmod)
    }
}

/// Which hooks a list of names stands for.
pub(super) fn hook_names<S: AsRef<str>>(names: &[S]) -> Result<BTreeSet<HookName>> {
    let names = names.iter().flat_map(|name| name.as_ref().split(','));
    names.map(str::trim).filter(|name| !name.is_empty()).map(HookName::from_str).collect()
}
