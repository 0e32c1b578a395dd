//! GPUs through NVML, the library that comes with the driver.
//!
//! The library is opened from the driver's own root, so that a driver in a container works like one on the host. A
//! [`Library`] must be dropped and reopened when the driver changes: it works with one version of the kernel module
//! only.

mod control;
mod events;
mod inventory;
mod raw;
mod readings;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nvml_wrapper::enum_wrappers::device::{ComputeMode, TopologyLevel};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use crate::gpu::nvidia::driver::Roots;
use crate::gpu::nvidia::{EventSubscription, Hardware, Inventory, Profiling, Reading, Recovery, Relation, Topology};
use crate::{Error, Result};

pub use control::Control;

/// Display adapters of workstations, which are not GPUs for compute: hidden.
const DISPLAYS: [&str; 2] = ["DGX Display", "NVIDIA DGX Display"];

/// Window of process utilisation samples.
const UTILISATION_WINDOW: Duration = Duration::from_secs(5);

/// The loaded library.
pub struct Library {
    nvml: Arc<Nvml>,
    /// The last GPM sample of each device, for the next difference.
    samples: Mutex<HashMap<String, raw::Sample>>,
}

impl Library {
    /// Loads the library of the driver below `roots`.
    pub fn open(roots: &Roots) -> Result<Self> {
        Self::open_file(&roots.nvml()?)
    }

    /// Loads a library file.
    pub fn open_file(file: &Path) -> Result<Self> {
        let nvml = Nvml::builder().lib_path(file.as_os_str()).init().map_err(|error| match error {
            NvmlError::LibloadingError(why) => Error::NoDriver(format!("{}: {why}", file.display())),
            other => map_error("nvmlInit", other),
        })?;
        Ok(Self { nvml: Arc::new(nvml), samples: Mutex::default() })
    }

    /// All usable GPUs in NVML order, without lost ones.
    fn devices(&self) -> Result<Vec<Device<'_>>> {
        self.devices_and_lost().map(|(devices, _)| devices)
    }

    /// All usable GPUs, and the indices of lost ones.
    fn devices_and_lost(&self) -> Result<(Vec<Device<'_>>, Vec<u32>)> {
        let count = self.nvml.device_count().map_err(|error| map_error("nvmlDeviceGetCount", error))?;
        let (mut devices, mut lost) = (Vec::new(), Vec::new());
        for index in 0..count {
            match self.nvml.device_by_index(index) {
                Ok(device) if device.name().is_ok_and(|name| DISPLAYS.contains(&name.as_str())) => {}
                Ok(device) => devices.push(device),
                // Errors of a GPU that is counted but unreachable; the others work.
                Err(NvmlError::GpuLost | NvmlError::Unknown | NvmlError::IrqIssue | NvmlError::InsufficientPower) => {
                    lost.push(index)
                }
                Err(error) => return Err(map_error("nvmlDeviceGetHandleByIndex", error)),
            }
        }
        Ok((devices, lost))
    }

    fn device(&self, uuid: &str) -> Result<Device<'_>> {
        self.nvml.device_by_uuid(uuid).map_err(|error| match error {
            NvmlError::NotFound | NvmlError::InvalidArg => Error::NotFound(uuid.to_owned()),
            other => map_error("nvmlDeviceGetHandleByUUID", other),
        })
    }
}

impl Hardware for Library {
    fn inventory(&self) -> Result<Inventory> {
        inventory::read(self, inventory::Parts::All)
    }

    fn whole_gpus(&self) -> Result<Inventory> {
        inventory::read(self, inventory::Parts::None)
    }

    fn topology(&self) -> Result<Topology> {
        let devices = self.devices()?;
        let mut topology = Topology::default();
        let mut named = Vec::new();
        for device in &devices {
            named.push((device.uuid().map_err(|error| map_error("nvmlDeviceGetUUID", error))?, device));
        }
        for (place, (a, first)) in named.iter().enumerate() {
            for (b, second) in &named[place + 1..] {
                let relation = relation(self.nvml.topology_common_ancestor(first, second));
                topology.set(a, b, relation, inventory::links_between(first, second));
            }
        }
        Ok(topology)
    }

    fn reading(&self, uuid: &str) -> Result<Reading> {
        readings::read(&self.device(uuid)?)
    }

