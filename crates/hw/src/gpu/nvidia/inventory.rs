//! What hardware there is, as plain data: the shape of a recording, and of every decision's input.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::pci::PciAddress;

/// The driver of a node and the GPUs that it drives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Inventory {
    /// Version of the kernel driver, such as `580.65.06`.
    pub driver: String,
    /// Version of the NVML library.
    pub nvml: String,
    /// The newest CUDA that the driver supports.
    pub cuda: CudaVersion,
    /// GPUs in NVML's order.
    pub gpus: Vec<Gpu>,
    /// GPUs that NVML counts and that do not answer: the others are none the worse for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<LostGpu>,
}

/// A GPU that fell off the bus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostGpu {
    /// Place in NVML's order.
    pub index: u32,
    /// `GPU-…`, where it could still be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
}

impl Inventory {
    /// A node of which nothing is known.
    pub fn nothing() -> Self {
        let cuda = CudaVersion { major: 0, minor: 0 };
        Self { driver: String::new(), nvml: String::new(), cuda, gpus: Vec::new(), lost: Vec::new() }
    }
}

/// A CUDA version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CudaVersion {
    /// 13 of 13.0.
    pub major: u32,
    /// 0 of 13.0.
    pub minor: u32,
}

impl CudaVersion {
    /// From the number that the driver gives: 13000 for 13.0, 12080 for 12.8.
    pub fn from_number(number: i32) -> Self {
        let number = u32::try_from(number).unwrap_or_default();
        Self { major: number / 1000, minor: number % 1000 / 10 }
    }
}

impl fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// What a GPU can execute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ComputeCapability {
    /// 9 of 9.0.
    pub major: u32,
    /// 0 of 9.0.
    pub minor: u32,
}

/// One GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gpu {
    /// Place in NVML's order.
    pub index: u32,
    /// `GPU-…`.
    pub uuid: String,
    /// Number of its device node: `/dev/nvidia<minor>`, not always the index.
    pub minor: u32,
    /// Product name, such as `NVIDIA H200`.
    pub name: String,
    /// Product line, such as `Nvidia` or `Tesla`, where NVML tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brand: Option<String>,
    /// Serial number of the board.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Version of the video BIOS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vbios: Option<String>,
    /// Version of the whole inforom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inforom: Option<String>,
    /// Versions of the inforom's parts: OEM, ECC, power.
    #[serde(default)]
    pub inforom_parts: [Option<String>; 3],
    /// Where it is on the PCI bus.
    pub pci: PciAddress,
    /// Device id in the upper half, vendor id (`0x10de`) in the lower.
    pub pci_device: u32,
    /// Subsystem id, laid out the same way.
    pub pci_subsystem: u32,
    /// All of its memory, reserved parts included.
    pub memory_bytes: u64,
    /// What it can execute.
    pub compute: ComputeCapability,
    /// Whether it is or may be cut into MIG devices.
    pub mig: MigMode,
    /// Its MIG devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mig_devices: Vec<MigDevice>,
    /// The NVLink fabric that it is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric: Option<Fabric>,
    /// How it addresses the host's memory, where the driver tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addressing: Option<Addressing>,
    /// NVLinks that are up, by what is at their other end.
    #[serde(default)]
    pub nvlinks: u32,
    /// Whether those links end in a switch, which joins all GPUs of the fabric.
    #[serde(default)]
    pub nvswitch: bool,
    /// Whether it samples its units' activity (Hopper and newer).
    #[serde(default)]
    pub gpm: bool,
    /// Whether this is a virtual GPU of a hypervisor.
    #[serde(default)]
    pub virtual_gpu: bool,
}

impl Gpu {
    /// Memory in MiB, as labels and MIG names count it.
    pub fn memory_mib(&self) -> u64 {
        self.memory_bytes >> 20
    }

    /// Whether it is cut into MIG devices (though there may be none yet).
    pub fn mig_enabled(&self) -> bool {
        matches!(self.mig, MigMode::Enabled { .. })
    }

    /// Part of the processor, as Tegra and Thor have it, without a device of its own on PCI.
    pub fn integrated(&self) -> bool {
        self.name.contains("(nvgpu)") || self.name.contains("NVIDIA Thor")
    }
}

/// Whether a GPU is cut into MIG devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MigMode {
    /// This GPU has no MIG.
    Unsupported,
    /// It is one GPU.
    Disabled {
        /// It will be cut up after the next reset.
        pending: bool,
    },
    /// It is cut up.
    Enabled {
        /// It will be one GPU again after the next reset.
        pending_off: bool,
    },
}

/// A part of a GPU that acts as one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MigDevice {
    /// Place among the MIG devices of its GPU; places may be empty.
    pub index: u32,
    /// `MIG-…`.
    pub uuid: String,
    /// GPU instance.
    pub gi: u32,
    /// Compute instance inside it.
    pub ci: u32,
    /// What it is made of.
    pub slices: MigSlices,
    /// Name of its profile, such as `1g.18gb` or `1g.18gb+me`.
    pub profile: String,
}

/// What a MIG device is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigSlices {
    /// Slices of the GPU.
    pub gpu: u32,
    /// Slices of computing.
    pub compute: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Copy engines, whole or shared.
    pub copy_engines: u32,
    /// Video decoders.
    pub decoders: u32,
    /// Video encoders.
    pub encoders: u32,
    /// JPEG engines.
    pub jpeg: u32,
    /// Optical flow engines.
    pub ofa: u32,
}

/// Membership in an NVLink fabric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fabric {
    /// The cluster of switches, all zeroes where there is none.
    pub cluster: String,
    /// Those that can reach each other inside it.
    pub clique: u32,
    /// The GPU has finished joining, without an error.
    pub joined: bool,
}

/// How a GPU reaches the host's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Addressing {
    /// In no shared way.
    None,
    /// By software, page by page.
    Hmm,
    /// By hardware, as Grace does.
    Ats,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuda_numbers_are_read() {
        let shown: Vec<String> = [13000, 12080, 12010].map(|n| CudaVersion::from_number(n).to_string()).into();
        assert_eq!(shown, ["13.0", "12.8", "12.1"]);
    }
}
