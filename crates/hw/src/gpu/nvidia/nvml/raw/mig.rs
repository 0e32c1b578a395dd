//! NVML calls for GPU instances and compute instances. NVML handles stay inside: instances are named by their IDs.

use std::mem;
use std::ptr;

use nvml_wrapper::Device;
use nvml_wrapper::error::{NvmlError, nvml_try, nvml_try_count};
use nvml_wrapper_sys::bindings as sys;

use super::{check, symbol};
use crate::gpu::nvidia::MigSlices;
use crate::gpu::nvidia::mig::{ComputeInstance, GpuInstance, Placement};
use crate::gpu::nvidia::nvml::map_error;
use crate::{Error, Result};

/// Number of GPU instance and compute instance profiles in NVML.
const GPU_PROFILES: u32 = sys::NVML_GPU_INSTANCE_PROFILE_COUNT;
const COMPUTE_PROFILES: u32 = sys::NVML_COMPUTE_INSTANCE_PROFILE_COUNT;
/// The only engine sharing mode.
const SHARED: u32 = sys::NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED;

/// A profile in NVML.
pub(in crate::gpu::nvidia::nvml) struct RawProfile {
    /// Profile index of NVML calls.
    pub(in crate::gpu::nvidia::nvml) index: u32,
    /// Profile ID of the driver.
    pub(in crate::gpu::nvidia::nvml) id: u32,
    pub(in crate::gpu::nvidia::nvml) slices: MigSlices,
    pub(in crate::gpu::nvidia::nvml) max_instances: u32,
}

/// The profiles that a GPU has.
pub(in crate::gpu::nvidia::nvml) fn profiles(device: &Device<'_>) -> Result<Vec<RawProfile>> {
    const CALL: &str = "nvmlDeviceGetGpuInstanceProfileInfo";
    let ask = symbol(&device.nvml().lib().nvmlDeviceGetGpuInstanceProfileInfo)?;
    let mut found = Vec::new();
    for index in 0..GPU_PROFILES {
        // SAFETY: a plain structure of ours, written by NVML; the handle is of this loaded library.
        let (code, info) = unsafe {
            let mut info: sys::nvmlGpuInstanceProfileInfo_t = mem::zeroed();
            (ask(device.handle(), index, &mut info), info)
        };
        match nvml_try(code) {
            Ok(()) => found.push(profile(index, &info)),
            // Not supported by this GPU or driver.
            Err(NvmlError::NotSupported | NvmlError::InvalidArg) => {}
            Err(error) => return Err(map_error(CALL, error)),
        }
    }
    Ok(found)
}

fn profile(index: u32, info: &sys::nvmlGpuInstanceProfileInfo_t) -> RawProfile {
    let slices = MigSlices {
        gpu: info.sliceCount,
        compute: info.sliceCount,
        memory_mib: info.memorySizeMB,
        multiprocessors: info.multiprocessorCount,
        copy_engines: info.copyEngineCount,
        decoders: info.decoderCount,
        encoders: info.encoderCount,
        jpeg: info.jpegCount,
        ofa: info.ofaCount,
    };
    RawProfile { index, id: info.id, slices, max_instances: info.instanceCount }
}

/// Possible placements of a profile, whatever exists now.
pub(in crate::gpu::nvidia::nvml) fn placements(device: &Device<'_>, profile: u32) -> Result<Vec<Placement>> {
    const CALL: &str = "nvmlDeviceGetGpuInstancePossiblePlacements";
    let ask = symbol(&device.nvml().lib().nvmlDeviceGetGpuInstancePossiblePlacements_v2)?;
    // SAFETY: without a list NVML says how long it is; with one it writes at most as many as that.
    let found = unsafe {
        let mut count = 0;
        nvml_try_count(ask(device.handle(), profile, ptr::null_mut(), &mut count))
            .map_err(|error| map_error(CALL, error))?;
        let mut found = vec![mem::zeroed::<sys::nvmlGpuInstancePlacement_t>(); count as usize];
        check(CALL, ask(device.handle(), profile, found.as_mut_ptr(), &mut count))?;
        found.truncate(count as usize);
        found
    };
    Ok(found.iter().map(|place| Placement { start: place.start, size: place.size }).collect())
}

