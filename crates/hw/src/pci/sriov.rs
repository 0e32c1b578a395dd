//! SR-IOV: virtual functions (VFs) of PCI devices.

use super::bus::attribute;
use super::{Bus, PciAddress};
use crate::sysfs::{Attributes, link, store};
use crate::{Error, Result};

/// The virtual functions (VFs) of a node's physical functions (PFs).
pub trait VirtualFunctions: Send + Sync {
    /// VFs of a PF, by VF number.
    fn vfs(&self, pf: &PciAddress) -> Result<Vec<PciAddress>>;
    /// Sets the number of VFs of a PF. When it changes, the kernel destroys all VFs first: none may be in use.
    fn set_vfs(&self, pf: &PciAddress, count: u32) -> Result<()>;
}

impl<K: Attributes> VirtualFunctions for K {
    fn vfs(&self, pf: &PciAddress) -> Result<Vec<PciAddress>> {
        let device = self.device(pf)?;
        let count = device.sriov.map_or(0, |(_, count)| count);
        let vf = |number| link(&device.path, &format!("virtfn{number}")).and_then(|name| PciAddress::parse(&name));
        // While the kernel creates them, some links are missing.
        Ok((0..count).filter_map(vf).collect())
    }

    fn set_vfs(&self, pf: &PciAddress, count: u32) -> Result<()> {
        let device = self.device(pf)?;
        let file = attribute(pf, "sriov_numvfs");
        let refused = |why: String| Error::Write { path: self.root().join(&file), value: count.to_string(), why };
        let Some((most, now)) = device.sriov else {
            return Err(refused("the device has no SR-IOV; enable it in its firmware and in the BIOS".into()));
        };
        if count > most {
            return Err(refused(format!("the device has at most {most} virtual functions")));
        }
        if count == now {
            return Ok(());
        }
        if count > 0 && now > 0 {
            // The kernel requires zero in between.
            store(self, &file, "0")?;
        }
        store(self, &file, &count.to_string())?;
        match self.device(pf)?.sriov {
            Some((_, now)) if now == count => Ok(()),
            now => Err(refused(format!("the kernel took it and has {} now", now.map_or(0, |(_, now)| now)))),
        }
    }
}
