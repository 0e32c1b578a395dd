//! Flags of feature discovery, and what they mean together with the config file.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

use crate::config::{self, Flags, Interval, MigStrategy, Sharing, boolean, one_of};
use crate::{Error, Result};

/// How GPUs are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Strategy {
    /// In the way that fits the machine.
    #[default]
    Auto,
    /// Through NVML.
    Nvml,
    /// As part of the processor.
    Tegra,
    /// On the PCI bus, given to virtual machines.
    Vfio,
}

/// Flags of feature discovery.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Options {
    /// How MIG devices are offered: none, single or mixed.
    #[arg(long, env = "GFD_MIG_STRATEGY")]
    pub mig_strategy: Option<String>,
    /// A driver that does not answer ends the process.
    #[arg(long, env = "GFD_FAIL_ON_INIT_ERROR", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub fail_on_init_error: Option<bool>,
    /// Labels are written once.
    #[arg(long, env = "GFD_ONESHOT", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub oneshot: Option<bool>,
    /// No label says when they were written.
    #[arg(long, env = "GFD_NO_TIMESTAMP", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub no_timestamp: Option<bool>,
    /// How often the hardware is looked at: 60s, infinite.
    #[arg(long, env = "GFD_SLEEP_INTERVAL")]
    pub sleep_interval: Option<String>,
    /// Where labels are written; standard output when empty.
    #[arg(long, short = 'o', alias = "output", env = "GFD_OUTPUT_FILE")]
    pub output_file: Option<OsString>,
    /// What says which machine this is.
    #[arg(long, env = "GFD_MACHINE_TYPE_FILE")]
    pub machine_type_file: Option<OsString>,
    /// The config file that the device plugin has too.
    #[arg(long, env = "GFD_CONFIG_FILE")]
    pub config_file: Option<OsString>,
    /// Labels go into a NodeFeature object.
    #[arg(long, env = "GFD_USE_NODE_FEATURE_API", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub use_node_feature_api: Option<bool>,
    /// How GPUs are found.
    #[arg(long, env = "DEVICE_DISCOVERY_STRATEGY", value_enum, default_value = "auto")]
    pub device_discovery_strategy: Strategy,
    /// Taken for compatibility: the agent reads the same variable for all of its roles.
    #[arg(long, env = "DRIVER_ROOT_CTR_PATH")]
    pub driver_root_ctr_path: Option<PathBuf>,
    /// How the API server is reached, outside of a cluster.
    #[arg(long, env = "KUBECONFIG")]
    pub kubeconfig: Option<OsString>,
    /// Taken for compatibility: there are at most two requests in each interval.
    #[arg(long, default_value_t = 5.0)]
    pub kube_api_qps: f64,
    /// Taken for compatibility.
    #[arg(long, default_value_t = 10)]
    pub kube_api_burst: u32,
    /// Namespace of the NodeFeature object.
    #[arg(long, env = "NAMESPACE", default_value = "default")]
    pub namespace: String,
    /// This node.
    #[arg(long, env = "NODE_NAME", default_value = "")]
    pub node_name: String,
    /// The pod of this process, whose owner the object gets.
    #[arg(long, env = "POD_NAME", default_value = "")]
    pub pod_name: String,
    /// Also says what the node is besides its GPUs, for clusters without Node Feature Discovery.
    #[arg(long, env = "NODE_FEATURES", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub node_features: Option<bool>,
    /// Labels the node itself instead of an object.
    #[arg(long, env = "LABEL_NODE", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub label_node: Option<bool>,
    /// Takes the labels away when told to end.
    #[arg(long, env = "WITHDRAW_ON_EXIT", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub withdraw_on_exit: Option<bool>,
}

/// What holds after flags, environment and file were put together.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// How MIG devices are offered.
    pub mig: MigStrategy,
    /// How devices are shared.
    pub sharing: Sharing,
    /// A driver that does not answer ends the process.
    pub fail_on_init_error: bool,
    /// Labels are written once.
    pub oneshot: bool,
    /// A label says when they were written.
    pub timestamp: bool,
    /// How long until the next look; `None` for only when something happens.
    pub interval: Option<Duration>,
    /// Where labels are written; `None` for standard output.
    pub output: Option<PathBuf>,
    /// What says which machine this is.
    pub machine_type_file: PathBuf,
    /// Labels go into an object.
    pub object: bool,
    /// Labels go onto the node.
    pub label_node: bool,
}

impl Options {
    /// What holds, with the text of the config file and the environment.
    pub fn settings(&self, file: &str, env: impl Fn(&str) -> Option<String>) -> Result<Settings> {
        let parsed = config::parse(file)?;
        parsed.remarks.iter().for_each(|remark| tracing::warn!(remark, "config file remark"));
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
        // Names that feature discovery shares with the device plugin come after its own.
        let mig = self.mig_strategy.clone().or_else(|| env("MIG_STRATEGY")).filter(|text| !text.is_empty());
        let said = Flags {
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
        let flags = said.over(parsed.config.flags);
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

    /// Where the config file is, if there is one.
    pub fn config_path(&self, env: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
        let said = self.config_file.clone().or_else(|| env("CONFIG_FILE").map(OsString::from));
        said.filter(|path| !path.is_empty()).map(PathBuf::from)
    }
}
