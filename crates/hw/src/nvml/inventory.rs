//! What there is: driver, GPUs and their MIG devices.

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::InfoRom;
use nvml_wrapper::error::NvmlError;

use super::{Library, optional, raw, told};
use crate::mig::{Profile, attribute_of_index};
use crate::{ComputeCapability, CudaVersion, Gpu, Inventory, MigDevice, MigMode, MigSlices, PciAddress, Result};

/// NVLinks that a GPU may have.
const LINKS: u32 = 18;

pub(super) fn read(library: &Library) -> Result<Inventory> {
    let nvml = &library.nvml;
    let gpus = library.devices()?.iter().map(gpu).collect::<Result<Vec<Gpu>>>()?;
    let cuda = nvml.sys_cuda_driver_version().map_err(|error| told("nvmlSystemGetCudaDriverVersion", error))?;
    Ok(Inventory {
        driver: nvml.sys_driver_version().map_err(|error| told("nvmlSystemGetDriverVersion", error))?,
        nvml: nvml.sys_nvml_version().map_err(|error| told("nvmlSystemGetNVMLVersion", error))?,
        cuda: CudaVersion::from_number(cuda),
        gpus,
    })
}

fn gpu(device: &Device<'_>) -> Result<Gpu> {
    let pci = device.pci_info().map_err(|error| told("nvmlDeviceGetPciInfo", error))?;
    let capability =
        device.cuda_compute_capability().map_err(|error| told("nvmlDeviceGetCudaComputeCapability", error))?;
    let memory_bytes = optional("nvmlDeviceGetMemoryInfo", device.memory_info())?.map_or(0, |memory| memory.total);
    let mig = mig_mode(device)?;
    let part = |part| optional("nvmlDeviceGetInforomVersion", device.info_rom_version(part));
    let (nvlinks, nvswitch) = links(device);
    Ok(Gpu {
        index: device.index().map_err(|error| told("nvmlDeviceGetIndex", error))?,
        uuid: device.uuid().map_err(|error| told("nvmlDeviceGetUUID", error))?,
        minor: device.minor_number().map_err(|error| told("nvmlDeviceGetMinorNumber", error))?,
        name: device.name().map_err(|error| told("nvmlDeviceGetName", error))?,
        brand: optional("nvmlDeviceGetBrand", device.brand())?.map(|brand| format!("{brand:?}")),
        serial: optional("nvmlDeviceGetSerial", device.serial())?,
        vbios: optional("nvmlDeviceGetVbiosVersion", device.vbios_version())?,
        inforom: optional("nvmlDeviceGetInforomImageVersion", device.info_rom_image_version())?,
        inforom_parts: [part(InfoRom::OEM)?, part(InfoRom::ECC)?, part(InfoRom::Power)?],
        // A GPU that is part of the processor has no place on the bus.
        pci: PciAddress::parse(&pci.bus_id).or_else(|| PciAddress::parse("0:0.0")).ok_or(crate::Error::NotSupported)?,
        pci_device: pci.pci_device_id,
        pci_subsystem: pci.pci_sub_system_id.unwrap_or_default(),
        memory_bytes,
        compute: ComputeCapability {
            major: u32::try_from(capability.major).unwrap_or_default(),
            minor: u32::try_from(capability.minor).unwrap_or_default(),
        },
        mig,
        mig_devices: if matches!(mig, MigMode::Enabled { .. }) {
            mig_devices(device, memory_bytes)?
        } else {
            Vec::new()
        },
        fabric: raw::fabric(device),
        addressing: raw::addressing(device),
        nvlinks,
        nvswitch,
        gpm: device.gpm_support().unwrap_or(false),
        virtual_gpu: device.virtualization_mode().is_ok_and(|mode| format!("{mode:?}").contains("Vgpu")),
    })
}

fn mig_mode(device: &Device<'_>) -> Result<MigMode> {
    Ok(match optional("nvmlDeviceGetMigMode", device.mig_mode())? {
        None => MigMode::Unsupported,
        Some(mode) if mode.current == 1 => MigMode::Enabled { pending_off: mode.pending == 0 },
        Some(mode) => MigMode::Disabled { pending: mode.pending == 1 },
    })
}

fn mig_devices(device: &Device<'_>, total_bytes: u64) -> Result<Vec<MigDevice>> {
    let most = optional("nvmlDeviceGetMaxMigDeviceCount", device.mig_device_count())?.unwrap_or(0);
    let mut devices = Vec::new();
    for index in 0..most {
        match device.mig_device_by_index(index) {
            Ok(part) => devices.push(mig_device(device, index, &part, total_bytes)?),
            // A place without a device.
            Err(NvmlError::NotFound | NvmlError::InvalidArg) => {}
            Err(error) => return Err(told("nvmlDeviceGetMigDeviceHandleByIndex", error)),
        }
    }
    Ok(devices)
}

fn mig_device(parent: &Device<'_>, index: u32, part: &Device<'_>, total_bytes: u64) -> Result<MigDevice> {
    let attributes = part.attributes().map_err(|error| told("nvmlDeviceGetAttributes", error))?;
    let (gi, ci) = raw::instance(part)?;
    let slices = MigSlices {
        gpu: attributes.gpu_instance_slice_count,
        compute: attributes.compute_instance_slice_count,
        memory_mib: attributes.memory_size_mb,
        multiprocessors: attributes.multiprocessor_count,
        copy_engines: attributes.shared_copy_engine_count,
        decoders: attributes.shared_decoder_count,
        encoders: attributes.shared_encoder_count,
        jpeg: attributes.shared_jpeg_count,
        ofa: attributes.shared_ofa_count,
    };
    let profile = Profile::of(slices.compute, slices.gpu, slices.memory_mib, total_bytes)
        .with_attribute(raw::profile_index(parent, gi).and_then(attribute_of_index));
    Ok(MigDevice {
        index,
        uuid: part.uuid().map_err(|error| told("nvmlDeviceGetUUID", error))?,
        gi,
        ci,
        slices,
        profile: profile.to_string(),
    })
}

/// NVLinks that are up, and whether they end in a switch.
fn links(device: &Device<'_>) -> (u32, bool) {
    let (mut up, mut switch) = (0, false);
    for link in 0..LINKS {
        let wrapper = device.link_wrapper_for(link);
        if !wrapper.is_active().unwrap_or(false) {
            continue;
        }
        up += 1;
        switch |= raw::ends_in_switch(device, link);
    }
    (up, switch)
}

/// NVLinks from one GPU to the other: direct ones, or all of them where a switch joins both.
pub(super) fn links_between(a: &Device<'_>, b: &Device<'_>) -> u32 {
    let Ok(other) = b.pci_info() else { return 0 };
    let other = PciAddress::parse(&other.bus_id);
    let direct = (0..LINKS).filter(|&link| {
        let wrapper = a.link_wrapper_for(link);
        wrapper.is_active().unwrap_or(false)
            && wrapper.remote_pci_info().is_ok_and(|remote| PciAddress::parse(&remote.bus_id) == other)
    });
    let direct = u32::try_from(direct.count()).unwrap_or(LINKS);
    let ((mine, switch), (theirs, their_switch)) = (links(a), links(b));
    if direct == 0 && switch && their_switch { mine.min(theirs) } else { direct }
}
