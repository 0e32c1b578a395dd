//! The `cdi generate`, `cdi list` and `cdi transform root` commands.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use capstan_cdi::{DIRECTORIES, Format, RelativeTo, RootMove, Spec, split_coherent};
use capstan_hw::gpu::nvidia::driver::Roots;
use capstan_hw::gpu::nvidia::{Inventory, Source};

use super::settings::hook_names;
use super::{FeatureFlags, HookName, Mode, NameStrategy, Settings, generate, write};
use crate::{Error, Result};

/// A command about CDI specs.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum Command {
    /// Print or write the spec of this machine.
    Generate(Box<Generate>),
    /// List the qualified names of all CDI devices of this machine.
    List {
        /// Directory of specs; the default directories if not given.
        #[arg(long)]
        spec_dir: Vec<PathBuf>,
    },
    /// Transform a spec.
    Transform {
        /// The transformation.
        #[command(subcommand)]
        how: Transform,
    },
}

/// A transformation of a spec.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum Transform {
    /// Relocate paths from one root to another.
    Root {
        /// Current root.
        #[arg(long)]
        from: PathBuf,
        /// New root.
        #[arg(long)]
        to: PathBuf,
        /// Which paths: `host` or `container`.
        #[arg(long, default_value = "host")]
        relative_to: String,
        /// The spec; `-` for standard input.
        #[arg(long, default_value = "-")]
        input: String,
        /// Output file; `-` or empty for standard output.
        #[arg(long, default_value = "-")]
        output: String,
    },
}

/// Flags of `cdi generate`.
#[derive(Debug, Clone, clap::Args)]
pub struct Generate {
    /// Output file; standard output when empty.
    #[arg(long, env = "NVIDIA_CTK_CDI_OUTPUT_FILE_PATH", default_value = "")]
    pub output: String,
    /// `yaml` or `json`; by the file extension if not given.
    #[arg(long, env = "NVIDIA_CTK_CDI_OUTPUT_FORMAT", default_value = "")]
    pub format: String,
    /// Root of the driver.
    #[arg(long, env = "NVIDIA_CTK_DRIVER_ROOT", default_value = "/")]
    pub driver_root: PathBuf,
    /// Root of the device nodes.
    #[arg(long, env = "NVIDIA_CTK_DEV_ROOT")]
    pub dev_root: Option<PathBuf>,
    /// Content of the spec.
    #[command(flatten)]
    pub options: GenerateOptions,
}

/// Flags for the content of a spec.
#[derive(Debug, Clone, clap::Args)]
pub struct GenerateOptions {
    /// What the spec is generated from.
    #[arg(long, env = "NVIDIA_CTK_CDI_GENERATE_MODE", value_enum, default_value = "auto")]
    pub mode: Mode,
    /// Naming of devices; may be repeated.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["index", "uuid"])]
    pub device_name_strategy: Vec<NameStrategy>,
    /// Additional library directories.
    #[arg(long, value_delimiter = ',')]
    pub library_search_path: Vec<PathBuf>,
    /// Additional configuration directories.
    #[arg(long, value_delimiter = ',')]
    pub config_search_path: Vec<PathBuf>,
    /// Host path of the hook binary.
    #[arg(
        long,
        env = "NVIDIA_CTK_CDI_HOOK_PATH",
        default_value = "/usr/bin/nvidia-cdi-hook",
        alias = "nvidia-ctk-path"
    )]
    pub nvidia_cdi_hook_path: PathBuf,
    /// Host path of ldconfig.
    #[arg(long)]
    pub ldconfig_path: Option<PathBuf>,
    /// Vendor of the devices.
    #[arg(long, env = "NVIDIA_CTK_CDI_GENERATE_VENDOR")]
    pub vendor: Option<String>,
    /// Class of the devices.
    #[arg(long, env = "NVIDIA_CTK_CDI_GENERATE_CLASS")]
    pub class: Option<String>,
    /// CSV files of a Tegra system.
    #[arg(long = "csv.file", value_delimiter = ',')]
    pub csv_file: Vec<PathBuf>,
    /// Patterns of CSV paths to skip.
    #[arg(long = "csv.ignore-pattern", value_delimiter = ',')]
    pub csv_ignore_pattern: Vec<String>,
    /// Directory of forward compatibility libraries in Tegra containers.
    #[arg(long = "csv.compat-container-root")]
    pub csv_compat_container_root: Option<String>,
    /// Disabled hooks, or `all`.
    #[arg(long, env = "NVIDIA_CTK_CDI_GENERATE_DISABLED_HOOKS", alias = "disabled-hook", value_delimiter = ',')]
    pub disable_hook: Vec<String>,
    /// Explicitly enabled hooks.
    #[arg(long, env = "NVIDIA_CTK_CDI_GENERATE_ENABLED_HOOKS", alias = "enabled-hook", value_delimiter = ',')]
    pub enable_hook: Vec<String>,
    /// Optional features.
    #[arg(long, env = "NVIDIA_CTK_CDI_GENERATE_FEATURE_FLAGS", alias = "feature-flags", value_delimiter = ',')]
    pub feature_flag: Vec<String>,
    /// Do not add a device `all`.
    #[arg(long)]
    pub no_all_device: bool,
    /// Devices to include.
    #[arg(long, value_delimiter = ',', default_values = ["all"])]
    pub device_id: Vec<String>,
}

