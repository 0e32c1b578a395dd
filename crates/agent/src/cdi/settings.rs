//! Settings of a generated spec.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::str::FromStr;

use capstan_cdi::Kind;

use super::hooks::HookName;
use crate::{Error, Result};

/// What a spec is generated from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Mode {
    /// Detect the platform.
    #[default]
    Auto,
    /// GPUs and MIG devices from NVML.
    Nvml,
    /// Every NVIDIA device node, for driver management.
    Management,
    /// The CSV files of a Tegra system.
    Csv,
    /// The GPU of a WSL system.
    Wsl,
    /// IMEX channels.
    Imex,
    /// GPUDirect Storage.
    Gds,
    /// MOFED: InfiniBand device nodes.
    Mofed,
    /// GDRCopy.
    Gdrcopy,
    /// NVSwitches.
    Nvswitch,
}

impl Mode {
    /// Default vendor and class.
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

/// How a device is named. Several strategies give a device several names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum NameStrategy {
    /// `0`, `0:1`.
    Index,
    /// `gpu0`, `mig0:1`.
    TypeIndex,
    /// `GPU-…`, `MIG-…`.
    Uuid,
}

/// Optional features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FeatureFlags {
    /// Also inject libraries without a driver version, such as `libEGL`.
    pub explicit_driver_libraries: bool,
    /// Annotate each GPU with whether it is coherent with host memory, and add kinds for that.
    pub coherent_annotations: bool,
    /// Do not add the groups that own device nodes to the container's process.
    pub no_additional_gids: bool,
    /// Omit the sockets of daemons.
    pub no_ipc: bool,
}

impl FeatureFlags {
    /// Parses feature names. Names of upstream features that we never use are accepted and ignored.
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

/// Settings of a generated spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// What it is generated from.
    pub mode: Mode,
    /// Root of `/proc` and `/sys`.
    pub root: PathBuf,
    /// Vendor, if not the mode's default.
    pub vendor: Option<String>,
    /// Class, if not the mode's default.
    pub class: Option<String>,
    /// Naming of devices.
    pub names: Vec<NameStrategy>,
    /// Devices to include: `all`, `none`, indices or UUIDs.
    pub devices: Vec<String>,
    /// Whether to add a device `all`.
    pub all_device: bool,
    /// Host path of the hook binary.
    pub hook: PathBuf,
    /// Path of the hook binary in this container, to check that it exists; `None` if it is not mounted.
    pub hook_here: Option<PathBuf>,
    /// Host path of ldconfig.
    pub ldconfig: Option<PathBuf>,
    /// Disabled hooks.
    pub disabled_hooks: BTreeSet<HookName>,
    /// Explicitly enabled hooks.
    pub enabled_hooks: BTreeSet<HookName>,
    /// Optional features.
    pub flags: FeatureFlags,
    /// Additional library directories.
    pub library_search_paths: Vec<PathBuf>,
    /// Additional configuration directories.
    pub config_search_paths: Vec<PathBuf>,
    /// CSV files of a Tegra system.
    pub csv_files: Vec<PathBuf>,
    /// Patterns of CSV paths to skip.
    pub csv_ignore: Vec<String>,
    /// Directory of forward compatibility libraries in Tegra containers.
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

    /// Whether a hook is enabled. Explicitly enabled ones always are.
    pub(super) fn wants(&self, hook: HookName) -> bool {
        let off = self.disabled_hooks.contains(&HookName::All) || self.disabled_hooks.contains(&hook);
        self.enabled_hooks.contains(&hook) || !(off || hook == HookName::Chmod)
    }
}

/// Parses hook names.
pub(super) fn hook_names<S: AsRef<str>>(names: &[S]) -> Result<BTreeSet<HookName>> {
    let names = names.iter().flat_map(|name| name.as_ref().split(','));
    names.map(str::trim).filter(|name| !name.is_empty()).map(HookName::from_str).collect()
}
