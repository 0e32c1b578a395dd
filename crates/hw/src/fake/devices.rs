//! Descriptions of the devices of a fake node: PCI devices with their interfaces and VFs, and kernel modules.
//!
//! [`super::Root`] adds them to a tree, and [`super::Kernel`] shows them in sysfs and procfs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::gpu::nvidia::Gpu;
use crate::pci::{MELLANOX, NVIDIA, PciAddress};

/// A device on the PCI bus, whether or not it is currently in sysfs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PciDevice {
    /// Its address.
    pub address: PciAddress,
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// PCI class.
    pub class: u32,
    /// The driver that matches its IDs.
    pub driver: Option<String>,
    /// Its NUMA node.
    pub numa: Option<u32>,
    /// Its IOMMU group.
    pub iommu_group: Option<u32>,
    /// The VFs that it can have.
    pub vfs: Option<Vfs>,
    /// The network interface that its driver creates.
    pub net: Option<Port>,
    /// The RDMA device that its driver creates.
    pub rdma: Option<String>,
    /// The PF, if it is a VF.
    pub(super) physical_function: Option<PciAddress>,
}

/// The VFs that a device can have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vfs {
    /// `sriov_totalvfs`.
    pub total: u32,
    /// Device ID of each.
    pub device: u16,
    /// Offset of the first VF, in functions.
    pub offset: u32,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// Its hardware address.
    pub address: String,
    /// Maximum transmission unit.
    pub mtu: u32,
    /// Operational state, such as `up`.
    pub operstate: String,
    /// `phys_switch_id` and `phys_port_name`.
    pub switch: Option<(String, String)>,
}

/// A kernel module that can be loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleFile {
    /// Its name, with underscores.
    pub name: String,
    /// Its version, where it has one.
    pub version: Option<String>,
    /// Modules that it needs.
    pub depends: Vec<String>,
    /// Its parameters and their defaults.
    pub parameters: BTreeMap<String, String>,
    /// PCI drivers that it registers.
    pub drivers: Vec<String>,
}

impl PciDevice {
    /// A device with only its IDs.
    pub fn new(address: PciAddress, vendor: u16, device: u16, class: u32) -> Self {
        Self {
            address,
            vendor,
            device,
            class,
            driver: None,
            numa: None,
            iommu_group: None,
            vfs: None,
            net: None,
            rdma: None,
            physical_function: None,
        }
    }

    /// A GPU.
    pub fn gpu(gpu: &Gpu) -> Self {
        let device = u16::try_from(gpu.pci_device >> 16).unwrap_or_default();
        Self {
            driver: Some("nvidia".into()),
            numa: Some(u32::from(gpu.index >= 4)),
            iommu_group: Some(40 + gpu.index),
            ..Self::new(gpu.pci.clone(), NVIDIA, device, 0x03_0200)
        }
    }

    /// A port of a ConnectX-7 with up to eight VFs.
    pub fn connectx7(address: PciAddress, interface: &str, rdma: &str) -> Self {
        // Bus, device and function are the last five digits.
        let digits: String = address.as_str().chars().filter(char::is_ascii_hexdigit).collect();
        let (digits, function) = digits.split_at(digits.len() - 1);
        let (digits, slot) = digits.split_at(digits.len() - 2);
        let bus = &digits[digits.len() - 2..];
        let port = Port {
            name: interface.into(),
            address: format!("b8:3f:d2:{bus}:{slot}:0{function}"),
            mtu: 1500,
            operstate: "up".into(),
            switch: None,
        };
        Self {
            driver: Some("mlx5_core".into()),
            numa: Some(0),
            iommu_group: Some(10),
            vfs: Some(Vfs { total: 8, device: 0x101e, offset: 2 }),
            net: Some(port),
            rdma: Some(rdma.into()),
            ..Self::new(address, MELLANOX, 0x1021, 0x02_0000)
        }
    }
}

impl ModuleFile {
    /// A module without dependencies.
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}
