//! NVML calls that nvml-wrapper lacks, each behind a safe function. The only `unsafe` code that talks to GPUs.
#![allow(unsafe_code)]

pub(super) mod mig;

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use nvml_wrapper::error::{NvmlError, nvml_try};
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings as sys;

use super::map_error;
use crate::gpu::nvidia::{Addressing, Fabric, Profiling};
use crate::{Error, Result};

/// Event types: see `nvmlEventType*`.
pub(super) const SINGLE_BIT: u64 = 0x1;
pub(super) const DOUBLE_BIT: u64 = 0x2;
pub(super) const XID: u64 = 0x8;

/// Constants that the wrapper lacks.
pub(super) const INSUFFICIENT_RESOURCES: u32 = sys::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_RESOURCES;

/// A function that this version of the library may lack.
fn symbol<T: Copy, E>(symbol: &std::result::Result<T, E>) -> Result<T> {
    symbol.as_ref().map(|&function| function).map_err(|_| Error::NotSupported)
}

/// The version field of an NVML struct: its size and version.
fn version<T>(generation: u32) -> u32 {
    u32::try_from(mem::size_of::<T>()).unwrap_or_default() | generation << 24
}

fn check(call: &'static str, code: sys::nvmlReturn_t) -> Result<()> {
    nvml_try(code).map_err(|error| map_error(call, error))
}

/// GPU instance and compute instance of a MIG device.
pub(super) fn instance(device: &Device<'_>) -> Result<(u32, u32)> {
    let lib = device.nvml().lib();
    let (gpu, compute) = (symbol(&lib.nvmlDeviceGetGpuInstanceId)?, symbol(&lib.nvmlDeviceGetComputeInstanceId)?);
    let (mut gi, mut ci) = (0, 0);
    // SAFETY: the handle is of this library, which is loaded as long as the device lives; both outputs are ours.
    unsafe {
        check("nvmlDeviceGetGpuInstanceId", gpu(device.handle(), &mut gi))?;
        check("nvmlDeviceGetComputeInstanceId", compute(device.handle(), &mut ci))?;
    }
    Ok((gi, ci))
}

/// The profiles of one GPU, cached: NVML takes half a millisecond for each.
#[derive(Default)]
pub(super) struct Profiles {
    /// Index and ID of each.
    known: Option<Vec<(u32, u32)>>,
}

impl Profiles {
    /// The profile index that a GPU instance was created from: it has attributes that slices do not, such as media
    /// engines. `None` without permission.
    pub(super) fn index(&mut self, parent: &Device<'_>, gi: u32) -> Option<u32> {
        const PROFILES: u32 = 17;
        let lib = parent.nvml().lib();
        let by_id = symbol(&lib.nvmlDeviceGetGpuInstanceById).ok()?;
        let (info_of, profile_of) =
            (symbol(&lib.nvmlGpuInstanceGetInfo).ok()?, symbol(&lib.nvmlDeviceGetGpuInstanceProfileInfo).ok()?);
        // SAFETY: all structures are plain and ours; the handle of the instance is used only here.
        let wanted = unsafe {
            let mut instance: sys::nvmlGpuInstance_t = mem::zeroed();
            nvml_try(by_id(parent.handle(), gi, &mut instance)).ok()?;
            let mut info: sys::nvmlGpuInstanceInfo_t = mem::zeroed();
            nvml_try(info_of(instance, &mut info)).ok()?;
            info.profileId
        };
        let id = |index| {
            // SAFETY: a plain structure of ours, written by NVML.
            unsafe {
                let mut profile: sys::nvmlGpuInstanceProfileInfo_t = mem::zeroed();
                nvml_try(profile_of(parent.handle(), index, &mut profile)).ok()?;
                Some((index, profile.id))
            }
        };
        let known = self.known.get_or_insert_with(|| (0..PROFILES).filter_map(id).collect());
        known.iter().find(|(_, id)| *id == wanted).map(|(index, _)| *index)
    }
}

