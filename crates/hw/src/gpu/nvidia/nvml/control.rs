//! [`MigControl`] through NVML.

use std::sync::{Mutex, PoisonError};

use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;

use super::{Library, inventory, map_error, raw};
use crate::gpu::nvidia::MigMode;
use crate::gpu::nvidia::driver::Roots;
use crate::gpu::nvidia::mig::{
    ComputeInstance, GpuInstance, InstanceProfile, MigControl, Placement, Profile, Switch, attribute_of_index,
};
use crate::root::command_in;
use crate::{Error, Result};

/// Partitions the GPUs of the driver below its roots.
///
/// The library is opened on first use and closed before a reset: a process with an open library uses the GPU, and a GPU
/// in use cannot be reset. Other users in the process must have closed theirs too (`Source::forget`).
pub struct Control {
    roots: Roots,
    library: Mutex<Option<Library>>,
}

impl Control {
    /// GPUs of the driver below `roots`.
    pub fn new(roots: Roots) -> Self {
        Self { roots, library: Mutex::default() }
    }

    /// Calls NVML for one GPU, opening the library if necessary.
    fn with<T>(&self, gpu: &str, ask: impl FnOnce(&Device<'_>) -> Result<T>) -> Result<T> {
        let mut opened = self.library.lock().unwrap_or_else(PoisonError::into_inner);
        let library = match &mut *opened {
            Some(library) => library,
            none => none.insert(Library::open(&self.roots)?),
        };
        ask(&library.device(gpu)?)
    }
}

impl MigControl for Control {
    fn mode(&self, gpu: &str) -> Result<MigMode> {
        self.with(gpu, inventory::mig_mode)
    }

    fn set_mode(&self, gpu: &str, mig: Switch) -> Result<MigMode> {
        self.with(gpu, |device| {
            device.set_mig_mode(mig == Switch::On).map_err(|error| match error {
                NvmlError::NoPermission => Error::NoPermission("switch the MIG mode of a GPU"),
                NvmlError::InUse => Error::InUse(format!("GPU {gpu}")),
                other => map_error("nvmlDeviceSetMigMode", other),
            })
        })?;
        // The driver may have reset the GPU: look it up again. Where it could not, the mode is pending.
        self.mode(gpu)
    }

    fn profiles(&self, gpu: &str) -> Result<Vec<InstanceProfile>> {
        self.with(gpu, |device| {
            let memory = device.memory_info().map_err(|error| map_error("nvmlDeviceGetMemoryInfo", error))?.total;
            let profile = |found: raw::mig::RawProfile| {
                let slices = found.slices;
                let name = Profile::of(slices.compute, slices.gpu, slices.memory_mib, memory)
                    .with_attribute(attribute_of_index(found.index));
                let placements = raw::mig::placements(device, found.id)?;
                Ok(InstanceProfile { id: found.id, name, slices, max_instances: found.max_instances, placements })
            };
            raw::mig::profiles(device)?.into_iter().map(profile).collect()
        })
    }

    fn instances(&self, gpu: &str) -> Result<Vec<GpuInstance>> {
        self.with(gpu, |device| {
            if !matches!(inventory::mig_mode(device)?, MigMode::Enabled { .. }) {
                return Ok(Vec::new());
            }
            let mut found = Vec::new();
            for profile in raw::mig::profiles(device)? {
                found.extend(raw::mig::instances(device, profile.id, profile.max_instances)?);
            }
            found.sort_by_key(|instance| instance.id);
            Ok(found)
        })
    }

    fn create_gpu_instance(&self, gpu: &str, profile: u32, at: Option<Placement>) -> Result<GpuInstance> {
        self.with(gpu, |device| raw::mig::create(device, profile, at))
    }

    fn destroy_gpu_instance(&self, gpu: &str, gi: u32) -> Result<()> {
        self.with(gpu, |device| raw::mig::destroy(device, gi))
    }

    fn create_compute_instance(&self, gpu: &str, gi: u32, slices: u32) -> Result<ComputeInstance> {
        self.with(gpu, |device| raw::mig::create_compute(device, gi, slices))
    }

    fn destroy_compute_instance(&self, gpu: &str, gi: u32, ci: u32) -> Result<()> {
        self.with(gpu, |device| raw::mig::destroy_compute(device, gi, ci))
    }

    /// NVML has no call for it; `nvidia-smi` does.
    fn reset(&self, gpu: &str) -> Result<()> {
        const CALL: &str = "nvidia-smi --gpu-reset";
        let mut opened = self.library.lock().unwrap_or_else(PoisonError::into_inner);
        *opened = None;
        let output = command_in(&self.roots.here, "nvidia-smi").args(["--gpu-reset", "--id", gpu]).output();
        let output = output.map_err(|error| Error::Call { call: CALL, why: error.to_string() })?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        match output.status.success() {
            true => Ok(()),
            false if text.contains("in use") => Err(Error::InUse(format!("GPU {gpu}"))),
            false => Err(Error::Call { call: CALL, why: format!("{text} ({})", output.status) }),
        }
    }
}
