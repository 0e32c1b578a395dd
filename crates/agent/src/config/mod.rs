//! The config file that the device plugin, feature discovery and the MPS daemon share.
//!
//! Every value has four sources: command line, environment, this file, default, in that order. [`Flags`] holds what
//! one source says, with nothing filled in; [`Flags::over`] puts one above another. Keys that no one knows are left
//! alone and reported ([`Parsed::remarks`]), so that a newer file works with an older agent and a mistyped key is
//! still found.

mod name;
mod read;
mod sharing;
mod values;

use std::path::PathBuf;

pub use name::{Pattern, ResourceName};
use read::Field;
pub use sharing::{DeviceRef, Replicated, ReplicatedDevices, Shared, Sharing, SharingStrategy};
pub use values::{
    AllocationPolicy, Choices, DeviceIdStrategy, DeviceListStrategy, DiscoveryStrategy, Interval, MigStrategy, boolean,
    one_of,
};

/// A value that cannot be: where it is, what it says and what it should say.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {value} {why}")]
pub struct Wrong {
    /// The field or flag.
    pub field: String,
    /// What it says.
    pub value: String,
    /// What is wrong with it, and what would be right.
    pub why: String,
}

impl Wrong {
    /// A value and the way to mend it.
    pub fn new(field: impl Into<String>, value: impl std::fmt::Display, why: impl Into<String>) -> Self {
        Self { field: field.into(), value: value.to_string(), why: why.into() }
    }
}

impl From<Wrong> for crate::Error {
    fn from(wrong: Wrong) -> Self {
        Self::Config(wrong.to_string())
    }
}

/// What a config file says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Config {
    /// What could also be said on the command line.
    pub flags: Flags,
    /// How devices are shared.
    pub sharing: Sharing,
}

/// A config and what its author should know about it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Parsed {
    /// The config.
    pub config: Config,
    /// Keys that have no effect, and why.
    pub remarks: Vec<String>,
}

/// What one source says; `None` is left to the next.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Flags {
    /// How MIG devices are offered.
    pub mig_strategy: Option<MigStrategy>,
    /// A driver that does not answer ends the process.
    pub fail_on_init_error: Option<bool>,
    /// Where the driver is on the host.
    pub driver_root: Option<PathBuf>,
    /// Where the root of the devices is on the host.
    pub dev_root: Option<PathBuf>,
    /// Where the driver root is mounted for us.
    pub container_driver_root: Option<PathBuf>,
    /// Containers get GDRCopy.
    pub gdrcopy: Option<bool>,
    /// Containers get GPUDirect Storage.
    pub gds: Option<bool>,
    /// Containers get the network adapters' driver.
    pub mofed: Option<bool>,
    /// Where the MPS directory is on the host.
    pub mps_root: Option<PathBuf>,
    /// How GPUs are found.
    pub discovery: Option<DiscoveryStrategy>,
    /// Device nodes are part of the answer.
    pub pass_device_specs: Option<bool>,
    /// How containers are told their devices.
    pub device_list: Option<Vec<DeviceListStrategy>>,
    /// How devices are named to containers.
    pub device_id: Option<DeviceIdStrategy>,
    /// What annotations with CDI names begin with.
    pub cdi_annotation_prefix: Option<String>,
    /// The hook program on the host.
    pub cdi_hook: Option<PathBuf>,
    /// Which replicas are chosen first.
    pub allocation: Option<AllocationPolicy>,
    /// IMEX channels that containers get.
    pub imex_channels: Option<Vec<u32>>,
    /// A missing channel ends the process.
    pub imex_required: Option<bool>,
    /// Labels go into a NodeFeature object.
    pub node_feature_api: Option<bool>,
    /// Labels are written once.
    pub oneshot: Option<bool>,
    /// No label says when they were written.
    pub no_timestamp: Option<bool>,
    /// How often labels are looked at.
    pub sleep_interval: Option<Interval>,
    /// Where labels are written.
    pub output_file: Option<PathBuf>,
    /// What says which machine this is.
    pub machine_type_file: Option<PathBuf>,
}

