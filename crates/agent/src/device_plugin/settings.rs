//! Effective settings of the device plugin: flags, environment and config file merged and validated.

use std::path::PathBuf;

use crate::config::{
    AllocationPolicy, Config, DeviceIdStrategy, DeviceListStrategy, DiscoveryStrategy, Flags, InvalidValue,
    MigStrategy, Sharing, SharingStrategy,
};

/// Effective settings of the device plugin.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// MIG strategy.
    pub mig: MigStrategy,
    /// Exit if NVML does not initialise at start.
    pub fail_on_init_error: bool,
    /// Driver root on the host, if set.
    pub driver_root: Option<PathBuf>,
    /// Root of the device nodes on the host, if set.
    pub dev_root: Option<PathBuf>,
    /// Where the driver root is mounted in this container, if set.
    pub container_driver_root: Option<PathBuf>,
    /// Inject GDRCopy.
    pub gdrcopy: bool,
    /// Inject GPUDirect Storage.
    pub gds: bool,
    /// Inject the MOFED device nodes.
    pub mofed: bool,
    /// MPS directory on the host.
    pub mps_root: PathBuf,
    /// Device discovery strategy.
    pub discovery: DiscoveryStrategy,
    /// Return device nodes in the Allocate response.
    pub pass_device_specs: bool,
    /// How containers learn their devices.
    pub device_list: Vec<DeviceListStrategy>,
    /// How devices are identified to containers.
    pub device_id: DeviceIdStrategy,
    /// Prefix of CDI annotations.
    pub cdi_annotation_prefix: String,
    /// Path of the CDI hook on the host.
    pub cdi_hook: PathBuf,
    /// Allocation policy for replicas.
    pub allocation: AllocationPolicy,
    /// IMEX channels to inject.
    pub imex_channels: Vec<u32>,
    /// Exit if an IMEX channel is missing.
    pub imex_required: bool,
    /// Sharing of devices.
    pub sharing: Sharing,
}

impl Settings {
    /// Merges settings: flags and environment over config file over defaults.
    pub fn resolve(flags: Flags, config: Config) -> Result<Self, InvalidValue> {
        let flags = flags.over(config.flags);
        let settings = Self {
            mig: flags.mig_strategy.unwrap_or_default(),
            fail_on_init_error: flags.fail_on_init_error.unwrap_or(true),
            driver_root: flags.driver_root,
            dev_root: flags.dev_root,
            container_driver_root: flags.container_driver_root,
            gdrcopy: flags.gdrcopy.unwrap_or(false),
            gds: flags.gds.unwrap_or(false),
            mofed: flags.mofed.unwrap_or(false),
            mps_root: flags.mps_root.unwrap_or_default(),
            discovery: flags.discovery.unwrap_or_default(),
            pass_device_specs: flags.pass_device_specs.unwrap_or(false),
            device_list: flags.device_list.unwrap_or_else(|| vec![DeviceListStrategy::Envvar]),
            device_id: flags.device_id.unwrap_or_default(),
            cdi_annotation_prefix: flags.cdi_annotation_prefix.unwrap_or_else(|| "cdi.k8s.io/".into()),
            cdi_hook: flags.cdi_hook.unwrap_or_else(|| "/usr/bin/nvidia-ctk".into()),
            allocation: flags.allocation.unwrap_or_default(),
            imex_channels: flags.imex_channels.unwrap_or_default(),
            imex_required: flags.imex_required.unwrap_or(false),
            sharing: config.sharing,
        };
        if settings.sharing.strategy() == SharingStrategy::Mps {
            if settings.mig == MigStrategy::Mixed {
                let why = "cannot be shared through MPS; use none, or share by timeSlicing";
                return Err(InvalidValue::new("migStrategy", "mixed", why));
            }
            if settings.mps_root.as_os_str().is_empty() {
                return Err(InvalidValue::new(
                    "mpsRoot",
                    "''",
                    "is needed for sharing.mps; write the host's directory",
                ));
            }
        }
        Ok(settings)
    }

    /// Whether containers get CDI device names.
    pub fn cdi(&self) -> bool {
        self.device_list.iter().any(|strategy| strategy.cdi())
    }

    /// Whether containers get CDI device names only.
    pub fn only_cdi(&self) -> bool {
        self.device_list.iter().all(|strategy| strategy.cdi())
    }

    /// Whether a device list strategy is enabled.
    pub fn uses(&self, strategy: DeviceListStrategy) -> bool {
        self.device_list.contains(&strategy)
    }
}
