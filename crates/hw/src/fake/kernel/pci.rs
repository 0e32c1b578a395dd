//! The PCI bus of a kernel that is not there: devices that are shown, their drivers, and what those make of them.

use std::io;

use rustix::io::Errno;

use super::Kernel;
use crate::fake::{PciDevice, Port};
use crate::pci::PciAddress;
use crate::sysfs::{link, number, text};

/// All devices hang below one host bridge.
const BRIDGE: &str = "sys/devices/pci0000:00";

/// A device's own directory.
fn home(at: &PciAddress) -> String {
    format!("{BRIDGE}/{at}")
}

impl Kernel {
    /// Adds a device to the bus and shows it.
    pub(in crate::fake) fn plug(&self, device: &PciDevice) -> io::Result<()> {
        let _one = self.busy();
        if let Some(driver) = &device.driver {
            self.make_driver(driver)?;
        }
        if let Ok(before) = self.shown(device.address.as_str()) {
            self.vanish(&before)?;
        }
        self.appear(device)
    }

    /// Adds a driver to the bus and gives it what it knows and no one has.
    pub(in crate::fake) fn register(&self, driver: &str) -> io::Result<()> {
        let _one = self.busy();
        self.add_driver(driver)
    }

    pub(super) fn add_driver(&self, driver: &str) -> io::Result<()> {
        self.make_driver(driver)?;
        let shown =
            self.all::<PciDevice>("pci")?.into_iter().filter(|device| self.path(&home(&device.address)).exists());
        shown.into_iter().try_for_each(|device| self.probe_drivers(&device))
    }

    fn make_driver(&self, driver: &str) -> io::Result<()> {
        for (file, text) in [("rescan", ""), ("drivers_probe", "")] {
            self.file(&format!("sys/bus/pci/{file}"), text)?;
        }
        ["bind", "unbind"].iter().try_for_each(|file| self.file(&format!("sys/bus/pci/drivers/{driver}/{file}"), ""))
    }

    /// Takes a driver from the bus, and from the devices that it has.
    pub(super) fn drop_driver(&self, driver: &str) -> io::Result<()> {
        for device in self.all::<PciDevice>("pci")? {
            if self.driver(&device).as_deref() == Some(driver) {
                self.detach(&device, driver)?;
            }
        }
        self.gone(&format!("sys/bus/pci/drivers/{driver}"))
    }

    /// A device that is shown, by its address.
    pub(super) fn shown(&self, at: &str) -> io::Result<PciDevice> {
        let address = PciAddress::parse(at).ok_or(Errno::NODEV)?;
        let device: PciDevice = self.known("pci", address.as_str()).map_err(|_| Errno::NODEV)?;
        if self.path(&home(&address)).exists() { Ok(device) } else { Err(Errno::NODEV.into()) }
    }

    fn driver(&self, device: &PciDevice) -> Option<String> {
        link(&self.path(&home(&device.address)), "driver")
    }

    /// Whether a driver may have a device: the one that it is kept for, or else the one that knows its ids.
    fn matches(&self, device: &PciDevice, driver: &str) -> bool {
        let kept = text(&self.path(&home(&device.address)), "driver_override").filter(|name| !name.is_empty());
        kept.or(device.driver.clone()).as_deref() == Some(driver)
    }

    fn appear(&self, device: &PciDevice) -> io::Result<()> {
        let (at, dir) = (&device.address, home(&device.address));
        self.know("pci", at.as_str(), device)?;
        let numa = device.numa.map_or(-1, i64::from);
        let files = [
            ("vendor", format!("0x{:04x}\n", device.vendor)),
            ("device", format!("0x{:04x}\n", device.device)),
            ("class", format!("0x{:06x}\n", device.class)),
            ("numa_node", format!("{numa}\n")),
            ("driver_override", "\n".into()),
            ("remove", String::new()),
            ("reset", String::new()),
        ];
        files.iter().try_for_each(|(name, text)| self.file(&format!("{dir}/{name}"), text))?;
        if let Some(vfs) = &device.vfs {
            let files = [
                ("sriov_totalvfs", vfs.most.to_string()),
                ("sriov_numvfs", "0".into()),
                ("sriov_drivers_autoprobe", "1".into()),
            ];
            files.iter().try_for_each(|(name, text)| self.file(&format!("{dir}/{name}"), &format!("{text}\n")))?;
        }
        if let Some(group) = device.iommu_group {
            self.link(&format!("sys/kernel/iommu_groups/{group}/devices/{at}"), &format!("../../../../../{dir}"))?;
            self.link(&format!("{dir}/iommu_group"), &format!("../../../kernel/iommu_groups/{group}"))?;
        }
        self.link(&format!("sys/bus/pci/devices/{at}"), &format!("../../../../{dir}"))?;
        match &device.physical {
            Some(physical) => {
                self.link(&format!("{dir}/physfn"), &format!("../{physical}"))?;
                let automatic = text(&self.path(&home(physical)), "sriov_drivers_autoprobe");
                if automatic.as_deref() == Some("0") { Ok(()) } else { self.probe_drivers(device) }
            }
            None => self.probe_drivers(device),
        }
    }

