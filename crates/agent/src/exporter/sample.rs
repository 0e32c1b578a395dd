//! The GPU readings of one collection, cached until the next: a scrape never waits for a GPU.

use std::collections::BTreeMap;
use std::path::Path;

use capstan_hw::gpu::nvidia::{Gpu, Hardware, Inventory, MigDevice, Profiling, Reading};

use super::selector::Selector;
use super::share::{self, ByPod};
use crate::Result;

/// Readings of one GPU or MIG device.
pub struct Sample<'a> {
    /// The GPU, or the parent GPU of a MIG device.
    pub gpu: &'a Gpu,
    /// The MIG device.
    pub mig: Option<&'a MigDevice>,
    /// Sensors and counters.
    pub reading: &'a Reading,
    /// Profiling metrics (GPM).
    pub profiling: Option<&'a Profiling>,
    /// The last XID of the GPU.
    pub xid: u64,
    /// Version of the driver.
    pub driver: &'a str,
    /// Version of NVML.
    pub nvml: &'a str,
}

impl Sample<'_> {
    /// The UUID that pods hold: of the GPU, or of the MIG device.
    pub fn uuid(&self) -> &str {
        self.mig.map_or(&self.gpu.uuid, |part| &part.uuid)
    }
}

/// The readings of one collection.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// GPUs and MIG devices.
    pub inventory: Inventory,
    /// Utilisation by device and pod, if collected.
    pub(super) shares: BTreeMap<String, ByPod>,
    readings: BTreeMap<String, Reading>,
    profiling: BTreeMap<String, Profiling>,
}

impl Snapshot {
    /// Collects readings of all GPUs.
    pub fn collect(hardware: &dyn Hardware) -> Result<Self> {
        let inventory = hardware.inventory()?;
        let (mut readings, mut profiling) = (BTreeMap::new(), BTreeMap::new());
        for gpu in &inventory.gpus {
            let whole = match hardware.reading(&gpu.uuid) {
                // The other GPUs still have metrics.
                Err(capstan_hw::Error::Lost) => continue,
                whole => whole?,
            };
            for part in &gpu.mig_devices {
                readings.insert(part.uuid.clone(), of_part(&whole, hardware.reading(&part.uuid)?));
            }
            readings.insert(gpu.uuid.clone(), whole);
            let parts = gpu.mig_devices.iter().map(|part| &part.uuid);
            for uuid in parts.chain(std::iter::once(&gpu.uuid)).filter(|_| gpu.gpm) {
                if let Some(metrics) = hardware.profiling(uuid)? {
                    profiling.insert(uuid.clone(), metrics);
                }
            }
        }
        if readings.is_empty() && !(inventory.gpus.is_empty() && inventory.lost.is_empty()) {
            return Err(capstan_hw::Error::Lost.into());
        }
        Ok(Self { inventory, shares: BTreeMap::new(), readings, profiling })
    }

    /// Also collects utilisation by pod.
    pub(super) fn collect_processes(&mut self, hardware: &dyn Hardware, root: &Path) {
        let uuids = self.readings.keys().map(|uuid| (uuid.clone(), share::by_pod(hardware, uuid, root)));
        self.shares = uuids.collect();
    }

    /// Readings of the selected devices, in order.
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

/// A MIG device has the sensors of its GPU and its own memory; NVML reports no utilisation for it.
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

impl Snapshot {
    /// Sensors and counters of one device.
    pub fn reading(&self, uuid: &str) -> Option<&Reading> {
        self.readings.get(uuid)
    }
}