impl Flags {
    /// What is said here, and below it what `lower` says.
    #[must_use]
    pub fn over(self, lower: Self) -> Self {
        Self {
            mig_strategy: self.mig_strategy.or(lower.mig_strategy),
            fail_on_init_error: self.fail_on_init_error.or(lower.fail_on_init_error),
            driver_root: self.driver_root.or(lower.driver_root),
            dev_root: self.dev_root.or(lower.dev_root),
            container_driver_root: self.container_driver_root.or(lower.container_driver_root),
            gdrcopy: self.gdrcopy.or(lower.gdrcopy),
            gds: self.gds.or(lower.gds),
            mofed: self.mofed.or(lower.mofed),
            mps_root: self.mps_root.or(lower.mps_root),
            discovery: self.discovery.or(lower.discovery),
            pass_device_specs: self.pass_device_specs.or(lower.pass_device_specs),
            device_list: self.device_list.or(lower.device_list),
            device_id: self.device_id.or(lower.device_id),
            cdi_annotation_prefix: self.cdi_annotation_prefix.or(lower.cdi_annotation_prefix),
            cdi_hook: self.cdi_hook.or(lower.cdi_hook),
            allocation: self.allocation.or(lower.allocation),
            imex_channels: self.imex_channels.or(lower.imex_channels),
            imex_required: self.imex_required.or(lower.imex_required),
            node_feature_api: self.node_feature_api.or(lower.node_feature_api),
            oneshot: self.oneshot.or(lower.oneshot),
            no_timestamp: self.no_timestamp.or(lower.no_timestamp),
            sleep_interval: self.sleep_interval.or(lower.sleep_interval),
            output_file: self.output_file.or(lower.output_file),
            machine_type_file: self.machine_type_file.or(lower.machine_type_file),
        }
    }
}

/// Reads a config file's text, YAML or JSON. An empty text is a config that says nothing.
pub fn parse(text: &str) -> Result<Parsed, Wrong> {
    if text.trim().is_empty() {
        return Ok(Parsed::default());
    }
    let value: serde_json::Value = serde_saphyr::from_str(text).map_err(|error| {
        let error = error.to_string();
        Wrong::new("config file", "", format!("is no YAML: {}", error.lines().next().unwrap_or_default()))
    })?;
    let mut remarks = Vec::new();
    let mut config = Config::default();
    let Some(mut top) = Field::new("", &value).table()? else { return Ok(Parsed::default()) };
    if let Some(version) = top.take("version")
        && !matches!(version.text()?.as_str(), "" | "v1")
    {
        return Err(version.wrong("is an unknown version; write v1"));
    }
    if let Some(flags) = top.take("flags") {
        config.flags = read_flags(&flags, &mut remarks)?;
    }
    if top.take("resources").is_some() {
        remarks.push("resources: reserved, has no effect; every GPU and MIG profile keeps its own name".into());
    }
    if let Some(sharing) = top.take("sharing") {
        config.sharing = sharing::read(&sharing, &mut remarks)?;
    }
    if let Some(imex) = top.take("imex")
        && let Some(mut imex) = imex.table()?
    {
        config.flags.imex_channels = imex.take("channelIDs").map(|field| channels(&field)).transpose()?;
        config.flags.imex_required = imex.take("required").map(|field| field.boolean()).transpose()?;
        imex.finish(&mut remarks);
    }
    top.finish(&mut remarks);
    Ok(Parsed { config, remarks })
}