    /// Removes a device from what is shown; it stays on the bus.
    pub(super) fn vanish(&self, device: &PciDevice) -> io::Result<()> {
        self.drop_vfs(device)?;
        if let Some(driver) = self.driver(device) {
            self.detach(device, &driver)?;
        }
        let at = &device.address;
        if let Some(group) = device.iommu_group {
            self.gone(&format!("sys/kernel/iommu_groups/{group}/devices/{at}"))?;
        }
        self.gone(&format!("sys/bus/pci/devices/{at}"))?;
        self.gone(&home(at))
    }

    /// Shows what is on the bus and was removed.
    pub(super) fn rescan_store(&self) -> io::Result<()> {
        let hidden = self.all::<PciDevice>("pci")?;
        hidden.iter().filter(|it| !self.path(&home(&it.address)).exists()).try_for_each(|device| self.appear(device))
    }

    pub(super) fn reset_store(&self, at: &str) -> io::Result<()> {
        let marks = format!(".kernel/resets/{}", self.shown(at)?.address);
        let before = std::fs::read_to_string(self.path(&marks)).unwrap_or_default();
        self.file(&marks, &format!("{before}x"))
    }

    /// Gives a device without a driver the one that may have it, if that is there.
    pub(super) fn probe_drivers(&self, device: &PciDevice) -> io::Result<()> {
        let drivers = self.names("sys/bus/pci/drivers");
        match drivers.iter().find(|driver| self.matches(device, driver)) {
            Some(driver) if self.driver(device).is_none() => self.attach(device, driver),
            _ => Ok(()),
        }
    }

    pub(super) fn bind_store(&self, at: &str, driver: &str) -> io::Result<()> {
        let device = self.shown(at)?;
        if !self.path(&format!("sys/bus/pci/drivers/{driver}")).exists() {
            return Err(Errno::NOENT.into());
        }
        if !self.matches(&device, driver) {
            return Err(Errno::NODEV.into());
        }
        if self.driver(&device).is_some() { Err(Errno::BUSY.into()) } else { self.attach(&device, driver) }
    }

    pub(super) fn unbind_store(&self, at: &str, driver: &str) -> io::Result<()> {
        let device = self.shown(at)?;
        if self.driver(&device).as_deref() != Some(driver) {
            return Err(Errno::NODEV.into());
        }
        self.detach(&device, driver)
    }

    fn attach(&self, device: &PciDevice, driver: &str) -> io::Result<()> {
        let (at, dir) = (&device.address, home(&device.address));
        self.link(&format!("{dir}/driver"), &format!("../../../bus/pci/drivers/{driver}"))?;
        self.link(&format!("sys/bus/pci/drivers/{driver}/{at}"), &format!("../../../../../{dir}"))?;
        if device.driver.as_deref() != Some(driver) {
            // A driver that hands a device on, such as vfio-pci, makes nothing of it.
            return Ok(());
        }
        if let Some(port) = &device.net {
            self.make_port(at, port)?;
        }
        if let Some(rdma) = &device.rdma {
            self.link(&format!("{dir}/infiniband/{rdma}/device"), &format!("../../../{at}"))?;
            self.link(&format!("sys/class/infiniband/{rdma}"), &format!("../../../{dir}/infiniband/{rdma}"))?;
        }
        Ok(())
    }

