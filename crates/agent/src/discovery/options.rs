//! Flags of feature discovery, merged with the config file.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

use crate::config::{self, Flags, Interval, MigStrategy, Sharing, boolean, one_of};
use crate::{Error, Result};

/// Device discovery strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Strategy {
    /// Detect the platform.
    #[default]
    Auto,
    /// NVML.
    Nvml,
    /// Tegra: the integrated GPU.
    Tegra,
    /// PCI passthrough to virtual machines.
    Vfio,
}

/// Flags of feature discovery.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Options {
    /// MIG strategy: none, single or mixed.
    #[arg(long, env = "GFD_MIG_STRATEGY")]
    pub mig_strategy: Option<String>,
    /// Exit if NVML does not initialise.
    #[arg(long, env = "GFD_FAIL_ON_INIT_ERROR", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub fail_on_init_error: Option<bool>,
    /// Write labels once, then exit.
    #[arg(long, env = "GFD_ONESHOT", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub oneshot: Option<bool>,
    /// Omit the timestamp label.
    #[arg(long, env = "GFD_NO_TIMESTAMP", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub no_timestamp: Option<bool>,
    /// Interval between two discoveries: 60s, infinite.
    #[arg(long, env = "GFD_SLEEP_INTERVAL")]
    pub sleep_interval: Option<String>,
    /// Label file; standard output when empty.
    #[arg(long, short = 'o', alias = "output", env = "GFD_OUTPUT_FILE")]
    pub output_file: Option<OsString>,
    /// File with the machine type.
    #[arg(long, env = "GFD_MACHINE_TYPE_FILE")]
    pub machine_type_file: Option<OsString>,
    /// The config file, shared with the device plugin.
    #[arg(long, env = "GFD_CONFIG_FILE")]
    pub config_file: Option<OsString>,
    /// Publish labels in a NodeFeature object.
    #[arg(long, env = "GFD_USE_NODE_FEATURE_API", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub use_node_feature_api: Option<bool>,
    /// Device discovery strategy.
    #[arg(long, env = "DEVICE_DISCOVERY_STRATEGY", value_enum, default_value = "auto")]
    pub device_discovery_strategy: Strategy,
    /// Ignored, for compatibility: the agent reads the same variable for all of its roles.
    #[arg(long, env = "DRIVER_ROOT_CTR_PATH")]
    pub driver_root_ctr_path: Option<PathBuf>,
    /// Kubeconfig, outside of a cluster.
    #[arg(long, env = "KUBECONFIG")]
    pub kubeconfig: Option<OsString>,
    /// Ignored, for compatibility: there are at most two requests in each interval.
    #[arg(long, default_value_t = 5.0)]
    pub kube_api_qps: f64,
    /// Ignored, for compatibility.
    #[arg(long, default_value_t = 10)]
    pub kube_api_burst: u32,
    /// Namespace of the NodeFeature object.
    #[arg(long, env = "NAMESPACE", default_value = "default")]
    pub namespace: String,
    /// Name of this node.
    #[arg(long, env = "NODE_NAME", default_value = "")]
    pub node_name: String,
    /// Name of this pod: it and its DaemonSet own the NodeFeature.
    #[arg(long, env = "POD_NAME", default_value = "")]
    pub pod_name: String,
    /// Also publish node features besides GPUs, for clusters without Node Feature Discovery.
    #[arg(long, env = "NODE_FEATURES", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub node_features: Option<bool>,
    /// Label the Node instead of writing a NodeFeature.
    #[arg(long, env = "LABEL_NODE", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub label_node: Option<bool>,
    /// Remove the labels on exit.
    #[arg(long, env = "WITHDRAW_ON_EXIT", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub withdraw_on_exit: Option<bool>,
}

/// Effective settings: flags, environment and config file merged.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// MIG strategy.
    pub mig: MigStrategy,
    /// Sharing of devices.
    pub sharing: Sharing,
    /// Exit if NVML does not initialise.
    pub fail_on_init_error: bool,
    /// Write labels once, then exit.
    pub oneshot: bool,
    /// Set the timestamp label.
    pub timestamp: bool,
    /// Interval between two discoveries; `None` for on events only.
    pub interval: Option<Duration>,
    /// Label file; `None` for standard output.
    pub output: Option<PathBuf>,
    /// File with the machine type.
    pub machine_type_file: PathBuf,
    /// Publish labels in a NodeFeature object.
    pub object: bool,
    /// Publish labels on the Node.
    pub label_node: bool,
}

impl Options {
    /// The effective settings, from the text of the config file and the environment.
    pub fn settings(&self, file: &str, env: impl Fn(&str) -> Option<String>) -> Result<Settings> {
        let parsed = config::parse(file)?;
        parsed.warnings.iter().for_each(|warning| tracing::warn!(warning, "config file warning"));
        let interval = |text: &String| {
            let wrong = || Error::Config(format!("--sleep-interval: '{text}' is no duration; write 60s or infinite"));
            Interval::parse(text).ok_or_else(wrong)
        };
        let flag = |set: Option<bool>, name: &str| match (set, env(name)) {
            (None, Some(text)) if !text.is_empty() => {
                boolean(&text).map(Some).map_err(|why| Error::Config(format!("{name}: '{text}' {why}")))
            }
            (set, _) => Ok(set),
        };
        // Variables shared with the device plugin come after our own.
        let mig = self.mig_strategy.clone().or_else(|| env("MIG_STRATEGY")).filter(|text| !text.is_empty());
        let flags = Flags {
            mig_strategy: mig.map(|text| one_of("--mig-strategy", &text, MigStrategy::CHOICES)).transpose()?,
            fail_on_init_error: flag(self.fail_on_init_error, "FAIL_ON_INIT_ERROR")?,
            oneshot: self.oneshot,
            no_timestamp: self.no_timestamp,
            sleep_interval: self.sleep_interval.as_ref().map(interval).transpose()?,
            output_file: self.output_file.clone().map(PathBuf::from),
            machine_type_file: self.machine_type_file.clone().map(PathBuf::from),
            node_feature_api: flag(self.use_node_feature_api, "USE_NODE_FEATURE_API")?,
            ..Flags::default()
        };
        let flags = flags.over(parsed.config.flags);
        let output = flags.output_file.unwrap_or("/etc/kubernetes/node-feature-discovery/features.d/gfd".into());
        let label_node = self.label_node.unwrap_or(false);
        let object = flags.node_feature_api.unwrap_or(true) && !label_node;
        if (object || label_node) && self.node_name.is_empty() {
            return Err(Error::Config("--node-name (NODE_NAME) is empty: set it from spec.nodeName".into()));
        }
        Ok(Settings {
            mig: flags.mig_strategy.unwrap_or_default(),
            sharing: parsed.config.sharing,
            fail_on_init_error: flags.fail_on_init_error.unwrap_or(true),
            oneshot: flags.oneshot.unwrap_or(false),
            timestamp: !flags.no_timestamp.unwrap_or(false),
            interval: match flags.sleep_interval.unwrap_or(Interval::Every(Duration::from_secs(60))) {
                Interval::Every(time) => Some(time),
                Interval::Infinite => None,
            },
            output: (!output.as_os_str().is_empty()).then_some(output),
            machine_type_file: flags.machine_type_file.unwrap_or("/sys/class/dmi/id/product_name".into()),
            object,
            label_node,
        })
    }

    /// Path of the config file, if set.
    pub fn config_path(&self, env: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
        let path = self.config_file.clone().or_else(|| env("CONFIG_FILE").map(OsString::from));
        path.filter(|path| !path.is_empty()).map(PathBuf::from)
    }
}
