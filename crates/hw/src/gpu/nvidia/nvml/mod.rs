//! GPUs through NVML, the library that comes with the driver.
//!
//! The library is opened from the driver's own root, so that a driver in a container works like one on the host.
//! A [`Library`] must be dropped and opened again when the driver changes: a loaded library never talks to another
//! version of the kernel module.

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
use crate::gpu::nvidia::{Hardware, Inventory, Profiling, Reading, Recovery, Relation, Topology, Watched};
use crate::{Error, Result};

pub use control::Control;

/// Products that show a picture on a workstation and compute nothing: no one may see them.
const DISPLAYS: [&str; 2] = ["DGX Display", "NVIDIA DGX Display"];

/// What a process did before that says nothing about what it does.
const RECENT: Duration = Duration::from_secs(5);

/// The opened library.
pub struct Library {
    nvml: Arc<Nvml>,
    /// The last sample of each device, to compare the next one with.
    samples: Mutex<HashMap<String, raw::Sample>>,
}

impl Library {
    /// Opens the library of the driver below `roots`.
    pub fn open(roots: &Roots) -> Result<Self> {
        Self::open_file(&roots.nvml()?)
    }

    /// Opens a library by its file.
    pub fn open_file(file: &Path) -> Result<Self> {
        let nvml = Nvml::builder().lib_path(file.as_os_str()).init().map_err(|error| match error {
            NvmlError::LibloadingError(why) => Error::NoDriver(format!("{}: {why}", file.display())),
            other => told("nvmlInit", other),
        })?;
        Ok(Self { nvml: Arc::new(nvml), samples: Mutex::default() })
    }

    /// All GPUs that may be used, in NVML's order; lost ones are left out.
    fn devices(&self) -> Result<Vec<Device<'_>>> {
        self.devices_and_lost().map(|(devices, _)| devices)
    }

    /// All GPUs that may be used, and the places of those that do not answer.
    fn devices_and_lost(&self) -> Result<(Vec<Device<'_>>, Vec<u32>)> {
        let count = self.nvml.device_count().map_err(|error| told("nvmlDeviceGetCount", error))?;
        let (mut devices, mut lost) = (Vec::new(), Vec::new());
        for index in 0..count {
            match self.nvml.device_by_index(index) {
                Ok(device) if device.name().is_ok_and(|name| DISPLAYS.contains(&name.as_str())) => {}
                Ok(device) => devices.push(device),
                // What NVML says of a GPU that it counts and cannot reach; the others answer all the same.
                Err(NvmlError::GpuLost | NvmlError::Unknown | NvmlError::IrqIssue | NvmlError::InsufficientPower) => {
                    lost.push(index)
                }
                Err(error) => return Err(told("nvmlDeviceGetHandleByIndex", error)),
            }
        }
        Ok((devices, lost))
    }

    fn device(&self, uuid: &str) -> Result<Device<'_>> {
        self.nvml.device_by_uuid(uuid).map_err(|error| match error {
            NvmlError::NotFound | NvmlError::InvalidArg => Error::NotFound(uuid.to_owned()),
            other => told("nvmlDeviceGetHandleByUUID", other),
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
            named.push((device.uuid().map_err(|error| told("nvmlDeviceGetUUID", error))?, device));
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

    fn watch(&self) -> Result<Watched> {
        events::watch(&self.nvml, &self.devices()?)
    }

    fn processes(&self, uuid: &str) -> Result<Vec<(u32, u64)>> {
        let device = self.device(uuid)?;
        let found =
            device.running_compute_processes().map_err(|error| told("nvmlDeviceGetComputeRunningProcesses", error))?;
        let bytes = |memory: &UsedGpuMemory| match memory {
            UsedGpuMemory::Used(bytes) => *bytes,
            UsedGpuMemory::Unavailable => 0,
        };
        Ok(found.iter().map(|process| (process.pid, bytes(&process.used_gpu_memory))).collect())
    }

    fn process_activity(&self, uuid: &str) -> Result<Vec<(u32, u32)>> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let since = now.saturating_sub(RECENT).as_micros();
        let samples = match self.device(uuid)?.process_utilization_stats(u64::try_from(since).unwrap_or_default()) {
            Ok(samples) => samples,
            // No process, no sample; and a MIG device has none at all.
            Err(NvmlError::NotFound | NvmlError::NotSupported) => Vec::new(),
            Err(error) => return Err(told("nvmlDeviceGetProcessUtilization", error)),
        };
        let mut newest: BTreeMap<u32, (u64, u32)> = BTreeMap::new();
        for sample in samples {
            let known = newest.entry(sample.pid).or_default();
            *known = (*known).max((sample.timestamp, sample.sm_util));
        }
        // The driver may leave garbage where a process has just ended.
        Ok(newest.into_iter().map(|(pid, (_, busy))| (pid, busy)).filter(|(_, busy)| *busy <= 100).collect())
    }

    fn set_exclusive(&self, uuid: &str, exclusive: bool) -> Result<()> {
        let mode = if exclusive { ComputeMode::ExclusiveProcess } else { ComputeMode::Default };
        self.device(uuid)?.set_compute_mode(mode).map_err(|error| match error {
            NvmlError::NoPermission => Error::NoPermission("set the compute mode of a GPU"),
            other => told("nvmlDeviceSetComputeMode", other),
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

/// NVML's error as ours.
fn told(call: &'static str, error: NvmlError) -> Error {
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

/// An answer, or nothing where the GPU has none; a lost GPU stays an error.
fn optional<T>(call: &'static str, answer: Result<T, NvmlError>) -> Result<Option<T>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) => match told(call, error) {
            Error::Lost => Err(Error::Lost),
            other => {
                tracing::trace!(call, %other, "no answer");
                Ok(None)
            }
        },
    }
}
