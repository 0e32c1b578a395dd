//! Flags of the device plugin: the names and variables that existing deployments use.

use std::path::PathBuf;

use capstan_kubelet::device_plugin::SOCKET;

use crate::Cx;
use crate::config::{
    AllocationPolicy, Choices, DeviceIdStrategy, DeviceListStrategy, DiscoveryStrategy, Flags, InvalidValue,
    MigStrategy, boolean, imex_channels, one_of,
};

/// Flags of the device plugin. What is not set here is taken from the config file, or else has its default.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Options {
    /// MIG strategy: none, single or mixed.
    #[arg(long, env = "MIG_STRATEGY")]
    pub mig_strategy: Option<String>,
    /// Exit if NVML does not initialise at start.
    #[arg(long, env = "FAIL_ON_INIT_ERROR", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub fail_on_init_error: Option<bool>,
    /// Driver root on the host.
    #[arg(long, alias = "nvidia-driver-root", env = "NVIDIA_DRIVER_ROOT")]
    pub driver_root: Option<PathBuf>,
    /// Root of the device nodes on the host.
    #[arg(long, alias = "nvidia-dev-root", env = "NVIDIA_DEV_ROOT")]
    pub dev_root: Option<PathBuf>,
    /// Where the driver root is mounted in this container.
    #[arg(long, env = "DRIVER_ROOT_CTR_PATH")]
    pub driver_root_ctr_path: Option<PathBuf>,
    /// Deprecated alias of the previous flag.
    #[arg(long, env = "CONTAINER_DRIVER_ROOT", hide = true)]
    pub container_driver_root: Option<PathBuf>,
    /// Return device nodes in the Allocate response, for the kubelet's CPU manager.
    #[arg(long, env = "PASS_DEVICE_SPECS", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub pass_device_specs: Option<bool>,
    /// How containers learn their devices: envvar, volume-mounts, cdi-annotations, cdi-cri, or several of them.
    #[arg(long, env = "DEVICE_LIST_STRATEGY")]
    pub device_list_strategy: Option<String>,
    /// How devices are identified to containers: uuid or index.
    #[arg(long, env = "DEVICE_ID_STRATEGY")]
    pub device_id_strategy: Option<String>,
    /// Inject GDRCopy.
    #[arg(long, env = "GDRCOPY_ENABLED", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub gdrcopy_enabled: Option<bool>,
    /// Inject GPUDirect Storage.
    #[arg(long, env = "GDS_ENABLED", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub gds_enabled: Option<bool>,
    /// Inject the MOFED device nodes.
    #[arg(long, env = "MOFED_ENABLED", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub mofed_enabled: Option<bool>,
    /// What annotations with CDI names begin with.
    #[arg(long, env = "CDI_ANNOTATION_PREFIX")]
    pub cdi_annotation_prefix: Option<String>,
    /// The hook program on the host.
    #[arg(long, env = "NVIDIA_CDI_HOOK_PATH")]
    pub nvidia_cdi_hook_path: Option<PathBuf>,
    /// Deprecated alias of the previous flag.
    #[arg(long, env = "NVIDIA_CTK_PATH", hide = true)]
    pub nvidia_ctk_path: Option<PathBuf>,
    /// MPS directory on the host.
    #[arg(long, env = "MPS_ROOT")]
    pub mps_root: Option<PathBuf>,
    /// Allocation policy for replicas of shared devices: distributed or packed.
    #[arg(long, env = "SHARED_DEVICES_ALLOCATION_POLICY")]
    pub shared_devices_allocation_policy: Option<String>,
    /// Device discovery strategy: auto, nvml or tegra.
    #[arg(long, env = "DEVICE_DISCOVERY_STRATEGY")]
    pub device_discovery_strategy: Option<String>,
    /// IMEX channels to inject: none, or 0.
    #[arg(long, env = "IMEX_CHANNEL_IDS")]
    pub imex_channel_ids: Option<String>,
    /// Exit if an IMEX channel is missing.
    #[arg(long, env = "IMEX_REQUIRED", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub imex_required: Option<bool>,
    /// The kubelet's socket; empty to serve without registering.
    #[arg(long, env = "KUBELET_SOCKET", default_value = SOCKET)]
    pub kubelet_socket: String,
    /// The config file.
    #[arg(long, env = "CONFIG_FILE")]
    pub config_file: Option<PathBuf>,
    /// Features of the CDI specs.
    #[arg(long, env = "CDI_FEATURE_FLAGS", value_delimiter = ',')]
    pub cdi_feature_flags: Vec<String>,
    /// Disabled hooks of CDI specs.
    #[arg(long, env = "CDI_DISABLE_HOOKS", value_delimiter = ',')]
    pub cdi_disable_hooks: Vec<String>,
    /// XIDs that do not mark a GPU unhealthy, or `all`.
    #[arg(long, env = "DP_DISABLE_HEALTHCHECKS", hide = true)]
    pub disable_healthchecks: Option<String>,
    /// XIDs that always do, or `all`; takes precedence.
    #[arg(long, env = "DP_ENABLE_HEALTHCHECKS", hide = true)]
    pub enable_healthchecks: Option<String>,
    /// Seconds without an event after which a GPU is healthy again.
    #[arg(long, env = "HEALTHY_AFTER_SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub healthy_after_seconds: u64,
    /// Name of this node, for its label that names a config.
    #[arg(long, env = "NODE_NAME", default_value = "")]
    pub node_name: String,
    /// Label of the node that names its config.
    #[arg(long, env = "NODE_LABEL", default_value = capstan_node::labels::DEVICE_PLUGIN_CONFIG)]
    pub node_label: String,
    /// Directory with a config file per name; the node's label chooses one.
    #[arg(long, env = "CONFIG_FILE_SRCDIR")]
    pub config_file_srcdir: Option<PathBuf>,
    /// Name of the config of a node without the label.
    #[arg(long, env = "DEFAULT_CONFIG", default_value = "")]
    pub default_config: String,
    /// Fallbacks for a node without label and default config, in this order: named, single, empty.
    #[arg(long, env = "FALLBACK_STRATEGIES", value_delimiter = ',')]
    pub fallback_strategies: Vec<String>,
}

