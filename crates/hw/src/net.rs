//! Network interfaces in sysfs, with their PCI and RDMA devices.

use std::path::Path;

use crate::Result;
use crate::pci::PciAddress;
use crate::sysfs::{link, names, number, text};

/// One network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name: `enp59s0f0np0`.
    pub name: String,
    /// Its PCI device; virtual interfaces have none.
    pub pci: Option<PciAddress>,
    /// Hardware address: `b8:3f:d2:00:00:01`, twenty bytes on InfiniBand.
    pub address: Option<String>,
    /// Maximum transmission unit.
    pub mtu: Option<u32>,
    /// Operational state: `up`, `down`, `unknown`.
    pub operstate: Option<String>,
    /// RDMA devices of its PCI device: `mlx5_0`.
    pub rdma: Vec<String>,
    /// Id of the embedded switch that it is a port of (`phys_switch_id`).
    pub switch_id: Option<String>,
    /// Its port on that switch (`phys_port_name`): `p0` is an uplink, `pf0vf3` the representor of a VF.
    pub port_name: Option<String>,
}

/// All network interfaces below `<root>/sys`, by name.
pub fn interfaces(root: &Path) -> Result<Vec<Interface>> {
    let dir = root.join("sys/class/net");
    // `bonding_masters` is a file among the interfaces.
    Ok(names(&dir)?.into_iter().filter(|name| dir.join(name).is_dir()).map(|name| interface(&dir, name)).collect())
}

fn interface(class: &Path, name: String) -> Interface {
    let dir = class.join(&name);
    Interface {
        pci: link(&dir, "device").and_then(|name| PciAddress::parse(&name)),
        address: text(&dir, "address").filter(|address| !address.is_empty()),
        mtu: number(&dir, "mtu"),
        operstate: text(&dir, "operstate"),
        rdma: names(&dir.join("device/infiniband")).unwrap_or_default(),
        switch_id: text(&dir, "phys_switch_id").filter(|id| !id.is_empty()),
        port_name: text(&dir, "phys_port_name").filter(|name| !name.is_empty()),
        name,
    }
}
