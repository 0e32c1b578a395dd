//! The PCI bus of the fake kernel: devices, drivers, virtual functions, and the interfaces that drivers create.

use std::io;

use rustix::io::Errno;

use super::Kernel;
use crate::fake::{PciDevice, Port};
use crate::pci::PciAddress;
use crate::sysfs::{link, number, text};

/// All devices hang below one host bridge.
const BRIDGE: &str = "sys/devices/pci0000:00";

/// The directory of a device.
fn device_dir(at: &PciAddress) -> String {
    format!("{BRIDGE}/{at}")
}

impl Kernel {
    /// Adds a device to the bus, bound to the driver that knows its ids.
    pub(in crate::fake) fn plug(&self, device: &PciDevice) -> io::Result<()> {
        let _lock = self.lock();
        if let Some(driver) = &device.driver {
            self.add_driver_dir(driver)?;
        }
        if let Ok(before) = self.present(device.address.as_str()) {
            self.remove_device(&before)?;
        }
        self.add_device(device)
    }

    /// Registers a driver and binds the unbound devices that match it.
    pub(in crate::fake) fn register(&self, driver: &str) -> io::Result<()> {
        let _lock = self.lock();
        self.add_driver(driver)
    }

    pub(super) fn add_driver(&self, driver: &str) -> io::Result<()> {
        self.add_driver_dir(driver)?;
        let shown = self
            .load_all::<PciDevice>("pci")?
            .into_iter()
            .filter(|device| self.path(&device_dir(&device.address)).exists());
        shown.into_iter().try_for_each(|device| self.probe_drivers(&device))
    }

    fn add_driver_dir(&self, driver: &str) -> io::Result<()> {
        for (file, text) in [("rescan", ""), ("drivers_probe", "")] {
            self.file(&format!("sys/bus/pci/{file}"), text)?;
        }
        ["bind", "unbind"].iter().try_for_each(|file| self.file(&format!("sys/bus/pci/drivers/{driver}/{file}"), ""))
    }

    /// Unregisters a driver, which unbinds its devices.
    pub(super) fn remove_driver(&self, driver: &str) -> io::Result<()> {
        for device in self.load_all::<PciDevice>("pci")? {
            if self.driver(&device).as_deref() == Some(driver) {
                self.detach(&device, driver)?;
            }
        }
        self.delete(&format!("sys/bus/pci/drivers/{driver}"))
    }

    /// A device that is present in sysfs.
    pub(super) fn present(&self, at: &str) -> io::Result<PciDevice> {
        let address = PciAddress::parse(at).ok_or(Errno::NODEV)?;
        let device: PciDevice = self.load_state("pci", address.as_str()).map_err(|_| Errno::NODEV)?;
        if self.path(&device_dir(&address)).exists() { Ok(device) } else { Err(Errno::NODEV.into()) }
    }

    fn driver(&self, device: &PciDevice) -> Option<String> {
        link(&self.path(&device_dir(&device.address)), "driver")
    }

    /// Whether a driver matches a device: by its override, or else by its ids.
    fn matches(&self, device: &PciDevice, driver: &str) -> bool {
        let kept = text(&self.path(&device_dir(&device.address)), "driver_override").filter(|name| !name.is_empty());
        kept.or(device.driver.clone()).as_deref() == Some(driver)
    }

    fn add_device(&self, device: &PciDevice) -> io::Result<()> {
        let (at, dir) = (&device.address, device_dir(&device.address));
        self.save_state("pci", at.as_str(), device)?;
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
                ("sriov_totalvfs", vfs.total.to_string()),
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
        match &device.physical_function {
            Some(physical) => {
                self.link(&format!("{dir}/physfn"), &format!("../{physical}"))?;
                let automatic = text(&self.path(&device_dir(physical)), "sriov_drivers_autoprobe");
                if automatic.as_deref() == Some("0") { Ok(()) } else { self.probe_drivers(device) }
            }
            None => self.probe_drivers(device),
        }
    }

    /// Removes a device from sysfs until the next rescan.
    pub(super) fn remove_device(&self, device: &PciDevice) -> io::Result<()> {
        self.remove_vfs(device)?;
        if let Some(driver) = self.driver(device) {
            self.detach(device, &driver)?;
        }
        let at = &device.address;
        if let Some(group) = device.iommu_group {
            self.delete(&format!("sys/kernel/iommu_groups/{group}/devices/{at}"))?;
        }
        self.delete(&format!("sys/bus/pci/devices/{at}"))?;
        self.delete(&device_dir(at))
    }

    /// Adds the devices that are on the bus and not in sysfs.
    pub(super) fn rescan_store(&self) -> io::Result<()> {
        let hidden = self.load_all::<PciDevice>("pci")?;
        hidden
            .iter()
            .filter(|it| !self.path(&device_dir(&it.address)).exists())
            .try_for_each(|device| self.add_device(device))
    }

    pub(super) fn reset_store(&self, at: &str) -> io::Result<()> {
        let marks = format!(".kernel/resets/{}", self.present(at)?.address);
        let before = std::fs::read_to_string(self.path(&marks)).unwrap_or_default();
        self.file(&marks, &format!("{before}x"))
    }

