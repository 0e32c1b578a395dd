//! Reads driver, GPUs and MIG devices.

use std::path::Path;

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::InfoRom;
use nvml_wrapper::error::NvmlError;

use super::{Library, map_error, optional, raw};
use crate::gpu::nvidia::mig::{Profile, attribute_of_index, legacy};
use crate::gpu::nvidia::{ComputeCapability, CudaVersion, Gpu, Inventory, LostGpu, MigDevice, MigMode, MigSlices};
use crate::pci::PciAddress;
use crate::{Error, Result};

/// Maximum number of NVLinks of a GPU.
const LINKS: u32 = 18;

/// Whether to read MIG devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parts {
    /// With MIG devices.
    All,
    /// GPUs only.
    None,
}

pub(super) fn read(library: &Library, parts: Parts) -> Result<Inventory> {
    let nvml = &library.nvml;
    let (devices, unreachable) = library.devices_and_lost()?;
    let mut lost: Vec<LostGpu> = unreachable.into_iter().map(|index| LostGpu { index, uuid: None }).collect();
    let mut gpus = Vec::new();
    for device in &devices {
        match gpu(device, parts) {
            Ok(gpu) => gpus.push(gpu),
            // Lost since it was counted.
            Err(Error::Lost) => {
                lost.push(LostGpu { index: device.index().unwrap_or_default(), uuid: device.uuid().ok() })
            }
            Err(other) => return Err(other),
        }
    }
    let cuda = nvml.sys_cuda_driver_version().map_err(|error| map_error("nvmlSystemGetCudaDriverVersion", error))?;
    Ok(Inventory {
        driver: nvml.sys_driver_version().map_err(|error| map_error("nvmlSystemGetDriverVersion", error))?,
        nvml: nvml.sys_nvml_version().map_err(|error| map_error("nvmlSystemGetNVMLVersion", error))?,
        cuda: CudaVersion::from_number(cuda),
        gpus,
        lost,
    })
}

fn gpu(device: &Device<'_>, parts: Parts) -> Result<Gpu> {
    let pci = device.pci_info().map_err(|error| map_error("nvmlDeviceGetPciInfo", error))?;
    let capability =
        device.cuda_compute_capability().map_err(|error| map_error("nvmlDeviceGetCudaComputeCapability", error))?;
    let memory_bytes = optional("nvmlDeviceGetMemoryInfo", device.memory_info())?.map_or(0, |memory| memory.total);
    let mig = mig_mode(device)?;
    let part = |part| optional("nvmlDeviceGetInforomVersion", device.info_rom_version(part));
    let (nvlinks, nvswitch) = links(device);
    let minor = device.minor_number().map_err(|error| map_error("nvmlDeviceGetMinorNumber", error))?;
    Ok(Gpu {
        index: device.index().map_err(|error| map_error("nvmlDeviceGetIndex", error))?,
        uuid: device.uuid().map_err(|error| map_error("nvmlDeviceGetUUID", error))?,
        minor,
        name: device.name().map_err(|error| map_error("nvmlDeviceGetName", error))?,
        brand: optional("nvmlDeviceGetBrand", device.brand())?.map(|brand| format!("{brand:?}")),
        serial: optional("nvmlDeviceGetSerial", device.serial())?,
        vbios: optional("nvmlDeviceGetVbiosVersion", device.vbios_version())?,
        inforom: optional("nvmlDeviceGetInforomImageVersion", device.info_rom_image_version())?,
        inforom_parts: [part(InfoRom::OEM)?, part(InfoRom::ECC)?, part(InfoRom::Power)?],
        // An integrated GPU has no PCI address.
        pci: PciAddress::parse(&pci.bus_id).or_else(|| PciAddress::parse("0:0.0")).ok_or(Error::NotSupported)?,
        pci_device: pci.pci_device_id,
        pci_subsystem: pci.pci_sub_system_id.unwrap_or_default(),
        memory_bytes,
        compute: ComputeCapability {
            major: u32::try_from(capability.major).unwrap_or_default(),
            minor: u32::try_from(capability.minor).unwrap_or_default(),
        },
        mig,
        mig_devices: match (mig, parts) {
            (MigMode::Enabled { .. }, Parts::All) => mig_devices(device, minor, memory_bytes)?,
            _ => Vec::new(),
        },
        fabric: raw::fabric(device),
        addressing: raw::addressing(device),
        nvlinks,
        nvswitch,
        gpm: device.gpm_support().unwrap_or(false),
        virtual_gpu: device.virtualization_mode().is_ok_and(|mode| format!("{mode:?}").contains("Vgpu")),
    })
}

