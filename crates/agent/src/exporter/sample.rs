//! What one look at the GPUs saw, kept until the next one: a scrape never waits for a GPU.

use std::collections::BTreeMap;
use std::path::Path;

use capstan_hw::gpu::nvidia::{Gpu, Hardware, Inventory, MigDevice, Profiling, Reading};

use super::selector::Selector;
use super::share::{self, ByPod};
use crate::Result;

/// One GPU or MIG device in one look, as metrics see it.
pub struct Sample<'a> {
    /// The GPU, also of a MIG device.
    pub gpu: &'a Gpu,
    /// The MIG device.
    pub mig: Option<&'a MigDevice>,
    /// Sensors and counters.
    pub reading: &'a Reading,
    /// Activity of units.
    pub profiling: Option<&'a Profiling>,
    /// The last XID of the GPU.
    pub xid: u64,
    /// Version of the driver.
    pub driver: &'a str,
    /// Version of NVML.
    pub nvml: &'a str,
}

impl Sample<'_> {
    /// What pods hold: the UUID of the GPU, or of the MIG device.
    pub fn uuid(&self) -> &str {
        self.mig.map_or(&self.gpu.uuid, |part| &part.uuid)
    }
}

/// One look.
#[derive(Debug, Clone)]
pub struct Scrape {
    /// What there is.
    pub inventory: Inventory,
    /// What pods have of each device, where that was asked.
    pub(super) shares: BTreeMap<String, ByPod>,
    readings: BTreeMap<String, Reading>,
    profiling: BTreeMap<String, Profiling>,
}

impl Scrape {
    /// Looks at all GPUs.
    pub fn take(hardware: &dyn Hardware) -> Result<Self> {
        let inventory = hardware.inventory()?;
        let (mut readings, mut profiling) = (BTreeMap::new(), BTreeMap::new());
        for gpu in &inventory.gpus {
            let whole = match hardware.reading(&gpu.uuid) {
                // The others have metrics all the same.
                Err(capstan_hw::Error::Lost) => continue,
                whole => whole?,
            };
            for part in &gpu.mig_devices {
                readings.insert(part.uuid.clone(), of_part(&whole, hardware.reading(&part.uuid)?));
            }
            readings.insert(gpu.uuid.clone(), whole);
            let parts = gpu.mig_devices.iter().map(|part| &part.uuid);
            for uuid in parts.chain(std::iter::once(&gpu.uuid)).filter(|_| gpu.gpm) {
                if let Some(seen) = hardware.profiling(uuid)? {
                    profiling.insert(uuid.clone(), seen);
                }
            }
        }
        if readings.is_empty() && !(inventory.gpus.is_empty() && inventory.lost.is_empty()) {
            return Err(capstan_hw::Error::Lost.into());
        }
        Ok(Self { inventory, shares: BTreeMap::new(), readings, profiling })
    }

    /// Also asks whose processes use each device.
    pub(super) fn ask_who(&mut self, hardware: &dyn Hardware, root: &Path) {
        let uuids = self.readings.keys().map(|uuid| (uuid.clone(), share::by_pod(hardware, uuid, root)));
        self.shares = uuids.collect();
    }

    /// The devices that were asked for, in order.
    pub fn samples<'a>(&'a self, selector: &Selector, xids: &'a BTreeMap<String, u64>) -> Vec<Sample<'a>> {
        let sample = |gpu: &'a Gpu, mig: Option<&'a MigDevice>| {
            let uuid = mig.map_or(&gpu.uuid, |part| &part.uuid);
            Some(Sample {
                gpu,
                mig,
                reading: self.readings.get(uuid)?,
                profiling: self.profiling.get(uuid),
                xid: xids.get(&gpu.uuid).copied().unwrap_or(0),
                driver: &self.inventory.driver,
                nvml: &self.inventory.nvml,
            })
        };
        let chosen = selector.choose(&self.inventory);
        chosen.into_iter().filter_map(|(gpu, mig)| sample(gpu, mig)).collect()
    }
}

/// A part of a GPU shares its sensors; memory is its own, and how busy it is, NVML cannot tell.
fn of_part(whole: &Reading, part: Reading) -> Reading {
    Reading {
        memory_free: part.memory_free,
        memory_used: part.memory_used,
        memory_reserved: part.memory_reserved,
        utilisation: None,
        memory_utilisation: None,
        encoder: None,
        decoder: None,
        ..whole.clone()
    }
}

impl Scrape {
    /// Sensors and counters of one device.
    pub fn reading(&self, uuid: &str) -> Option<&Reading> {
        self.readings.get(uuid)
    }
}