    fn profiling(&self, uuid: &str) -> Result<Option<Profiling>> {
        let device = self.device(uuid)?;
        let taken = match raw::Sample::take(&self.nvml, &device) {
            Ok(sample) => sample,
            Err(Error::NotSupported) => return Ok(None),
            Err(other) => return Err(other),
        };
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let profiling = match samples.get(uuid) {
            Some(earlier) => Some(taken.since(earlier)?),
            None => None,
        };
        samples.insert(uuid.to_owned(), taken);
        Ok(profiling)
    }

    fn recovery(&self, uuid: &str) -> Result<Recovery> {
        match readings::recovery(&self.device(uuid)?) {
            Err(Error::NotSupported) => Ok(Recovery::None),
            other => other,
        }
    }

    fn watch(&self) -> Result<EventSubscription> {
        events::watch(&self.nvml, &self.devices()?)
    }

    fn processes(&self, uuid: &str) -> Result<Vec<(u32, u64)>> {
        let device = self.device(uuid)?;
        let found = device
            .running_compute_processes()
            .map_err(|error| map_error("nvmlDeviceGetComputeRunningProcesses", error))?;
        let bytes = |memory: &UsedGpuMemory| match memory {
            UsedGpuMemory::Used(bytes) => *bytes,
            UsedGpuMemory::Unavailable => 0,
        };
        Ok(found.iter().map(|process| (process.pid, bytes(&process.used_gpu_memory))).collect())
    }

    fn process_activity(&self, uuid: &str) -> Result<Vec<(u32, u32)>> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let since = now.saturating_sub(UTILISATION_WINDOW).as_micros();
        let samples = match self.device(uuid)?.process_utilization_stats(u64::try_from(since).unwrap_or_default()) {
            Ok(samples) => samples,
            // No process, no sample; MIG devices have none at all.
            Err(NvmlError::NotFound | NvmlError::NotSupported) => Vec::new(),
            Err(error) => return Err(map_error("nvmlDeviceGetProcessUtilization", error)),
        };
        let mut newest: BTreeMap<u32, (u64, u32)> = BTreeMap::new();
        for sample in samples {
            let known = newest.entry(sample.pid).or_default();
            *known = (*known).max((sample.timestamp, sample.sm_util));
        }
        // The driver may return garbage for a process that just exited.
        Ok(newest.into_iter().map(|(pid, (_, busy))| (pid, busy)).filter(|(_, busy)| *busy <= 100).collect())
    }

    fn set_exclusive(&self, uuid: &str, exclusive: bool) -> Result<()> {
        let mode = if exclusive { ComputeMode::ExclusiveProcess } else { ComputeMode::Default };
        self.device(uuid)?.set_compute_mode(mode).map_err(|error| match error {
            NvmlError::NoPermission => Error::NoPermission("set the compute mode of a GPU"),
            other => map_error("nvmlDeviceSetComputeMode", other),
        })
    }
}

fn relation(level: Result<TopologyLevel, NvmlError>) -> Relation {
    match level {
        Ok(TopologyLevel::Internal) => Relation::Board,
        Ok(TopologyLevel::Single) => Relation::Switch,
        Ok(TopologyLevel::Multiple) => Relation::Switches,
        Ok(TopologyLevel::HostBridge) => Relation::HostBridge,
        Ok(TopologyLevel::Node) => Relation::Socket,
        Ok(_) | Err(_) => Relation::System,
    }
}

/// Maps an NVML error.
fn map_error(call: &'static str, error: NvmlError) -> Error {
    match error {
        NvmlError::DriverNotLoaded => Error::NoDriver("it is not loaded".into()),
        NvmlError::LibRmVersionMismatch => Error::VersionMismatch,
        NvmlError::GpuLost => Error::Lost,
        NvmlError::NotSupported | NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_) => Error::NotSupported,
        NvmlError::NoPermission => Error::NoPermission("ask NVML for that"),
        NvmlError::InUse => Error::InUse(format!("the device ({call})")),
        NvmlError::UnexpectedVariant(raw::INSUFFICIENT_RESOURCES) => {
            Error::Call { call, why: "the GPU has not enough free slices for it".into() }
        }
        other => Error::Call { call, why: other.to_string() },
    }
}

/// `None` if not supported; a lost GPU stays an error.
fn optional<T>(call: &'static str, answer: Result<T, NvmlError>) -> Result<Option<T>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) => match map_error(call, error) {
            Error::Lost => Err(Error::Lost),
            other => {
                tracing::trace!(call, %other, "no answer");
                Ok(None)
            }
        },
    }
}
