//! The config file shared by device plugin, feature discovery and MPS daemon.
//!
//! Values come from command line, environment, this file and defaults, in that order of precedence. [`Flags`] holds the
//! values of one source, without defaults; [`Flags::over`] merges two. Unknown keys are ignored and reported
//! ([`Parsed::warnings`]), so that a newer file works with an older agent and a typo is still found.

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

/// An invalid value: the field, the value and the fix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {value} {why}")]
pub struct InvalidValue {
    /// The field or flag.
    pub field: String,
    /// The value.
    pub value: String,
    /// What is wrong with it, and how to fix it.
    pub why: String,
}

impl InvalidValue {
    /// An invalid value of a field.
    pub fn new(field: impl Into<String>, value: impl std::fmt::Display, why: impl Into<String>) -> Self {
        Self { field: field.into(), value: value.to_string(), why: why.into() }
    }
}

impl From<InvalidValue> for crate::Error {
    fn from(wrong: InvalidValue) -> Self {
        Self::Config(wrong.to_string())
    }
}

/// A parsed config file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Config {
    /// Values that are also command-line flags.
    pub flags: Flags,
    /// Sharing of devices.
    pub sharing: Sharing,
}

/// A config with warnings for its author.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Parsed {
    /// The config.
    pub config: Config,
    /// Ignored keys, with reasons.
    pub warnings: Vec<String>,
}

/// Values of one source; `None` if unset.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Flags {
    /// MIG strategy.
    pub mig_strategy: Option<MigStrategy>,
    /// Exit if NVML does not initialise.
    pub fail_on_init_error: Option<bool>,
    /// Driver root on the host.
    pub driver_root: Option<PathBuf>,
    /// Root of the device nodes on the host.
    pub dev_root: Option<PathBuf>,
    /// Where the driver root is mounted in this container.
    pub container_driver_root: Option<PathBuf>,
    /// Inject GDRCopy.
    pub gdrcopy: Option<bool>,
    /// Inject GPUDirect Storage.
    pub gds: Option<bool>,
    /// Inject the MOFED device nodes.
    pub mofed: Option<bool>,
    /// MPS directory on the host.
    pub mps_root: Option<PathBuf>,
    /// Device discovery strategy.
    pub discovery: Option<DiscoveryStrategy>,
    /// Return device nodes in the Allocate response.
    pub pass_device_specs: Option<bool>,
    /// How containers learn their devices.
    pub device_list: Option<Vec<DeviceListStrategy>>,
    /// How devices are identified to containers.
    pub device_id: Option<DeviceIdStrategy>,
    /// Prefix of CDI annotations.
    pub cdi_annotation_prefix: Option<String>,
    /// Path of the CDI hook on the host.
    pub cdi_hook: Option<PathBuf>,
    /// Allocation policy for replicas.
    pub allocation: Option<AllocationPolicy>,
    /// IMEX channels to inject.
    pub imex_channels: Option<Vec<u32>>,
    /// Exit if an IMEX channel is missing.
    pub imex_required: Option<bool>,
    /// Publish labels in a NodeFeature object.
    pub node_feature_api: Option<bool>,
    /// Write labels once, then exit.
    pub oneshot: Option<bool>,
    /// Omit the timestamp label.
    pub no_timestamp: Option<bool>,
    /// Interval between two discoveries.
    pub sleep_interval: Option<Interval>,
    /// Label file.
    pub output_file: Option<PathBuf>,
    /// File with the machine type.
    pub machine_type_file: Option<PathBuf>,
}

