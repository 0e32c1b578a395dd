//! PCI devices in sysfs, below a given root: read with [`devices`], changed through [`Bus`] and [`VirtualFunctions`].

mod address;
mod bus;
mod sriov;

use std::path::{Path, PathBuf};

use crate::sysfs::{hex, link, names, number, text};
use crate::{Error, Result};

pub use address::PciAddress;
pub use bus::Bus;
pub use sriov::VirtualFunctions;

/// Vendor ID of NVIDIA.
pub const NVIDIA: u16 = 0x10de;
/// Vendor ID of Mellanox, now part of NVIDIA.
pub const MELLANOX: u16 = 0x15b3;

/// Directory of devices in sysfs.
const DEVICES: &str = "sys/bus/pci/devices";

/// One PCI device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its address.
    pub address: PciAddress,
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Class, subclass, interface.
    pub class: u32,
    /// Kernel driver that is bound to it.
    pub driver: Option<String>,
    /// The only driver that may be bound to it, regardless of IDs.
    pub driver_override: Option<String>,
    /// IOMMU group: its devices can only be assigned to a virtual machine together.
    pub iommu_group: Option<u32>,
    /// Its NUMA node.
    pub numa: Option<u32>,
    /// Total and current number of VFs, if SR-IOV capable.
    pub sriov: Option<(u32, u32)>,
    /// Whether it is a VF.
    pub virtual_function: bool,
    /// Its sysfs directory, for other attributes.
    pub path: PathBuf,
}

impl Device {
    /// Whether it is an NVIDIA GPU: a display or 3D controller.
    pub fn is_gpu(&self) -> bool {
        self.vendor == NVIDIA && matches!(self.class >> 8, 0x0300 | 0x0302)
    }

    /// The first 256 bytes of its config space, or the part that is readable without privileges.
    pub fn config(&self) -> Result<Vec<u8>> {
        use std::io::Read;
        let path = self.path.join("config");
        let mut bytes = Vec::new();
        let read = std::fs::File::open(&path).and_then(|file| file.take(256).read_to_end(&mut bytes));
        read.map_err(|error| Error::File { path, why: error.to_string() })?;
        Ok(bytes)
    }
}

/// All PCI devices below `<root>/sys`, by address; none without PCI.
pub fn devices(root: &Path) -> Result<Vec<Device>> {
    let dir = root.join(DEVICES);
    // A device may be removed meanwhile: skip one without a vendor.
    let mut devices: Vec<Device> = names(&dir)?.iter().filter_map(|name| device(&dir.join(name))).collect();
    devices.sort_by(|a, b| a.address.cmp(&b.address));
    Ok(devices)
}

fn device(path: &Path) -> Option<Device> {
    let address = PciAddress::parse(path.file_name()?.to_str()?)?;
    let totals = number(path, "sriov_totalvfs").zip(number(path, "sriov_numvfs"));
    Some(Device {
        address,
        vendor: hex(path, "vendor")? as u16,
        device: hex(path, "device")? as u16,
        class: hex(path, "class")?,
        driver: link(path, "driver"),
        driver_override: text(path, "driver_override").filter(|name| !name.is_empty() && name != "(null)"),
        iommu_group: link(path, "iommu_group").and_then(|group| group.parse().ok()),
        numa: number(path, "numa_node"),
        sriov: totals,
        virtual_function: path.join("physfn").exists(),
        path: path.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_pci_has_no_devices() {
        let root = tempfile::tempdir().expect("a directory");
        assert_eq!(devices(root.path()), Ok(Vec::new()));
    }

    #[test]
    fn a_gpu_is_read_with_driver_and_numa_node() {
        let root = tempfile::tempdir().expect("a directory");
        let dir = root.path().join("sys/bus/pci/devices/0000:65:00.0");
        std::fs::create_dir_all(&dir).expect("a directory");
        let files = [
            ("vendor", "0x10de\n"),
            ("device", "0x2335\n"),
            ("class", "0x030200\n"),
            ("numa_node", "-1\n"),
            ("sriov_totalvfs", "16"),
            ("sriov_numvfs", "0"),
        ];
        for (name, text) in files {
            std::fs::write(dir.join(name), text).expect("a file");
        }
        std::os::unix::fs::symlink("../../../../bus/pci/drivers/vfio-pci", dir.join("driver")).expect("a link");
        let found = devices(root.path()).expect("readable");
        let [gpu] = &found[..] else { panic!("{found:?}") };
        assert!(gpu.is_gpu());
        assert_eq!((gpu.driver.as_deref(), gpu.numa, gpu.sriov), (Some("vfio-pci"), None, Some((16, 0))));
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
        #[test]
        fn any_file_of_the_kernel_is_answered(name in "[0-9a-f][0-9a-f:.x]{0,13}", text in "[ -~\n]{0,20}") {
            let root = tempfile::tempdir().expect("a directory");
            let dir = root.path().join("sys/bus/pci/devices").join(&name);
            std::fs::create_dir_all(&dir).expect("a directory");
            for file in ["vendor", "device", "class", "numa_node", "sriov_totalvfs", "sriov_numvfs"] {
                std::fs::write(dir.join(file), &text).expect("a file");
            }
            let found = devices(root.path()).expect("readable");
            proptest::prop_assert!(found.len() <= 1);
        }
    }
}
