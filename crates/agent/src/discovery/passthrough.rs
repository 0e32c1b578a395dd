//! GPUs passed through to virtual machines: read from the PCI bus, with names from the pci.ids database.

use std::path::Path;

use capstan_hw::gpu::nvidia::{ComputeCapability, Gpu, Inventory, MigMode};
use capstan_hw::pci::{self, NVIDIA};

/// Paths of pci.ids.
const TABLES: [&str; 3] = ["usr/share/misc/pci.ids", "usr/share/hwdata/pci.ids", "usr/share/pci.ids"];

/// GPUs that are bound to vfio-pci.
pub(super) fn inventory(root: &Path, devices: &[pci::Device]) -> Inventory {
    let bound: Vec<&pci::Device> =
        devices.iter().filter(|device| device.is_gpu() && device.driver.as_deref() == Some("vfio-pci")).collect();
    let table = TABLES.iter().find_map(|path| std::fs::read_to_string(root.join(path)).ok()).unwrap_or_default();
    let gpus = (0..).zip(bound).map(|(index, device)| gpu(index, device, &table)).collect();
    Inventory { gpus, ..Inventory::empty() }
}

fn gpu(index: u32, device: &pci::Device, table: &str) -> Gpu {
    let name = name(table, NVIDIA, device.device).unwrap_or_else(|| format!("NVIDIA {:04x}", device.device));
    Gpu {
        index,
        uuid: device.address.to_string(),
        minor: index,
        name,
        brand: None,
        serial: None,
        vbios: None,
        inforom: None,
        inforom_parts: [const { None }; 3],
        pci: device.address.clone(),
        pci_device: u32::from(device.device) << 16 | u32::from(device.vendor),
        pci_subsystem: 0,
        memory_bytes: 0,
        compute: ComputeCapability { major: 0, minor: 0 },
        mig: MigMode::Unsupported,
        mig_devices: Vec::new(),
        fabric: None,
        addressing: None,
        nvlinks: 0,
        nvswitch: false,
        gpm: false,
        virtual_gpu: false,
    }
}

/// Name of a device: vendors start a line, their devices are indented by one tab.
pub(super) fn name(table: &str, vendor: u16, device: u16) -> Option<String> {
    let start = format!("{vendor:04x} ");
    let wanted = format!("\t{device:04x} ");
    let lines = table.lines().skip_while(|line| !line.starts_with(&start)).skip(1);
    let mut own = lines.take_while(|line| line.starts_with('\t') || line.starts_with('#') || line.is_empty());
    own.find_map(|line| line.strip_prefix(&wanted)).map(|name| name.trim().to_owned())
}