fn read_flags(field: &Field<'_>, remarks: &mut Vec<String>) -> Result<Flags, Wrong> {
    let mut flags = Flags::default();
    let Some(mut table) = field.table()? else { return Ok(flags) };
    flags.mig_strategy = table.parsed("migStrategy", MigStrategy::CHOICES)?;
    flags.fail_on_init_error = table.boolean("failOnInitError")?;
    flags.driver_root = table.path("nvidiaDriverRoot")?;
    flags.dev_root = table.path("nvidiaDevRoot")?;
    flags.gdrcopy = table.boolean("gdrcopyEnabled")?;
    flags.gds = table.boolean("gdsEnabled")?;
    flags.mofed = table.boolean("mofedEnabled")?;
    flags.mps_root = table.path("mpsRoot")?;
    flags.discovery = table.parsed("deviceDiscoveryStrategy", DiscoveryStrategy::CHOICES)?;
    flags.node_feature_api = table.boolean("useNodeFeatureAPI")?;
    if let Some(plugin) = table.take("plugin")
        && let Some(mut plugin) = plugin.table()?
    {
        flags.pass_device_specs = plugin.boolean("passDeviceSpecs")?;
        flags.device_list = plugin.take("deviceListStrategy").map(|field| device_list(&field)).transpose()?;
        flags.device_id = plugin.parsed("deviceIDStrategy", DeviceIdStrategy::CHOICES)?;
        flags.cdi_annotation_prefix = plugin.take("cdiAnnotationPrefix").map(|field| field.text()).transpose()?;
        flags.cdi_hook = plugin.path("nvidiaCTKPath")?;
        flags.container_driver_root = plugin.path("containerDriverRoot")?;
        flags.allocation = plugin.parsed("sharedDevicesAllocationPolicy", AllocationPolicy::CHOICES)?;
        plugin.finish(remarks);
    }
    if let Some(gfd) = table.take("gfd")
        && let Some(mut gfd) = gfd.table()?
    {
        flags.oneshot = gfd.boolean("oneshot")?;
        flags.no_timestamp = gfd.boolean("noTimestamp")?;
        flags.sleep_interval = gfd.take("sleepInterval").map(|field| interval(&field)).transpose()?;
        flags.output_file = gfd.path("outputFile")?;
        flags.machine_type_file = gfd.path("machineTypeFile")?;
        gfd.finish(remarks);
    }
    table.finish(remarks);
    Ok(flags)
}

/// One strategy, several with commas between them, or a list.
fn device_list(field: &Field<'_>) -> Result<Vec<DeviceListStrategy>, Wrong> {
    let names = match field.list() {
        Some(items) => items.iter().map(Field::text).collect::<Result<Vec<String>, Wrong>>()?.join(","),
        None => field.text()?,
    };
    DeviceListStrategy::list(&field.path, &names)
}

fn interval(field: &Field<'_>) -> Result<Interval, Wrong> {
    let fix = "is no duration; write 60s, 1m30s or infinite";
    match field.value {
        serde_json::Value::Number(number) => {
            let nanos = number.as_u64().ok_or_else(|| field.wrong(fix))?;
            Ok(Interval::Every(std::time::Duration::from_nanos(nanos)))
        }
        _ => Interval::parse(&field.text()?).ok_or_else(|| field.wrong(fix)),
    }
}

fn channels(field: &Field<'_>) -> Result<Vec<u32>, Wrong> {
    let fix = "is no list of channels; write [] or [0]";
    let items = field.list().ok_or_else(|| field.wrong(fix))?;
    let numbers = items.iter().map(|item| item.value.as_u64().and_then(|number| u32::try_from(number).ok()));
    let numbers: Vec<u32> = numbers.collect::<Option<_>>().ok_or_else(|| field.wrong(fix))?;
    imex_channels(&field.path, numbers)
}

/// The channels that containers may get: none, or the first.
pub fn imex_channels(field: &str, channels: Vec<u32>) -> Result<Vec<u32>, Wrong> {
    match channels[..] {
        [] | [0] => Ok(channels),
        _ => Err(Wrong::new(field, format!("{channels:?}"), "cannot be given to containers; write [] or [0]")),
    }
}

#[cfg(test)]
mod tests;
