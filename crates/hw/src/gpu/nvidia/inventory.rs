//! GPUs and driver as plain data: the input of every decision, and part of a recording.

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
    /// GPUs that NVML counts but that do not respond; the others are not affected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<LostGpu>,
}

/// A GPU that fell off the bus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostGpu {
    /// NVML index.
    pub index: u32,
    /// `GPU-…`, if still readable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
}

impl Inventory {
    /// An empty inventory.
    pub fn empty() -> Self {
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
    /// Parses the driver's number: 13000 for 13.0, 12080 for 12.8.
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

/// Compute capability.
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
    /// NVML index.
    pub index: u32,
    /// `GPU-…`.
    pub uuid: String,
    /// Minor number of its device node: `/dev/nvidia<minor>`, not always the index.
    pub minor: u32,
    /// Product name, such as `NVIDIA H200`.
    pub name: String,
    /// Product line, such as `Nvidia` or `Tesla`, if known.
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
    /// Inforom versions: OEM, ECC, power.
    #[serde(default)]
    pub inforom_parts: [Option<String>; 3],
    /// PCI address.
    pub pci: PciAddress,
    /// Device ID in the upper half, vendor ID (`0x10de`) in the lower.
    pub pci_device: u32,
    /// Subsystem ID, in the same layout.
    pub pci_subsystem: u32,
    /// Total memory, reserved parts included.
    pub memory_bytes: u64,
    /// Compute capability.
    pub compute: ComputeCapability,
    /// MIG mode.
    pub mig: MigMode,
    /// Its MIG devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mig_devices: Vec<MigDevice>,
    /// Its NVLink fabric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric: Option<Fabric>,
    /// Addressing mode of host memory, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addressing: Option<Addressing>,
    /// Number of active NVLinks.
    #[serde(default)]
    pub nvlinks: u32,
    /// Whether these links end in an NVSwitch, which connects all GPUs of the fabric.
    #[serde(default)]
    pub nvswitch: bool,
    /// Whether it supports GPM (Hopper and newer).
    #[serde(default)]
    pub gpm: bool,
    /// Whether it is a vGPU of a hypervisor.
    #[serde(default)]
    pub virtual_gpu: bool,
}

impl Gpu {
    /// Memory in MiB, as labels and MIG names count it.
    pub fn memory_mib(&self) -> u64 {
        self.memory_bytes >> 20
    }

    /// Whether MIG is enabled (there may be no MIG devices yet).
    pub fn mig_enabled(&self) -> bool {
        matches!(self.mig, MigMode::Enabled { .. })
    }

    /// An integrated GPU, as on Tegra and Thor, without a PCI device.
    pub fn integrated(&self) -> bool {
        self.name.contains("(nvgpu)") || self.name.contains("NVIDIA Thor")
    }
}

/// MIG mode of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MigMode {
    /// MIG not supported.
    Unsupported,
    /// MIG disabled.
    Disabled {
        /// Enabled after the next reset.
        pending: bool,
    },
    /// MIG enabled.
    Enabled {
        /// Disabled after the next reset.
        pending_off: bool,
    },
}

/// A MIG device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MigDevice {
    /// Index among the MIG devices of its GPU; there may be gaps.
    pub index: u32,
    /// `MIG-…`.
    pub uuid: String,
    /// GPU instance.
    pub gi: u32,
    /// Compute instance.
    pub ci: u32,
    /// Its slices and engines.
    pub slices: MigSlices,
    /// Name of its profile, such as `1g.18gb` or `1g.18gb+me`.
    pub profile: String,
}

/// Slices and engines of a MIG device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigSlices {
    /// GPU slices.
    pub gpu: u32,
    /// Compute slices.
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
    /// Cluster UUID, all zeroes without one.
    pub cluster: String,
    /// Clique: the GPUs that can reach each other.
    pub clique: u32,
    /// Registration is complete, without an error.
    pub joined: bool,
}

/// How a GPU addresses host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Addressing {
    /// No shared addressing.
    None,
    /// Heterogeneous Memory Management, in software.
    Hmm,
    /// Address Translation Services, in hardware, as with Grace.
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