impl GenerateOptions {
    /// The settings of these flags.
    pub fn settings(&self) -> Result<Settings> {
        let enabled_hooks = hook_names(&self.enable_hook)?;
        if enabled_hooks.contains(&HookName::All) {
            return Err(Error::Config("--enable-hook needs the name of a hook; 'all' can only be disabled".into()));
        }
        let settings = Settings {
            mode: self.mode,
            vendor: self.vendor.clone(),
            class: self.class.clone(),
            names: self.device_name_strategy.clone(),
            devices: self.device_id.clone(),
            all_device: !self.no_all_device,
            hook: self.nvidia_cdi_hook_path.clone(),
            ldconfig: self.ldconfig_path.clone(),
            disabled_hooks: hook_names(&self.disable_hook)?,
            enabled_hooks,
            flags: FeatureFlags::parse(&self.feature_flag)?,
            library_search_paths: self.library_search_path.clone(),
            config_search_paths: self.config_search_path.clone(),
            csv_files: self.csv_file.clone(),
            csv_ignore: self.csv_ignore_pattern.clone(),
            compat_root: self.csv_compat_container_root.clone(),
            ..Settings::default()
        };
        settings.kind()?;
        Ok(settings)
    }
}

/// Runs a command. `open` opens the hardware of a driver, `root` holds `/proc` and `/sys`.
pub fn run(command: &Command, open: &dyn Fn(&Roots) -> Source, root: &Path, out: &mut dyn Write) -> Result<()> {
    match command {
        Command::Generate(wanted) => {
            let settings = Settings { root: root.to_owned(), ..wanted.options.settings()? };
            let format = match wanted.format.as_str() {
                "" => None,
                text => Some(text.parse::<Format>().map_err(external)?),
            };
            let roots = Roots::new(&wanted.driver_root, &wanted.driver_root, wanted.dev_root.clone());
            let spec = generate(&inventory(&settings, open(&roots))?, &roots, &settings)?;
            put(&spec, &wanted.output, format, out)?;
            split_coherent(&spec).iter().try_for_each(|part| {
                let class = part.kind.rsplit('.').next().unwrap_or_default();
                let path = Path::new(&wanted.output);
                let extension = path.extension().map(|text| text.to_string_lossy()).unwrap_or("yaml".into());
                let name = path.with_extension(format!("{class}.{extension}")).to_string_lossy().into_owned();
                put(part, if wanted.output.is_empty() { "" } else { &name }, format, out)
            })
        }
        Command::List { spec_dir } => list(spec_dir, out),
        Command::Transform { how: Transform::Root { from, to, relative_to, input, output } } => {
            let relative_to = match relative_to.as_str() {
                "host" => RelativeTo::Host,
                "container" => RelativeTo::Container,
                other => return Err(Error::Config(format!("--relative-to is host or container, not '{other}'"))),
            };
            let mut spec = Spec::parse(&text(input)?).map_err(external)?;
            RootMove { from: from.clone(), to: to.clone(), relative_to }.apply(&mut spec);
            put(&spec, if output == "-" { "" } else { output }, None, out)
        }
    }
}

/// The inventory, for modes that need NVML; empty for the others.
fn inventory(settings: &Settings, source: Source) -> Result<Inventory> {
    let needed = matches!(settings.mode, Mode::Auto | Mode::Nvml);
    match source.get().and_then(|hardware| hardware.inventory()) {
        Ok(inventory) => Ok(inventory),
        Err(error) if needed => Err(error.into()),
        Err(_) => Ok(Inventory::empty()),
    }
}

fn put(spec: &Spec, output: &str, format: Option<Format>, out: &mut dyn Write) -> Result<()> {
    if !output.is_empty() && format.is_none_or(|format| Format::of(Path::new(output)) == Some(format)) {
        return write(spec, Path::new(output)).map(drop);
    }
    let text = spec.to_text(format.unwrap_or(Format::Yaml)).map_err(external)?;
    if output.is_empty() {
        return out.write_all(text.as_bytes()).map_err(|source| Error::Io { what: "cannot print".into(), source });
    }
    crate::files::write(Path::new(output), text.as_bytes())
}

fn list(dirs: &[PathBuf], out: &mut dyn Write) -> Result<()> {
    let usual: Vec<PathBuf> = DIRECTORIES.iter().map(PathBuf::from).collect();
    let mut names = std::collections::BTreeSet::new();
    for dir in if dirs.is_empty() { &usual } else { dirs } {
        for (name, _) in super::files::names(dir) {
            let path = dir.join(name);
            if Format::of(&path).is_none() {
                continue;
            }
            match text(&path.to_string_lossy()).and_then(|text| Spec::parse(&text).map_err(external)) {
                Ok(spec) => names.extend(spec.devices.iter().map(|device| format!("{}={}", spec.kind, device.name))),
                Err(error) => tracing::warn!(path = %path.display(), %error, "not a CDI spec"),
            }
        }
    }
    let lines: String = names.iter().map(|name| format!("{name}\n")).collect();
    out.write_all(lines.as_bytes()).map_err(|source| Error::Io { what: "cannot print".into(), source })
}

fn text(input: &str) -> Result<String> {
    let read = match input {
        "-" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map(|_| text)
        }
        path => std::fs::read_to_string(path),
    };
    read.map_err(|source| Error::Io { what: format!("cannot read {input}"), source })
}

fn external(error: capstan_cdi::Error) -> Error {
    Error::Config(error.to_string())
}