/// The GPU instances of one profile; `max` is their maximum number.
pub(in crate::gpu::nvidia::nvml) fn instances(device: &Device<'_>, profile: u32, max: u32) -> Result<Vec<GpuInstance>> {
    let list = symbol(&device.nvml().lib().nvmlDeviceGetGpuInstances)?;
    // SAFETY: NVML writes at most as many handles as the profile allows instances.
    let handles = unsafe {
        let mut handles: Vec<sys::nvmlGpuInstance_t> = vec![ptr::null_mut(); max as usize];
        let mut count = max;
        check("nvmlDeviceGetGpuInstances", list(device.handle(), profile, handles.as_mut_ptr(), &mut count))?;
        handles.truncate(count as usize);
        handles
    };
    handles.into_iter().map(|handle| described(device, handle)).collect()
}

/// Creates a GPU instance.
pub(in crate::gpu::nvidia::nvml) fn create(
    device: &Device<'_>,
    profile: u32,
    at: Option<Placement>,
) -> Result<GpuInstance> {
    let lib = device.nvml().lib();
    let (anywhere, there) =
        (symbol(&lib.nvmlDeviceCreateGpuInstance)?, symbol(&lib.nvmlDeviceCreateGpuInstanceWithPlacement)?);
    // SAFETY: NVML reads the place and writes the handle; both are ours.
    let handle = unsafe {
        let mut handle: sys::nvmlGpuInstance_t = ptr::null_mut();
        match at {
            None => check("nvmlDeviceCreateGpuInstance", anywhere(device.handle(), profile, &mut handle))?,
            Some(Placement { start, size }) => {
                let place = sys::nvmlGpuInstancePlacement_t { start, size };
                let code = there(device.handle(), profile, &place, &mut handle);
                check("nvmlDeviceCreateGpuInstanceWithPlacement", code)?;
            }
        }
        handle
    };
    described(device, handle)
}

/// Destroys a GPU instance.
pub(in crate::gpu::nvidia::nvml) fn destroy(device: &Device<'_>, gi: u32) -> Result<()> {
    let destroy = symbol(&device.nvml().lib().nvmlGpuInstanceDestroy)?;
    let handle = handle(device, gi)?;
    // SAFETY: the handle was given for this instance just now.
    unsafe { check("nvmlGpuInstanceDestroy", destroy(handle)) }
}

/// Creates a compute instance with this many slices.
pub(in crate::gpu::nvidia::nvml) fn create_compute(
    device: &Device<'_>,
    gi: u32,
    slices: u32,
) -> Result<ComputeInstance> {
    let create = symbol(&device.nvml().lib().nvmlGpuInstanceCreateComputeInstance)?;
    let parent = handle(device, gi)?;
    let profiles = compute_profiles(device, parent)?;
    let profile = profiles.iter().find(|profile| profile.sliceCount == slices).ok_or_else(|| Error::Call {
        call: "nvmlGpuInstanceGetComputeInstanceProfileInfo",
        why: format!("GPU instance {gi} has no compute instances of {slices} slices"),
    })?;
    // SAFETY: NVML writes the handle, which is ours.
    let handle = unsafe {
        let mut handle: sys::nvmlComputeInstance_t = ptr::null_mut();
        check("nvmlGpuInstanceCreateComputeInstance", create(parent, profile.id, &mut handle))?;
        handle
    };
    Ok(ComputeInstance { id: compute_id(device, handle)?, slices })
}

/// Destroys a compute instance.
pub(in crate::gpu::nvidia::nvml) fn destroy_compute(device: &Device<'_>, gi: u32, ci: u32) -> Result<()> {
    let lib = device.nvml().lib();
    let (by_id, destroy) =
        (symbol(&lib.nvmlGpuInstanceGetComputeInstanceById)?, symbol(&lib.nvmlComputeInstanceDestroy)?);
    let parent = handle(device, gi)?;
    // SAFETY: NVML writes the handle, which is used only here.
    unsafe {
        let mut handle: sys::nvmlComputeInstance_t = ptr::null_mut();
        nvml_try(by_id(parent, ci, &mut handle)).map_err(|error| match error {
            NvmlError::NotFound => Error::NotFound(format!("compute instance {ci} of GPU instance {gi}")),
            other => map_error("nvmlGpuInstanceGetComputeInstanceById", other),
        })?;
        check("nvmlComputeInstanceDestroy", destroy(handle))
    }
}