    fn make_port(&self, at: &PciAddress, port: &Port) -> io::Result<()> {
        let (dir, name) = (home(at), &port.name);
        let (switch, place) = port.switch.clone().unwrap_or_default();
        let files = [
            ("address", &port.address),
            ("mtu", &port.mtu.to_string()),
            ("operstate", &port.state),
            ("phys_switch_id", &switch),
            ("phys_port_name", &place),
        ];
        files
            .iter()
            .try_for_each(|(file, text)| self.file(&format!("{dir}/net/{name}/{file}"), &format!("{text}\n")))?;
        self.link(&format!("{dir}/net/{name}/device"), &format!("../../../{at}"))?;
        self.link(&format!("sys/class/net/{name}"), &format!("../../../{dir}/net/{name}"))
    }

    fn detach(&self, device: &PciDevice, driver: &str) -> io::Result<()> {
        let (at, dir) = (&device.address, home(&device.address));
        // A physical function takes its parts with it when its driver goes.
        self.drop_vfs(device)?;
        for (class, name) in [("net", device.net.as_ref().map(|port| &port.name)), ("infiniband", device.rdma.as_ref())]
        {
            if let Some(name) = name.filter(|_| device.driver.as_deref() == Some(driver)) {
                self.gone(&format!("sys/class/{class}/{name}"))?;
                self.gone(&format!("{dir}/{class}"))?;
            }
        }
        self.gone(&format!("sys/bus/pci/drivers/{driver}/{at}"))?;
        self.gone(&format!("{dir}/driver"))
    }

    /// The kernel's rules for a number of virtual functions: none or from none, with a driver, and not too many.
    pub(super) fn numvfs_store(&self, device: &PciDevice, count: u32) -> io::Result<()> {
        let vfs = device.vfs.as_ref().ok_or(Errno::NOENT)?;
        let dir = self.path(&home(&device.address));
        let now = number(&dir, "sriov_numvfs").unwrap_or_default();
        match count {
            _ if count > vfs.most => Err(Errno::RANGE.into()),
            _ if count == now => Ok(()),
            0 => self.drop_vfs(device),
            _ if self.driver(device).is_none() => Err(Errno::NOENT.into()),
            _ if now > 0 => Err(Errno::BUSY.into()),
            _ => self.make_vfs(device, vfs.offset, vfs.device, count),
        }
    }

    fn make_vfs(&self, device: &PciDevice, offset: u32, id: u16, count: u32) -> io::Result<()> {
        for number in 0..count {
            let address = device.address.offset(offset + number).ok_or(Errno::NOMEM)?;
            let port = device.net.as_ref().map(|port| Port {
                name: format!("{}v{number}", port.name),
                address: format!("02:00:00:00:{:02x}:{number:02x}", device.iommu_group.unwrap_or_default() & 0xff),
                switch: None,
                ..port.clone()
            });
            let vf = PciDevice {
                driver: device.driver.clone(),
                numa: device.numa,
                iommu_group: device.iommu_group.map(|group| group * 100 + number),
                net: port,
                rdma: device.rdma.as_ref().map(|name| format!("{name}v{number}")),
                physical: Some(device.address.clone()),
                ..PciDevice::new(address.clone(), device.vendor, id, device.class)
            };
            self.appear(&vf)?;
            self.link(&format!("{}/virtfn{number}", home(&device.address)), &format!("../{address}"))?;
        }
        self.file(&format!("{}/sriov_numvfs", home(&device.address)), &format!("{count}\n"))
    }

    fn drop_vfs(&self, device: &PciDevice) -> io::Result<()> {
        let dir = home(&device.address);
        let count = number(&self.path(&dir), "sriov_numvfs").unwrap_or_default();
        for place in (0..count).map(|number| format!("virtfn{number}")) {
            if let Some(vf) = link(&self.path(&dir), &place) {
                self.vanish(&self.shown(&vf)?)?;
                // Parts are made anew each time: the bus does not remember them.
                self.gone(&format!(".kernel/pci/{vf}.json"))?;
            }
            self.gone(&format!("{dir}/{place}"))?;
        }
        if count > 0 { self.file(&format!("{dir}/sriov_numvfs"), "0\n") } else { Ok(()) }
    }
}