pub(super) fn mig_mode(device: &Device<'_>) -> Result<MigMode> {
    Ok(match optional("nvmlDeviceGetMigMode", device.mig_mode())? {
        None => MigMode::Unsupported,
        Some(mode) if mode.current == 1 => MigMode::Enabled { pending_off: mode.pending == 0 },
        Some(mode) => MigMode::Disabled { pending: mode.pending == 1 },
    })
}

fn mig_devices(device: &Device<'_>, minor: u32, total_bytes: u64) -> Result<Vec<MigDevice>> {
    let most = optional("nvmlDeviceGetMaxMigDeviceCount", device.mig_device_count())?.unwrap_or(0);
    // An empty index takes NVML as long as a MIG device: ten milliseconds.
    let there = instances(Path::new("/proc"), minor);
    let (mut devices, mut profiles) = (Vec::new(), raw::Profiles::default());
    for index in 0..most {
        if there.is_some_and(|count| devices.len() >= count) {
            break;
        }
        match device.mig_device_by_index(index) {
            Ok(part) => devices.push(mig_device(device, index, &part, total_bytes, &mut profiles)?),
            // An index without a device.
            Err(NvmlError::NotFound | NvmlError::InvalidArg) => {}
            Err(error) => return Err(map_error("nvmlDeviceGetMigDeviceHandleByIndex", error)),
        }
    }
    Ok(devices)
}

/// Number of compute instances of a GPU in procfs, which is the number of MIG devices. `None` if the list may be stale:
/// container runtimes mount a copy over it, made when the container started.
fn instances(proc: &Path, minor: u32) -> Option<usize> {
    let mounts = std::fs::read_to_string(proc.join("self/mountinfo")).ok()?;
    if mounts.lines().any(|line| line.split(' ').nth(4).is_some_and(|at| at.starts_with("/proc/driver"))) {
        return None;
    }
    let names = |dir: &Path, prefix: &'static str| {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
        let wanted = move |path: &std::path::PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
        };
        entries.filter(wanted).collect::<Vec<_>>()
    };
    let parts = names(&proc.join(format!("driver/nvidia/capabilities/gpu{minor}/mig")), "gi");
    let count = parts.iter().map(|part| names(part, "ci").len()).sum();
    (count > 0).then_some(count)
}

fn mig_device(
    parent: &Device<'_>,
    index: u32,
    part: &Device<'_>,
    total_bytes: u64,
    profiles: &mut raw::Profiles,
) -> Result<MigDevice> {
    let attributes = part.attributes().map_err(|error| map_error("nvmlDeviceGetAttributes", error))?;
    let uuid = part.uuid().map_err(|error| map_error("nvmlDeviceGetUUID", error))?;
    // Old drivers have them in the name only.
    let (gi, ci) = raw::instance(part).or_else(|error| legacy(&uuid).map(|(_, gi, ci)| (gi, ci)).ok_or(error))?;
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
        .with_attribute(profiles.index(parent, gi).and_then(attribute_of_index));
    Ok(MigDevice { index, uuid, gi, ci, slices, profile: profile.to_string() })
}

/// Active NVLinks, and whether they end in a switch.
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

/// NVLinks between two GPUs: direct ones, or all of them through a common switch.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A fake procfs list of instances, with mounts.
    fn listed(files: &[&str], mounts: &str) -> Option<usize> {
        let proc = tempfile::tempdir().expect("a directory");
        let dirs = ["self"].into_iter().chain(files.iter().copied());
        dirs.for_each(|dir| std::fs::create_dir_all(proc.path().join(dir)).expect("a directory"));
        std::fs::write(proc.path().join("self/mountinfo"), mounts).expect("a file");
        instances(proc.path(), 1)
    }

    #[test]
    fn instances_are_counted_where_the_list_is_the_kernels_own() {
        let gpu = "driver/nvidia/capabilities/gpu1/mig";
        let files = ["gi3/ci0", "gi9/ci0", "gi9/ci1"].map(|name| format!("{gpu}/{name}"));
        let files = files.each_ref().map(String::as_str);
        let plain = "25 1 0:22 / /proc rw - proc proc rw\n";
        let covered = "25 1 0:22 / /proc rw - proc proc rw\n99 25 0:50 / /proc/driver/nvidia rw - tmpfs tmpfs rw\n";
        assert_eq!(listed(&files, plain), Some(3));
        assert_eq!(listed(&files, covered), None);
        assert_eq!(listed(&[], plain), None, "nothing listed says nothing");
    }
}