fn handle(device: &Device<'_>, gi: u32) -> Result<sys::nvmlGpuInstance_t> {
    let by_id = symbol(&device.nvml().lib().nvmlDeviceGetGpuInstanceById)?;
    let mut handle: sys::nvmlGpuInstance_t = ptr::null_mut();
    // SAFETY: NVML writes the handle, which is ours.
    let code = unsafe { by_id(device.handle(), gi, &mut handle) };
    nvml_try(code).map(|()| handle).map_err(|error| match error {
        NvmlError::NotFound => Error::NotFound(format!("GPU instance {gi}")),
        other => map_error("nvmlDeviceGetGpuInstanceById", other),
    })
}

fn described(device: &Device<'_>, handle: sys::nvmlGpuInstance_t) -> Result<GpuInstance> {
    let ask = symbol(&device.nvml().lib().nvmlGpuInstanceGetInfo)?;
    // SAFETY: a plain structure of ours, written by NVML; the handle was given by it just now.
    let info = unsafe {
        let mut info: sys::nvmlGpuInstanceInfo_t = mem::zeroed();
        check("nvmlGpuInstanceGetInfo", ask(handle, &mut info))?;
        info
    };
    let mut compute = Vec::new();
    for profile in compute_profiles(device, handle)? {
        compute.extend(compute_instances(device, handle, &profile)?);
    }
    compute.sort_unstable();
    compute.dedup_by_key(|instance| instance.id);
    let placement = Placement { start: info.placement.start, size: info.placement.size };
    Ok(GpuInstance { id: info.id, profile: info.profileId, placement, compute })
}

fn compute_profiles(
    device: &Device<'_>,
    parent: sys::nvmlGpuInstance_t,
) -> Result<Vec<sys::nvmlComputeInstanceProfileInfo_t>> {
    let ask = symbol(&device.nvml().lib().nvmlGpuInstanceGetComputeInstanceProfileInfo)?;
    let profile = |index| {
        // SAFETY: a plain structure of ours, written by NVML; the handle of the instance is valid for the caller.
        unsafe {
            let mut info: sys::nvmlComputeInstanceProfileInfo_t = mem::zeroed();
            nvml_try(ask(parent, index, SHARED, &mut info)).ok().map(|()| info)
        }
    };
    Ok((0..COMPUTE_PROFILES).filter_map(profile).collect())
}

fn compute_instances(
    device: &Device<'_>,
    parent: sys::nvmlGpuInstance_t,
    profile: &sys::nvmlComputeInstanceProfileInfo_t,
) -> Result<Vec<ComputeInstance>> {
    let list = symbol(&device.nvml().lib().nvmlGpuInstanceGetComputeInstances)?;
    // SAFETY: NVML writes at most as many handles as the profile allows instances.
    let handles = unsafe {
        let mut count = profile.instanceCount;
        let mut handles: Vec<sys::nvmlComputeInstance_t> = vec![ptr::null_mut(); count as usize];
        let code = list(parent, profile.id, handles.as_mut_ptr(), &mut count);
        check("nvmlGpuInstanceGetComputeInstances", code)?;
        handles.truncate(count as usize);
        handles
    };
    let instance = |handle| Ok(ComputeInstance { id: compute_id(device, handle)?, slices: profile.sliceCount });
    handles.into_iter().map(instance).collect()
}

fn compute_id(device: &Device<'_>, handle: sys::nvmlComputeInstance_t) -> Result<u32> {
    let ask = symbol(&device.nvml().lib().nvmlComputeInstanceGetInfo_v2)?;
    // SAFETY: a plain structure of ours, written by NVML; the handle was given by it just now.
    unsafe {
        let mut info: sys::nvmlComputeInstanceInfo_t = mem::zeroed();
        check("nvmlComputeInstanceGetInfo", ask(handle, &mut info))?;
        Ok(info.id)
    }
}
