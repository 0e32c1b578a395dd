//! Checks of nodes whose GPUs are for virtual machines.

use std::path::Path;

use capstan_node::{labels, validation};

use super::super::{Barrier, WorkloadConfig};
use super::{Outcome, World, driver};
use crate::{Error, Result};

/// The node's workload type, also written to a file for the device plugins.
async fn workload(world: &World) -> Result<WorkloadConfig> {
    let facts = world.facts().await?;
    let label = facts.label(labels::WORKLOAD_CONFIG);
    let config = WorkloadConfig::of(label, &world.options.default_gpu_workload_config);
    Barrier::at(&world.options.output_dir).write(validation::WORKLOAD_TYPE, &format!("{}\n", config.name()))?;
    Ok(config)
}

/// Every GPU is bound to a vfio driver.
pub(super) async fn vfio_pci(world: &World) -> Result<Outcome> {
    if workload(world).await? != WorkloadConfig::VmPassthrough {
        return Ok(Outcome::Skipped("the node is not for whole GPUs in virtual machines"));
    }
    let gpus = world.pci_gpus()?;
    if gpus.is_empty() {
        return Err(Error::Check("no NVIDIA GPU on the PCI bus".into()));
    }
    for gpu in &gpus {
        let driver = gpu.driver.as_deref();
        let known = matches!(driver, Some("vfio-pci" | "nvgrace_gpu_vfio_pci"));
        // Variant vfio drivers are recognised by their `vfio-dev` directory.
        if !known && !gpu.path.join("vfio-dev").is_dir() {
            let bound = driver.map_or("no driver".to_owned(), |driver| format!("driver {driver}"));
            return Err(Error::Check(format!("GPU {} is bound to {bound}, not to vfio-pci", gpu.address)));
        }
    }
    Outcome::ready(validation::VFIO_PCI)
}

/// The vGPU manager runs, and has created its devices.
pub(super) async fn vgpu_manager(world: &World) -> Result<Outcome> {
    if workload(world).await? != WorkloadConfig::VmVgpu {
        return Ok(Outcome::Skipped("the node is not for parts of GPUs in virtual machines"));
    }
    let host = driver::host_program(world).is_some();
    if !vfs_ready(world)? {
        return Err(Error::Check(
            "no GPU offers vGPUs yet: virtual functions are not all enabled, and there is no parent device for mdevs"
                .into(),
        ));
    }
    Outcome::ready(if host { validation::HOST_VGPU_MANAGER } else { validation::VGPU_MANAGER })
}

/// With SR-IOV, all VFs of all GPUs exist; else some GPU supports mdevs.
pub(super) fn vfs_ready(world: &World) -> Result<bool> {
    let functions: Vec<(u32, u32)> = world.pci_gpus()?.iter().filter_map(|gpu| gpu.sriov).collect();
    let (total, enabled) = functions.iter().fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1));
    if enabled > 0 {
        return Ok(total > 0 && total == enabled);
    }
    Ok(entries(&world.fixed("/sys/class/mdev_bus")) > 0)
}

/// At least one vGPU device exists.
pub(super) async fn vgpu_devices(world: &World) -> Result<Outcome> {
    if workload(world).await? != WorkloadConfig::VmVgpu {
        return Ok(Outcome::Skipped("the node is not for parts of GPUs in virtual machines"));
    }
    let mdevs = entries(&world.fixed("/sys/bus/mdev/devices"));
    // Newer kernels have no mdevs for this: a VF has its vGPU type itself.
    let gpus = world.pci_gpus()?;
    let functions = gpus.iter().filter(|gpu| gpu.virtual_function).filter(|gpu| {
        let kind = std::fs::read_to_string(gpu.path.join("nvidia/current_vgpu_type")).unwrap_or_default();
        !matches!(kind.trim(), "" | "0")
    });
    if mdevs + functions.count() == 0 {
        return Err(Error::Check("no vGPU device has been made yet".into()));
    }
    Outcome::ready(validation::VGPU_DEVICES)
}

fn entries(dir: &Path) -> usize {
    std::fs::read_dir(dir).map_or(0, |entries| entries.flatten().count())
}
