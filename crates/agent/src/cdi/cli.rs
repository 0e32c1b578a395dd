//! `cdi generate`, `cdi list`, `cdi transform root`: specs on the command line.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use capstan_cdi::{DIRECTORIES, Format, RelativeTo, RootMove, Spec, split_coherent};
use capstan_hw::gpu::nvidia::driver::Roots;
use capstan_hw::gpu::nvidia::{Inventory, Source};

use super::settings::hook_names;
use super::{FeatureFlags, HookName, Mode, NameStrategy, Settings, generate, write};
use crate::{Error, Result};

/// What to do with specs.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum Command {
    /// Print or write the spec of this machine.
    Generate(Box<Generate>),
    /// Print the names of all devices that specs of this machine define.
    List {
        /// Directory of specs; both usual ones when not given.
        #[arg(long)]
        spec_dir: Vec<PathBuf>,
    },
    /// Change a spec.
    Transform {
        /// How.
        #[command(subcommand)]
        how: Transform,
    },
}

/// How a spec is changed.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum Transform {
    /// Move paths from one root to another.
    Root {
        /// Root of the paths now.
        #[arg(long)]
        from: PathBuf,
        /// Root that they shall have.
        #[arg(long)]
        to: PathBuf,
        /// Whose paths: `host` or `container`.
        #[arg(long, default_value = "host")]
        relative_to: String,
        /// The spec; `-` for standard input.
        #[arg(long, default_value = "-")]
        input: String,
        /// Where the changed spec goes; `-` or nothing for standard output.
        #[arg(long, default_value = "-")]
        output: String,
    },
}

/// Where a generated spec goes and where the driver is.
#[derive(Debug, Clone, clap::Args)]
pub struct Generate {
    /// File of the spec; standard output when empty.
    #[arg(long, env = "NVIDIA_CTK_CDI_OUTPUT_FILE_PATH", default_value = "")]
    pub output: String,
    /// `yaml` or `json`; by the name of the file when not given.
    #[arg(long, env = "NVIDIA_CTK_CDI_OUTPUT_FORMAT", default_value = "")]
    pub format: String,
    /// Root of the driver.
    #[arg(long, env = "NVIDIA_CTK_DRIVER_ROOT", default_value = "/")]
    pub driver_root: PathBuf,
    /// Root that holds `dev`.
    #[arg(long, env = "NVIDIA_CTK_DEV_ROOT")]
    pub dev_root: Option<PathBuf>,
    /// What the spec holds.
    #[command(flatten)]
    pub options: GenerateOptions,
}

/// What a spec holds, as flags.
#[derive(Debug, Clone, clap::Args)]
pub struct GenerateOptions {
    /// What the spec is made from.
    #[arg(long, env = "NVIDIA_CTK_CDI_GENERATE_MODE", value_enum, default_value = "auto")]
    pub mode: Mode,
    /// How devices are named; may be given several times.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["index", "uuid"])]
    pub device_name_strategy: Vec<NameStrategy>,
    /// More directories of libraries.
    #[arg(long, value_delimiter = ',')]
    pub library_search_path: Vec<PathBuf>,
    /// More directories of configuration files.
    #[arg(long, value_delimiter = ',')]
    pub config_search_path: Vec<PathBuf>,
    /// Program of the hooks, on the host.
    #[arg(
        long,
        env = "NVIDIA_CTK_CDI_HOOK_PATH",
        default_value = "/usr/bin/nvidia-cdi-hook",
        alias = "nvidia-ctk-path"
    )]
    pub nvidia_cdi_hook_path: PathBuf,
    /// Program that writes the loader's cache, on the host.
    #[arg(long)]
    pub ldconfig_path: Option<PathBuf>,
    /// Vendor of the devices.
    #[arg(long, env = "NVIDIA_CTK_CDI_GENERATE_VENDOR")]
    pub vendor: Option<String>,
    /// Class of the devices.
    #[arg(long, env = "NVIDIA_CTK_CDI_GENERATE_CLASS")]
    pub class: Option<String>,
    /// Lists of a Tegra system.
    #[arg(long = "csv.file", value_delimiter = ',')]
    pub csv_file: Vec<PathBuf>,
    /// Paths of those lists to leave out.
    #[arg(long = "csv.ignore-pattern", value_delimiter = ',')]
    pub csv_ignore_pattern: Vec<String>,
    /// Where containers of a Tegra system have newer CUDA libraries.
    #[arg(long = "csv.compat-container-root")]
    pub csv_compat_container_root: Option<String>,
    /// Hooks to leave out, or `all`.
    #[arg(long, env = "NVIDIA_CTK_CDI_GENERATE_DISABLED_HOOKS", alias = "disabled-hook", value_delimiter = ',')]
    pub disable_hook: Vec<String>,
    /// Hooks to have even so.
    #[arg(long, env = "NVIDIA_CTK_CDI_GENERATE_ENABLED_HOOKS", alias = "enabled-hook", value_delimiter = ',')]
    pub enable_hook: Vec<String>,
    /// What is done otherwise.
    #[arg(long, env = "NVIDIA_CTK_CDI_GENERATE_FEATURE_FLAGS", alias = "feature-flags", value_delimiter = ',')]
    pub feature_flag: Vec<String>,
    /// No device `all`.
    #[arg(long)]
    pub no_all_device: bool,
    /// Devices that the spec has.
    #[arg(long, value_delimiter = ',', default_values = ["all"])]
    pub device_id: Vec<String>,
}

impl GenerateOptions {
    /// The settings that these flags stand for, or what is wrong with them.
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

/// Does what a command says. `open` finds the hardware of a driver, `root` holds `/proc` and `/sys`.
pub fn run(command: &Command, open: &dyn Fn(&Roots) -> Source, root: &Path, out: &mut dyn Write) -> Result<()> {
    match command {
        Command::Generate(wanted) => {
            let settings = Settings { root: root.to_owned(), ..wanted.options.settings()? };
            let format = match wanted.format.as_str() {
                "" => None,
                text => Some(text.parse::<Format>().map_err(outside)?),
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
            let mut spec = Spec::parse(&text(input)?).map_err(outside)?;
            RootMove { from: from.clone(), to: to.clone(), relative_to }.apply(&mut spec);
            put(&spec, if output == "-" { "" } else { output }, None, out)
        }
    }
}

/// The hardware, for modes that are about GPUs; the others do without a driver.
fn inventory(settings: &Settings, source: Source) -> Result<Inventory> {
    let needed = matches!(settings.mode, Mode::Auto | Mode::Nvml);
    match source.get().and_then(|hardware| hardware.inventory()) {
        Ok(inventory) => Ok(inventory),
        Err(error) if needed => Err(error.into()),
        Err(_) => Ok(Inventory::nothing()),
    }
}

fn put(spec: &Spec, output: &str, format: Option<Format>, out: &mut dyn Write) -> Result<()> {
    if !output.is_empty() && format.is_none_or(|format| Format::of(Path::new(output)) == Some(format)) {
        return write(spec, Path::new(output)).map(drop);
    }
    let text = spec.to_text(format.unwrap_or(Format::Yaml)).map_err(outside)?;
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
            match text(&path.to_string_lossy()).and_then(|text| Spec::parse(&text).map_err(outside)) {
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

fn outside(error: capstan_cdi::Error) -> Error {
    Error::Config(error.to_string())
}