impl Flags {
    /// Merges two sources; values of `self` take precedence over `lower`.
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

/// Parses a config file, YAML or JSON. Empty text is an empty config.
pub fn parse(text: &str) -> Result<Parsed, InvalidValue> {
    if text.trim().is_empty() {
        return Ok(Parsed::default());
    }
    let value: serde_json::Value = serde_saphyr::from_str(text).map_err(|error| {
        let error = error.to_string();
        InvalidValue::new("config file", "", format!("is no YAML: {}", error.lines().next().unwrap_or_default()))
    })?;
    let mut warnings = Vec::new();
    let mut config = Config::default();
    let Some(mut top) = Field::new("", &value).table()? else { return Ok(Parsed::default()) };
    if let Some(version) = top.take("version")
        && !matches!(version.text()?.as_str(), "" | "v1")
    {
        return Err(version.wrong("is an unknown version; write v1"));
    }
    if let Some(flags) = top.take("flags") {
        config.flags = read_flags(&flags, &mut warnings)?;
    }
    if top.take("resources").is_some() {
        warnings.push("resources: reserved, has no effect; every GPU and MIG profile keeps its own name".into());
    }
    if let Some(sharing) = top.take("sharing") {
        config.sharing = sharing::read(&sharing, &mut warnings)?;
    }
    if let Some(imex) = top.take("imex")
        && let Some(mut imex) = imex.table()?
    {
        config.flags.imex_channels = imex.take("channelIDs").map(|field| channels(&field)).transpose()?;
        config.flags.imex_required = imex.take("required").map(|field| field.boolean()).transpose()?;
        imex.finish(&mut warnings);
    }
    top.finish(&mut warnings);
    Ok(Parsed { config, warnings })
}

fn read_flags(field: &Field<'_>, warnings: &mut Vec<String>) -> Result<Flags, InvalidValue> {
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
        plugin.finish(warnings);
    }
    if let Some(gfd) = table.take("gfd")
        && let Some(mut gfd) = gfd.table()?
    {
        flags.oneshot = gfd.boolean("oneshot")?;
        flags.no_timestamp = gfd.boolean("noTimestamp")?;
        flags.sleep_interval = gfd.take("sleepInterval").map(|field| interval(&field)).transpose()?;
        flags.output_file = gfd.path("outputFile")?;
        flags.machine_type_file = gfd.path("machineTypeFile")?;
        gfd.finish(warnings);
    }
    table.finish(warnings);
    Ok(flags)
}

/// One strategy, a comma-separated list, or a YAML list.
fn device_list(field: &Field<'_>) -> Result<Vec<DeviceListStrategy>, InvalidValue> {
    let names = match field.list() {
        Some(items) => items.iter().map(Field::text).collect::<Result<Vec<String>, InvalidValue>>()?.join(","),
        None => field.text()?,
    };
    DeviceListStrategy::list(&field.path, &names)
}

fn interval(field: &Field<'_>) -> Result<Interval, InvalidValue> {
    let fix = "is no duration; write 60s, 1m30s or infinite";
    match field.value {
        serde_json::Value::Number(number) => {
            let nanos = number.as_u64().ok_or_else(|| field.wrong(fix))?;
            Ok(Interval::Every(std::time::Duration::from_nanos(nanos)))
        }
        _ => Interval::parse(&field.text()?).ok_or_else(|| field.wrong(fix)),
    }
}

fn channels(field: &Field<'_>) -> Result<Vec<u32>, InvalidValue> {
    let fix = "is no list of channels; write [] or [0]";
    let items = field.list().ok_or_else(|| field.wrong(fix))?;
    let numbers = items.iter().map(|item| item.value.as_u64().and_then(|number| u32::try_from(number).ok()));
    let numbers: Vec<u32> = numbers.collect::<Option<_>>().ok_or_else(|| field.wrong(fix))?;
    imex_channels(&field.path, numbers)
}

/// Validates IMEX channels: none, or channel 0.
pub fn imex_channels(field: &str, channels: Vec<u32>) -> Result<Vec<u32>, InvalidValue> {
    match channels[..] {
        [] | [0] => Ok(channels),
        _ => Err(InvalidValue::new(field, format!("{channels:?}"), "cannot be given to containers; write [] or [0]")),
    }
}

#[cfg(test)]
mod tests;