/// The NVLink fabric of a GPU, if it has one.
pub(super) fn fabric(device: &Device<'_>) -> Option<Fabric> {
    const COMPLETED: u8 = 3;
    let ask = symbol(&device.nvml().lib().nvmlDeviceGetGpuFabricInfoV).ok()?;
    // SAFETY: all zeroes is a valid value of this plain structure; the version tells NVML how much it may write.
    // Version 2 is a prefix of version 3, so older drivers fill a prefix.
    let info = unsafe {
        let mut info: sys::nvmlGpuFabricInfoV_t = mem::zeroed();
        info.version = version::<sys::nvmlGpuFabricInfo_v2_t>(2);
        nvml_try(ask(device.handle(), &mut info)).ok()?;
        info
    };
    let hex: String = info.clusterUuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    let joined = info.state == COMPLETED && info.status == sys::nvmlReturn_enum_NVML_SUCCESS;
    // Not supported: the GPU has no fabric.
    (info.state != 0).then(|| Fabric { cluster: parts.join("-"), clique: info.cliqueId, joined })
}

/// Addressing mode of a GPU.
pub(super) fn addressing(device: &Device<'_>) -> Option<Addressing> {
    let ask = symbol(&device.nvml().lib().nvmlDeviceGetAddressingMode).ok()?;
    // SAFETY: a plain structure with its version set, written by NVML.
    let mode = unsafe {
        let mut mode: sys::nvmlDeviceAddressingMode_t = mem::zeroed();
        mode.version = version::<sys::nvmlDeviceAddressingMode_t>(1);
        nvml_try(ask(device.handle(), &mut mode)).ok()?;
        mode.value
    };
    match mode {
        0 => Some(Addressing::None),
        1 => Some(Addressing::Hmm),
        2 => Some(Addressing::Ats),
        _ => None,
    }
}

/// Whether the remote end of an NVLink is a switch. The wrapper's own call never returns the result.
pub(super) fn ends_in_switch(device: &Device<'_>, link: u32) -> bool {
    let Ok(ask) = symbol(&device.nvml().lib().nvmlDeviceGetNvLinkRemoteDeviceType) else { return false };
    let mut kind = sys::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
    // SAFETY: the output is ours.
    let code = unsafe { ask(device.handle(), link, &mut kind) };
    nvml_try(code).is_ok() && kind == sys::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_SWITCH
}

/// Whether a vGPU licence is held, if one is needed.
pub(super) fn licensed(device: &Device<'_>) -> Option<bool> {
    let ask = symbol(&device.nvml().lib().nvmlDeviceGetGridLicensableFeatures_v4).ok()?;
    // SAFETY: a plain structure written by NVML; only as many entries are read as it says that it wrote.
    unsafe {
        let mut features: sys::nvmlGridLicensableFeatures_t = mem::zeroed();
        nvml_try(ask(device.handle(), &mut features)).ok()?;
        let count = features.licensableFeaturesCount as usize;
        let listed = features.gridLicensableFeatures.iter().take(count);
        (features.isGridLicenseSupported != 0).then(|| listed.into_iter().any(|feature| feature.featureState != 0))
    }
}

/// Field values, each with its scope; `None` if not supported by this GPU.
pub(super) fn fields<const N: usize>(device: &Device<'_>, request: [(u32, u32); N]) -> [Option<u64>; N] {
    let Ok(ask) = symbol(&device.nvml().lib().nvmlDeviceGetFieldValues) else { return [None; N] };
    // SAFETY: plain structures; NVML writes into as many as the count says, and each value is read by its own tag.
    unsafe {
        let mut values: [sys::nvmlFieldValue_t; N] = mem::zeroed();
        for (value, (field, scope)) in values.iter_mut().zip(request) {
            value.fieldId = field;
            value.scopeId = scope;
        }
        if nvml_try(ask(device.handle(), i32::try_from(N).unwrap_or_default(), values.as_mut_ptr())).is_err() {
            return [None; N];
        }
        values.map(|value| {
            nvml_try(value.nvmlReturn).ok()?;
            match value.valueType {
                sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT => Some(u64::from(value.value.uiVal)),
                sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG => Some(value.value.ulVal),
                sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG => Some(value.value.ullVal),
                sys::nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_LONG_LONG => value.value.sllVal.try_into().ok(),
                _ => None,
            }
        })
    }
}

