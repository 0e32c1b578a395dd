//! What the device plugin does in effect: every value decided, and checked with the others.

use std::path::PathBuf;

use crate::config::{
    AllocationPolicy, Config, DeviceIdStrategy, DeviceListStrategy, DiscoveryStrategy, Flags, MigStrategy, Sharing,
    SharingStrategy, Wrong,
};

/// What the device plugin does.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// How MIG devices are offered.
    pub mig: MigStrategy,
    /// A driver that does not answer at the start ends the process.
    pub fail_on_init_error: bool,
    /// Where the driver is on the host, where that was said.
    pub driver_root: Option<PathBuf>,
    /// Where the root of the devices is on the host, where that was said.
    pub dev_root: Option<PathBuf>,
    /// Where the driver's root is mounted for us, where that was said.
    pub container_driver_root: Option<PathBuf>,
    /// Containers get GDRCopy.
    pub gdrcopy: bool,
    /// Containers get GPUDirect Storage.
    pub gds: bool,
    /// Containers get the network adapters' driver.
    pub mofed: bool,
    /// Where the MPS directory is on the host.
    pub mps_root: PathBuf,
    /// How GPUs are found.
    pub discovery: DiscoveryStrategy,
    /// Device nodes are part of the answer.
    pub pass_device_specs: bool,
    /// How containers are told their devices.
    pub device_list: Vec<DeviceListStrategy>,
    /// How devices are named to containers.
    pub device_id: DeviceIdStrategy,
    /// What annotations with CDI names begin with.
    pub cdi_annotation_prefix: String,
    /// The hook program on the host.
    pub cdi_hook: PathBuf,
    /// Which replicas are chosen first.
    pub allocation: AllocationPolicy,
    /// IMEX channels that containers get.
    pub imex_channels: Vec<u32>,
    /// A missing channel ends the process.
    pub imex_required: bool,
    /// How devices are shared.
    pub sharing: Sharing,
}

impl Settings {
    /// What command line and environment say, above what the config file says, above the defaults.
    pub fn resolve(said: Flags, config: Config) -> Result<Self, Wrong> {
        let flags = said.over(config.flags);
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
                return Err(Wrong::new("migStrategy", "mixed", why));
            }
            if settings.mps_root.as_os_str().is_empty() {
                return Err(Wrong::new("mpsRoot", "''", "is needed for sharing.mps; write the host's directory"));
            }
        }
        Ok(settings)
    }

    /// Whether containers get CDI names.
    pub fn cdi(&self) -> bool {
        self.device_list.iter().any(|strategy| strategy.cdi())
    }

    /// Whether containers get nothing else.
    pub fn only_cdi(&self) -> bool {
        self.device_list.iter().all(|strategy| strategy.cdi())
    }

    /// Whether a strategy is used.
    pub fn uses(&self, strategy: DeviceListStrategy) -> bool {
        self.device_list.contains(&strategy)
    }
}