    /// Binds an unbound device to the registered driver that matches it, if there is one.
    pub(super) fn probe_drivers(&self, device: &PciDevice) -> io::Result<()> {
        let drivers = self.names("sys/bus/pci/drivers");
        match drivers.iter().find(|driver| self.matches(device, driver)) {
            Some(driver) if self.driver(device).is_none() => self.attach(device, driver),
            _ => Ok(()),
        }
    }

    pub(super) fn bind_store(&self, at: &str, driver: &str) -> io::Result<()> {
        let device = self.present(at)?;
        if !self.path(&format!("sys/bus/pci/drivers/{driver}")).exists() {
            return Err(Errno::NOENT.into());
        }
        if !self.matches(&device, driver) {
            return Err(Errno::NODEV.into());
        }
        if self.driver(&device).is_some() { Err(Errno::BUSY.into()) } else { self.attach(&device, driver) }
    }

    pub(super) fn unbind_store(&self, at: &str, driver: &str) -> io::Result<()> {
        let device = self.present(at)?;
        if self.driver(&device).as_deref() != Some(driver) {
            return Err(Errno::NODEV.into());
        }
        self.detach(&device, driver)
    }

    fn attach(&self, device: &PciDevice, driver: &str) -> io::Result<()> {
        let (at, dir) = (&device.address, device_dir(&device.address));
        self.link(&format!("{dir}/driver"), &format!("../../../bus/pci/drivers/{driver}"))?;
        self.link(&format!("sys/bus/pci/drivers/{driver}/{at}"), &format!("../../../../../{dir}"))?;
        if device.driver.as_deref() != Some(driver) {
            // Only the native driver creates interfaces; vfio-pci does not.
            return Ok(());
        }
        if let Some(port) = &device.net {
            self.add_interface(at, port)?;
        }
        if let Some(rdma) = &device.rdma {
            self.link(&format!("{dir}/infiniband/{rdma}/device"), &format!("../../../{at}"))?;
            self.link(&format!("sys/class/infiniband/{rdma}"), &format!("../../../{dir}/infiniband/{rdma}"))?;
        }
        Ok(())
    }

    fn add_interface(&self, at: &PciAddress, port: &Port) -> io::Result<()> {
        let (dir, name) = (device_dir(at), &port.name);
        let (switch, place) = port.switch.clone().unwrap_or_default();
        let files = [
            ("address", &port.address),
            ("mtu", &port.mtu.to_string()),
            ("operstate", &port.operstate),
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
        let (at, dir) = (&device.address, device_dir(&device.address));
        // The driver of a physical function removes its virtual functions when it is unbound.
        self.remove_vfs(device)?;
        for (class, name) in [("net", device.net.as_ref().map(|port| &port.name)), ("infiniband", device.rdma.as_ref())]
        {
            if let Some(name) = name.filter(|_| device.driver.as_deref() == Some(driver)) {
                self.delete(&format!("sys/class/{class}/{name}"))?;
                self.delete(&format!("{dir}/{class}"))?;
            }
        }
        self.delete(&format!("sys/bus/pci/drivers/{driver}/{at}"))?;
        self.delete(&format!("{dir}/driver"))
    }

    /// The rules of the kernel: at most `sriov_totalvfs`, only with a driver, and only to or from zero.
    pub(super) fn numvfs_store(&self, device: &PciDevice, count: u32) -> io::Result<()> {
        let vfs = device.vfs.as_ref().ok_or(Errno::NOENT)?;
        let dir = self.path(&device_dir(&device.address));
        let now = number(&dir, "sriov_numvfs").unwrap_or_default();
        match count {
            _ if count > vfs.total => Err(Errno::RANGE.into()),
            _ if count == now => Ok(()),
            0 => self.remove_vfs(device),
            _ if self.driver(device).is_none() => Err(Errno::NOENT.into()),
            _ if now > 0 => Err(Errno::BUSY.into()),
            _ => self.add_vfs(device, vfs.offset, vfs.device, count),
        }
    }

    fn add_vfs(&self, device: &PciDevice, offset: u32, id: u16, count: u32) -> io::Result<()> {
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
                physical_function: Some(device.address.clone()),
                ..PciDevice::new(address.clone(), device.vendor, id, device.class)
            };
            self.add_device(&vf)?;
            self.link(&format!("{}/virtfn{number}", device_dir(&device.address)), &format!("../{address}"))?;
        }
        self.file(&format!("{}/sriov_numvfs", device_dir(&device.address)), &format!("{count}\n"))
    }

    fn remove_vfs(&self, device: &PciDevice) -> io::Result<()> {
        let dir = device_dir(&device.address);
        let count = number(&self.path(&dir), "sriov_numvfs").unwrap_or_default();
        for place in (0..count).map(|number| format!("virtfn{number}")) {
            if let Some(vf) = link(&self.path(&dir), &place) {
                self.remove_device(&self.present(&vf)?)?;
                // Virtual functions are created anew each time: a rescan does not find them.
                self.delete(&format!(".kernel/pci/{vf}.json"))?;
            }
            self.delete(&format!("{dir}/{place}"))?;
        }
        if count > 0 { self.file(&format!("{dir}/sriov_numvfs"), "0\n") } else { Ok(()) }
    }
}