/// Value of one field.
pub(super) fn field(device: &Device<'_>, field: u32) -> Result<u64> {
    let [value] = fields(device, [(field, 0)]);
    match (value, device.uuid()) {
        (Some(value), _) => Ok(value),
        // A lost GPU has no fields either.
        (None, Err(error @ NvmlError::GpuLost)) => Err(map_error("nvmlDeviceGetFieldValues", error)),
        (None, _) => Err(Error::NotSupported),
    }
}

/// Data of an event.
pub(super) struct RawEvent {
    pub(super) uuid: Option<String>,
    pub(super) kind: u64,
    pub(super) data: u64,
    pub(super) gi: u32,
    pub(super) ci: u32,
    pub(super) mig: bool,
}

/// An NVML event set.
pub(super) struct EventSet {
    nvml: Arc<Nvml>,
    set: sys::nvmlEventSet_t,
}

// SAFETY: NVML's event sets may be used from any thread, by one at a time, which `&mut` in `Events` ensures.
unsafe impl Send for EventSet {}

impl EventSet {
    pub(super) fn new(nvml: &Arc<Nvml>) -> Result<Self> {
        let create = symbol(&nvml.lib().nvmlEventSetCreate)?;
        // SAFETY: NVML writes a handle that we free on drop; the library outlives it through our reference.
        let set = unsafe {
            let mut set: sys::nvmlEventSet_t = mem::zeroed();
            check("nvmlEventSetCreate", create(&mut set))?;
            set
        };
        Ok(Self { nvml: nvml.clone(), set })
    }

    /// Registers this GPU for the supported event types among those that we handle.
    pub(super) fn register(&self, device: &Device<'_>) -> Result<()> {
        let lib = self.nvml.lib();
        let (supported, register) =
            (symbol(&lib.nvmlDeviceGetSupportedEventTypes)?, symbol(&lib.nvmlDeviceRegisterEvents)?);
        // SAFETY: handle and set are of the same loaded library.
        unsafe {
            let mut types = 0;
            check("nvmlDeviceGetSupportedEventTypes", supported(device.handle(), &mut types))?;
            let wanted = types & (SINGLE_BIT | DOUBLE_BIT | XID);
            check("nvmlDeviceRegisterEvents", register(device.handle(), wanted, self.set))
        }
    }

    pub(super) fn wait(&mut self, timeout: Duration) -> Result<Option<RawEvent>> {
        let wait = symbol(&self.nvml.lib().nvmlEventSetWait_v2)?;
        let millis = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        // SAFETY: a plain structure written by NVML.
        let data = unsafe {
            let mut data: sys::nvmlEventData_t = mem::zeroed();
            match nvml_try(wait(self.set, &mut data, millis)) {
                Ok(()) => data,
                Err(NvmlError::Timeout) => return Ok(None),
                Err(error) => return Err(map_error("nvmlEventSetWait", error)),
            }
        };
        // SAFETY: the handle that an event carries is one of the devices registered in this set.
        let device = unsafe { Device::new(data.device, &self.nvml) };
        Ok(Some(RawEvent {
            uuid: device.uuid().ok(),
            kind: data.eventType,
            data: data.eventData,
            gi: data.gpuInstanceId,
            ci: data.computeInstanceId,
            mig: device.mig_mode().is_ok_and(|mode| mode.current == 1),
        }))
    }
}

impl Drop for EventSet {
    fn drop(&mut self) {
        if let Ok(free) = symbol(&self.nvml.lib().nvmlEventSetFree) {
            // SAFETY: ours, and freed once.
            unsafe { free(self.set) };
        }
    }
}

