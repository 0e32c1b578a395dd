//! Sensor and counter values of a GPU. A value that a GPU does not report is `None`.

use serde::{Deserialize, Serialize};

/// Sensor and counter values of one GPU or MIG device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reading {
    /// SM clock, MHz.
    pub sm_clock: Option<u32>,
    /// Memory clock, MHz.
    pub memory_clock: Option<u32>,
    /// GPU temperature, °C.
    pub temperature: Option<u32>,
    /// Memory temperature, °C.
    pub memory_temperature: Option<u32>,
    /// Power, milliwatts.
    pub power: Option<u32>,
    /// Energy since the driver was loaded, millijoules.
    pub energy: Option<u64>,
    /// PCIe replay count.
    pub pcie_replays: Option<u32>,
    /// GPU utilisation, percent.
    pub utilisation: Option<u32>,
    /// Memory utilisation, percent.
    pub memory_utilisation: Option<u32>,
    /// Encoder utilisation, percent.
    pub encoder: Option<u32>,
    /// Decoder utilisation, percent.
    pub decoder: Option<u32>,
    /// Free memory, bytes.
    pub memory_free: Option<u64>,
    /// Used memory, bytes.
    pub memory_used: Option<u64>,
    /// Memory reserved by the driver, bytes.
    pub memory_reserved: Option<u64>,
    /// Data received and sent over all NVLinks, KiB.
    pub nvlink: Option<u64>,
    /// Errors of all NVLinks.
    pub nvlink_errors: NvLinkErrors,
    /// Whether a vGPU licence is held.
    pub licensed: Option<bool>,
    /// Rows remapped after correctable errors.
    pub remapped_correctable: Option<u64>,
    /// Rows remapped after uncorrectable errors.
    pub remapped_uncorrectable: Option<u64>,
    /// A row remap is pending until the next reset.
    pub remap_pending: Option<bool>,
    /// Row remapping failed: the GPU must be replaced.
    pub remap_failed: Option<bool>,
    /// Clock throttle reasons.
    pub throttle: Option<ThrottleReasons>,
    /// ECC errors since the driver was loaded.
    pub ecc_volatile: EccCounts,
    /// ECC errors over the lifetime of the GPU.
    pub ecc_aggregate: EccCounts,
    /// Retired memory pages, on GPUs without row remapping.
    pub retired: Retired,
    /// Nanoseconds of throttling.
    pub violations: Violations,
    /// Number of compute processes.
    pub processes: Option<u32>,
}

/// ECC errors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EccCounts {
    /// Corrected.
    pub single: Option<u64>,
    /// Uncorrected.
    pub double: Option<u64>,
}

/// NVLink errors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NvLinkErrors {
    /// CRC errors of flits.
    pub crc_flit: Option<u64>,
    /// CRC errors of data.
    pub crc_data: Option<u64>,
    /// Replays.
    pub replay: Option<u64>,
    /// Recoveries.
    pub recovery: Option<u64>,
}

/// Retired memory pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Retired {
    /// After many corrected errors.
    pub single: Option<u64>,
    /// After an uncorrected error.
    pub double: Option<u64>,
    /// Some are pending until the next reset.
    pub pending: Option<bool>,
}

/// Nanoseconds of throttling, by limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Violations {
    /// Power limit.
    pub power: Option<u64>,
    /// Temperature limit.
    pub thermal: Option<u64>,
    /// Sync boost.
    pub sync_boost: Option<u64>,
    /// Board limit.
    pub board_limit: Option<u64>,
    /// Low utilisation.
    pub low_utilisation: Option<u64>,
    /// Reliability limit.
    pub reliability: Option<u64>,
}

/// Clock throttle reasons, as the driver's bitmask.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ThrottleReasons(pub u64);

impl ThrottleReasons {
    /// Names and bits of the reasons.
    pub const NAMES: [(u64, &str); 9] = [
        (0x1, "gpu_idle"),
        (0x2, "clocks_setting"),
        (0x4, "power_cap"),
        (0x8, "hw_slowdown"),
        (0x10, "sync_boost"),
        (0x20, "sw_thermal"),
        (0x40, "hw_thermal"),
        (0x80, "hw_power_brake"),
        (0x100, "display_clocks"),
    ];

    /// The active reasons.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(bit, _)| self.0 & bit != 0).map(|(_, name)| name)
    }
}

/// Profiling metrics since the previous sample: ratios from 0 to 1, and bytes per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Profiling {
    /// Graphics or compute engine.
    pub graphics: Option<f64>,
    /// SM activity.
    pub sm_active: Option<f64>,
    /// SM occupancy.
    pub sm_occupancy: Option<f64>,
    /// Tensor cores.
    pub tensor: Option<f64>,
    /// Memory interface.
    pub dram: Option<f64>,
    /// FP64 pipe.
    pub fp64: Option<f64>,
    /// FP32 pipe.
    pub fp32: Option<f64>,
    /// FP16 pipe.
    pub fp16: Option<f64>,
    /// Sent over PCIe, bytes per second.
    pub pcie_tx: Option<f64>,
    /// Received over PCIe, bytes per second.
    pub pcie_rx: Option<f64>,
    /// Sent over NVLink, bytes per second.
    pub nvlink_tx: Option<f64>,
    /// Received over NVLink, bytes per second.
    pub nvlink_rx: Option<f64>,
}

/// Recovery action that the driver requires before a GPU is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recovery {
    /// Nothing.
    None,
    /// Reset the GPU.
    Reset,
    /// Reboot the node.
    Reboot,
    /// Drain peer-to-peer traffic.
    DrainP2p,
    /// Drain and reset.
    DrainAndReset,
}

impl Recovery {
    /// From the driver's number; unknown actions map to the most severe.
    pub fn from_number(number: u64) -> Self {
        match number {
            0 => Self::None,
            1 => Self::Reset,
            3 => Self::DrainP2p,
            4 => Self::DrainAndReset,
            _ => Self::Reboot,
        }
    }
}