/// Parses a flag with fixed choices; an empty value counts as unset.
pub(crate) fn word<T: Copy>(flag: &str, text: Option<&str>, choices: Choices<T>) -> Result<Option<T>, InvalidValue> {
    text.filter(|text| !text.is_empty()).map(|text| one_of(flag, text, choices)).transpose()
}

impl Options {
    /// Resolves paths with [`Cx::path`].
    pub(super) fn within(self, cx: &Cx) -> Self {
        Self {
            driver_root_ctr_path: cx.path_of(self.driver_root_ctr_path),
            container_driver_root: cx.path_of(self.container_driver_root),
            kubelet_socket: cx.path(self.kubelet_socket.as_ref()).to_string_lossy().into_owned(),
            config_file: cx.path_of(self.config_file),
            config_file_srcdir: cx.path_of(self.config_file_srcdir),
            ..self
        }
    }

    /// Flags set on the command line or by environment variables.
    pub fn flags(&self) -> Result<Flags, InvalidValue> {
        let list = self.device_list_strategy.as_deref().filter(|list| !list.is_empty());
        let path = |path: &Option<PathBuf>| path.clone().filter(|path| !path.as_os_str().is_empty());
        Ok(Flags {
            mig_strategy: word("--mig-strategy", self.mig_strategy.as_deref(), MigStrategy::CHOICES)?,
            fail_on_init_error: self.fail_on_init_error,
            driver_root: path(&self.driver_root),
            dev_root: path(&self.dev_root),
            container_driver_root: path(&self.driver_root_ctr_path).or_else(|| path(&self.container_driver_root)),
            gdrcopy: self.gdrcopy_enabled,
            gds: self.gds_enabled,
            mofed: self.mofed_enabled,
            mps_root: path(&self.mps_root),
            discovery: word(
                "--device-discovery-strategy",
                self.device_discovery_strategy.as_deref(),
                DiscoveryStrategy::CHOICES,
            )?,
            pass_device_specs: self.pass_device_specs,
            device_list: list.map(|list| DeviceListStrategy::list("--device-list-strategy", list)).transpose()?,
            device_id: word("--device-id-strategy", self.device_id_strategy.as_deref(), DeviceIdStrategy::CHOICES)?,
            cdi_annotation_prefix: self.cdi_annotation_prefix.clone(),
            cdi_hook: path(&self.nvidia_cdi_hook_path).or_else(|| path(&self.nvidia_ctk_path)),
            allocation: word(
                "--shared-devices-allocation-policy",
                self.shared_devices_allocation_policy.as_deref(),
                AllocationPolicy::CHOICES,
            )?,
            imex_channels: self.imex_channel_ids.as_deref().map(channels).transpose()?,
            imex_required: self.imex_required,
            ..Flags::default()
        })
    }
}

/// Parses a comma-separated channel list, with or without brackets.
fn channels(text: &str) -> Result<Vec<u32>, InvalidValue> {
    let flag = "--imex-channel-ids";
    let words = text.trim().trim_start_matches('[').trim_end_matches(']').split(',').map(str::trim);
    let numbers = words.filter(|word| !word.is_empty()).map(|word| {
        word.parse()
            .map_err(|_| InvalidValue::new(flag, format!("'{text}'"), "is no list of channels; write 0 or nothing"))
    });
    imex_channels(flag, numbers.collect::<Result<_, InvalidValue>>()?)
}