/// A GPM sample (Hopper and newer).
pub(super) struct Sample {
    nvml: Arc<Nvml>,
    sample: sys::nvmlGpmSample_t,
}

// SAFETY: a sample is plain memory of NVML; it is used by one thread at a time, behind a lock.
unsafe impl Send for Sample {}

impl Sample {
    pub(super) fn take(nvml: &Arc<Nvml>, device: &Device<'_>) -> Result<Self> {
        let lib = nvml.lib();
        let (alloc, whole, part) =
            (symbol(&lib.nvmlGpmSampleAlloc)?, symbol(&lib.nvmlGpmSampleGet)?, symbol(&lib.nvmlGpmMigSampleGet)?);
        let mig = device.mig_is_mig_device_handle().unwrap_or(false);
        let parent = if mig {
            Some(
                device
                    .mig_parent_device()
                    .map_err(|error| map_error("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", error))?,
            )
        } else {
            None
        };
        // SAFETY: NVML allocates the sample, and `Drop` frees it, also when filling it fails.
        unsafe {
            let mut sample: sys::nvmlGpmSample_t = mem::zeroed();
            check("nvmlGpmSampleAlloc", alloc(&mut sample))?;
            let taken = Self { nvml: nvml.clone(), sample };
            match parent {
                None => check("nvmlGpmSampleGet", whole(device.handle(), sample))?,
                Some(parent) => check("nvmlGpmMigSampleGet", part(parent.handle(), instance(device)?.0, sample))?,
            }
            Ok(taken)
        }
    }

    /// Metrics between an earlier sample and this one.
    pub(super) fn since(&self, earlier: &Self) -> Result<Profiling> {
        const MIB: f64 = 1_048_576.0;
        let [graphics, sm_active, sm_occupancy, tensor, dram, fp64, fp32, fp16, tx, rx, link_rx, link_tx] =
            self.metrics(earlier, [1, 2, 3, 5, 10, 11, 12, 13, 20, 21, 60, 61])?;
        let share = |percent: Option<f64>| percent.map(|percent| percent / 100.0);
        let rate = |mib: Option<f64>| mib.map(|mib| mib * MIB);
        Ok(Profiling {
            graphics: share(graphics),
            sm_active: share(sm_active),
            sm_occupancy: share(sm_occupancy),
            tensor: share(tensor),
            dram: share(dram),
            fp64: share(fp64),
            fp32: share(fp32),
            fp16: share(fp16),
            pcie_tx: rate(tx),
            pcie_rx: rate(rx),
            nvlink_tx: rate(link_tx),
            nvlink_rx: rate(link_rx),
        })
    }

    fn metrics<const N: usize>(&self, earlier: &Self, ids: [u32; N]) -> Result<[Option<f64>; N]> {
        let get = symbol(&self.nvml.lib().nvmlGpmMetricsGet)?;
        // SAFETY: both samples are filled; NVML writes as many metrics as the count says. The structure is large,
        // hence on the heap.
        unsafe {
            let mut request: Box<sys::nvmlGpmMetricsGet_t> = Box::new(mem::zeroed());
            request.version = sys::NVML_GPM_METRICS_GET_VERSION;
            request.numMetrics = u32::try_from(N).unwrap_or_default();
            request.sample1 = earlier.sample;
            request.sample2 = self.sample;
            for (metric, id) in request.metrics.iter_mut().zip(ids) {
                metric.metricId = id;
            }
            check("nvmlGpmMetricsGet", get(&mut *request))?;
            let value = |place: usize| {
                let metric = &request.metrics[place];
                (nvml_try(metric.nvmlReturn).is_ok() && metric.value.is_finite()).then_some(metric.value)
            };
            Ok(std::array::from_fn(value))
        }
    }
}

impl Drop for Sample {
    fn drop(&mut self) {
        if let Ok(free) = symbol(&self.nvml.lib().nvmlGpmSampleFree) {
            // SAFETY: ours, and freed once.
            unsafe { free(self.sample) };
        }
    }
}
