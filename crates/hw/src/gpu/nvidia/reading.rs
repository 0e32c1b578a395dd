//! What sensors and counters of a GPU say. Nothing here is guessed: what a GPU does not tell is `None`.

use serde::{Deserialize, Serialize};

/// Sensors and counters of one GPU or MIG device at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reading {
    /// Clock of the multiprocessors, MHz.
    pub sm_clock: Option<u32>,
    /// Clock of the memory, MHz.
    pub memory_clock: Option<u32>,
    /// Temperature of the chip, °C.
    pub temperature: Option<u32>,
    /// Temperature of the memory, °C.
    pub memory_temperature: Option<u32>,
    /// Power, milliwatts.
    pub power: Option<u32>,
    /// Energy since the driver was loaded, millijoules.
    pub energy: Option<u64>,
    /// PCIe packets sent again.
    pub pcie_replays: Option<u32>,
    /// Share of time in which a kernel ran, percent.
    pub utilisation: Option<u32>,
    /// Share of time in which memory was read or written, percent.
    pub memory_utilisation: Option<u32>,
    /// Encoder, percent.
    pub encoder: Option<u32>,
    /// Decoder, percent.
    pub decoder: Option<u32>,
    /// Free memory, bytes.
    pub memory_free: Option<u64>,
    /// Used memory, bytes.
    pub memory_used: Option<u64>,
    /// Memory kept by the driver, bytes.
    pub memory_reserved: Option<u64>,
    /// Data received and sent over all NVLinks, KiB.
    pub nvlink: Option<u64>,
    /// Errors of all NVLinks together.
    pub nvlink_errors: NvLinkErrors,
    /// Whether a vGPU licence is held.
    pub licensed: Option<bool>,
    /// Memory rows replaced after errors that were corrected.
    pub remapped_correctable: Option<u64>,
    /// Memory rows replaced after errors that were not.
    pub remapped_uncorrectable: Option<u64>,
    /// A row waits for a reset to be replaced.
    pub remap_pending: Option<bool>,
    /// A row could not be replaced: the GPU is to be changed.
    pub remap_failed: Option<bool>,
    /// Why the clocks are not higher.
    pub throttle: Option<ThrottleReasons>,
    /// Memory errors since the driver was loaded.
    pub ecc_volatile: EccCounts,
    /// Memory errors of the GPU's life.
    pub ecc_aggregate: EccCounts,
    /// Memory pages taken out of use, on GPUs that do so.
    pub retired: Retired,
    /// Nanoseconds in which a limit held the clocks down.
    pub violations: Violations,
    /// Processes that compute on it.
    pub processes: Option<u32>,
}

/// Memory errors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EccCounts {
    /// Corrected ones.
    pub single: Option<u64>,
    /// Others.
    pub double: Option<u64>,
}

/// Errors of NVLinks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NvLinkErrors {
    /// Checksums of control packets.
    pub crc_flit: Option<u64>,
    /// Checksums of data.
    pub crc_data: Option<u64>,
    /// Packets sent again.
    pub replay: Option<u64>,
    /// Links that came back.
    pub recovery: Option<u64>,
}

/// Memory pages taken out of use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Retired {
    /// After many corrected errors.
    pub single: Option<u64>,
    /// After one that was not corrected.
    pub double: Option<u64>,
    /// Some wait for a reset.
    pub pending: Option<bool>,
}

/// Nanoseconds in which a limit held the clocks down.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Violations {
    /// Power limit.
    pub power: Option<u64>,
    /// Temperature limit.
    pub thermal: Option<u64>,
    /// Waiting for other GPUs of a group.
    pub sync_boost: Option<u64>,
    /// Limit of the board.
    pub board_limit: Option<u64>,
    /// Too little to do.
    pub low_utilisation: Option<u64>,
    /// Limit of what the chip bears for long.
    pub reliability: Option<u64>,
}

/// Why clocks are not higher, as the driver's bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ThrottleReasons(pub u64);

impl ThrottleReasons {
    /// Every reason with a name, and its bit.
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

    /// The reasons that hold.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(bit, _)| self.0 & bit != 0).map(|(_, name)| name)
    }
}

/// Activity of a GPU's units since the last look: shares of 1, and bytes per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Profiling {
    /// Graphics or compute engine.
    pub graphics: Option<f64>,
    /// Multiprocessors with work.
    pub sm_active: Option<f64>,
    /// Warps resident, of those possible.
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

/// What the driver wants done before a GPU is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recovery {
    /// Nothing.
    None,
    /// Reset the GPU.
    Reset,
    /// Reboot the node.
    Reboot,
    /// Stop traffic between GPUs.
    DrainP2p,
    /// Stop traffic and reset.
    DrainAndReset,
}

impl Recovery {
    /// From the driver's number; what we do not know is taken for the gravest.
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
