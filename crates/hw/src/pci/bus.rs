//! Writes to the PCI bus: driver binding, reset, hot removal and rescan.

use super::{DEVICES, Device, PciAddress, device, devices};
use crate::sysfs::{Attributes, store};
use crate::{Error, Result};

/// The PCI bus of a node.
///
/// Every write is one command to the kernel, complete when the call returns. Sequences (unbind, override, probe) and
/// their rollback are up to the caller.
pub trait Bus: Send + Sync {
    /// All devices, by address.
    fn devices(&self) -> Result<Vec<Device>>;
    /// One device.
    fn device(&self, at: &PciAddress) -> Result<Device>;
    /// Binds a device to a driver that matches it by ID or override.
    fn bind(&self, at: &PciAddress, driver: &str) -> Result<()>;
    /// Unbinds a device from its driver, if any.
    fn unbind(&self, at: &PciAddress) -> Result<()>;
    /// Sets or clears the driver override of a device. A bound driver stays bound.
    fn set_driver_override(&self, at: &PciAddress, driver: Option<&str>) -> Result<()>;
    /// Makes the kernel bind an unbound device to a matching driver.
    fn probe(&self, at: &PciAddress) -> Result<()>;
    /// Resets a device, which loses its state.
    fn reset(&self, at: &PciAddress) -> Result<()>;
    /// Removes a device from the bus until the next rescan.
    fn remove(&self, at: &PciAddress) -> Result<()>;
    /// Rescans the bus for devices.
    fn rescan(&self) -> Result<()>;
}

impl<K: Attributes> Bus for K {
    fn devices(&self) -> Result<Vec<Device>> {
        devices(self.root())
    }

    fn device(&self, at: &PciAddress) -> Result<Device> {
        device(&self.root().join(DEVICES).join(at.as_str())).ok_or_else(|| Error::NotFound(at.to_string()))
    }

    fn bind(&self, at: &PciAddress, driver: &str) -> Result<()> {
        store(self, &format!("sys/bus/pci/drivers/{driver}/bind"), at.as_str())
    }

    fn unbind(&self, at: &PciAddress) -> Result<()> {
        match self.device(at)?.driver {
            Some(driver) => store(self, &format!("sys/bus/pci/drivers/{driver}/unbind"), at.as_str()),
            None => Ok(()),
        }
    }

    fn set_driver_override(&self, at: &PciAddress, driver: Option<&str>) -> Result<()> {
        self.device(at)?;
        // A newline clears it; an empty write would be no write.
        store(self, &attribute(at, "driver_override"), &format!("{}\n", driver.unwrap_or_default()))
    }

    fn probe(&self, at: &PciAddress) -> Result<()> {
        self.device(at)?;
        store(self, "sys/bus/pci/drivers_probe", at.as_str())
    }

    fn reset(&self, at: &PciAddress) -> Result<()> {
        self.device(at)?;
        store(self, &attribute(at, "reset"), "1")
    }

    fn remove(&self, at: &PciAddress) -> Result<()> {
        self.device(at)?;
        store(self, &attribute(at, "remove"), "1")
    }

    fn rescan(&self) -> Result<()> {
        store(self, "sys/bus/pci/rescan", "1")
    }
}

/// An attribute of a device, relative to the root.
pub(super) fn attribute(at: &PciAddress, name: &str) -> String {
    format!("{DEVICES}/{at}/{name}")
}
