//! Which devices a node advertises, under which resource names. Pure functions over the inventory and kernel files.

use std::collections::BTreeMap;
use std::path::Path;

use capstan_hw::gpu::nvidia::{ComputeCapability, Gpu, Inventory, MigDevice};

use super::platform::Platform;
use super::settings::Settings;
use crate::config::{InvalidValue, MigStrategy, ResourceName, SharingStrategy};
use crate::mps;

/// One device, before sharing.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Device {
    /// UUID.
    pub id: String,
    /// Index: `0`, or `0:1` for a MIG device.
    pub index: String,
    /// UUID of its GPU.
    pub gpu: String,
    /// GPU instance and compute instance of a MIG device.
    pub instance: Option<(u32, u32)>,
    /// Its device nodes.
    pub paths: Vec<String>,
    /// NUMA affinity.
    pub numa: Option<i64>,
    /// Memory size.
    pub memory_mib: u64,
    /// Compute capability.
    pub compute: ComputeCapability,
}

/// Devices advertised under one resource name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Resource {
    /// Resource name.
    pub name: ResourceName,
    /// Resource name without sharing.
    pub unshared: ResourceName,
    /// Its devices.
    pub devices: Vec<Device>,
    /// Replicas per device, if shared.
    pub replicas: Option<u32>,
    /// Sharing strategy.
    pub sharing: SharingStrategy,
    /// A container may request one replica at most.
    pub one_only: bool,
}

impl Resource {
    /// Every device ID as advertised to the kubelet, replicas included.
    pub(crate) fn advertised(&self) -> impl Iterator<Item = (String, &Device)> {
        self.devices.iter().flat_map(move |device| {
            let names: Vec<String> = match self.replicas {
                None => vec![device.id.clone()],
                Some(replicas) => (0..replicas).map(|replica| format!("{}::{replica}", device.id)).collect(),
            };
            names.into_iter().map(move |name| (name, device))
        })
    }

    /// The device of an advertised ID.
    pub(crate) fn find(&self, id: &str) -> Option<&Device> {
        let (real, replica) = split(id);
        let known = match (self.replicas, replica) {
            (None, None) => true,
            (Some(replicas), Some(replica)) => replica < replicas,
            _ => false,
        };
        self.devices.iter().find(|device| known && device.id == real)
    }

    /// Whether all devices are whole GPUs, so that topology applies.
    pub(crate) fn whole_gpus(&self) -> bool {
        self.devices.iter().all(|device| device.instance.is_none() && device.id.starts_with("GPU-"))
    }
}

/// Splits an ID into device ID and replica.
pub(crate) fn split(id: &str) -> (&str, Option<u32>) {
    match id.rsplit_once("::") {
        Some((real, replica)) if replica.bytes().all(|byte| byte.is_ascii_digit()) => match replica.parse() {
            Ok(replica) => (real, Some(replica)),
            Err(_) => (id, None),
        },
        _ => (id, None),
    }
}

/// KernelFiles files about the devices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KernelFiles {
    /// `numa_node` of each GPU, by PCI address.
    pub numa: BTreeMap<String, String>,
    /// Content of `mig-minors`.
    pub minors: String,
}

impl KernelFiles {
    /// Reads them below a root.
    pub(crate) fn read(root: &Path, inventory: &Inventory) -> Self {
        let numa = inventory.gpus.iter().filter_map(|gpu| {
            let file = root.join(format!("sys/bus/pci/devices/{}/numa_node", gpu.pci));
            Some((gpu.pci.to_string(), std::fs::read_to_string(file).ok()?))
        });
        let minors = std::fs::read_to_string(root.join("proc/driver/nvidia-caps/mig-minors")).unwrap_or_default();
        Self { numa: numa.collect(), minors }
    }

    fn numa(&self, gpu: &Gpu) -> Result<Option<i64>, InvalidValue> {
        let Some(text) = self.numa.get(gpu.pci.as_str()) else { return Ok(None) };
        let node: i64 = text.trim().parse().map_err(|_| {
            let file = format!("/sys/bus/pci/devices/{}/numa_node", gpu.pci);
            InvalidValue::new(file, format!("{:?}", text.trim()), "is no number of a NUMA node")
        })?;
        Ok((node >= 0).then_some(node))
    }

    /// Minor number of a capability's device node; malformed lines are skipped.
    fn minor(&self, key: &str) -> Option<u32> {
        let mut lines = self.minors.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(name, _)| *name == key).and_then(|(_, minor)| minor.trim().parse().ok())
    }
}

/// Resources to advertise, with warnings about devices that are not.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ResourceSet {
    /// Resources with at least one device.
    pub resources: Vec<Resource>,
    /// Warnings for the log.
    pub warnings: Vec<String>,
}

/// Builds the resources that a node advertises.
pub(crate) fn build_resources(
    platform: Platform,
    inventory: &Inventory,
    settings: &Settings,
    kernel: &KernelFiles,
) -> Result<ResourceSet, InvalidValue> {
    let mut set = ResourceSet::default();
    let mut by_name: BTreeMap<ResourceName, Vec<Device>> = BTreeMap::new();
    match platform {
        Platform::Wsl => drop(by_name.insert(ResourceName::gpu(), vec![opaque_device("all", "all", &["/dev/dxg"])])),
        Platform::Tegra => drop(by_name.insert(ResourceName::gpu(), vec![opaque_device("tegra", "0", &[])])),
        Platform::Nvml => {
            check_mig_layout(inventory, settings, &mut set.warnings)?;
            for gpu in &inventory.gpus {
                for (name, device) in devices(gpu, settings.mig, kernel, &mut set.warnings)? {
                    by_name.entry(name).or_default().push(device);
                }
            }
            let whole = settings.mig == MigStrategy::None || !inventory.gpus.iter().any(Gpu::mig_enabled);
            for lost in inventory.lost.iter().filter(|_| whole) {
                // Lost before it could be queried: advertise it by UUID, so that it shows as unhealthy instead of
                // missing.
                let Some(uuid) = &lost.uuid else { continue };
                let device = opaque_device(uuid, &lost.index.to_string(), &[]);
                by_name.entry(ResourceName::gpu()).or_default().push(device);
            }
        }
    }
    for (name, devices) in by_name {
        set.resources.push(shared(name, devices, settings)?);
    }
    Ok(set)
}

/// A device without details: all GPUs of a WSL or Tegra system, or a lost GPU.
fn opaque_device(id: &str, index: &str, paths: &[&str]) -> Device {
    Device {
        id: id.into(),
        index: index.into(),
        gpu: id.into(),
        instance: None,
        paths: paths.iter().map(|&path| path.into()).collect(),
        numa: None,
        memory_mib: 0,
        compute: ComputeCapability { major: 0, minor: 0 },
    }
}

/// Checks the MIG layout against the MIG strategy.
fn check_mig_layout(
    inventory: &Inventory,
    settings: &Settings,
    warnings: &mut Vec<String>,
) -> Result<(), InvalidValue> {
    let gpus = &inventory.gpus;
    let wrong = |why: String| Err(InvalidValue::new("migStrategy", settings.mig.as_str(), why));
    let empty: Vec<&str> = gpus
        .iter()
        .filter(|gpu| gpu.mig_enabled() && gpu.mig_devices.is_empty())
        .map(|gpu| gpu.uuid.as_str())
        .collect();
    match settings.mig {
        MigStrategy::None => {}
        MigStrategy::Mixed if empty.is_empty() => {}
        MigStrategy::Mixed => warnings.push(format!("MIG is on and there are no MIG devices on {}", empty.join(", "))),
        MigStrategy::Single => {
            let enabled = gpus.iter().filter(|gpu| gpu.mig_enabled()).count();
            if enabled > 0 && enabled < gpus.len() {
                return wrong("needs MIG on all GPUs or on none; switch it on or off, or use mixed".into());
            }
            if !empty.is_empty() {
                return wrong(format!("needs MIG devices on every GPU; create them on {}", empty.join(", ")));
            }
            let mut profiles: Vec<&str> =
                gpus.iter().flat_map(|gpu| gpu.mig_devices.iter().map(|part| part.profile.as_str())).collect();
            profiles.sort_unstable();
            profiles.dedup();
            if profiles.len() > 1 {
                return wrong(format!("needs MIG devices that are all alike, not {}; use mixed", profiles.join(", ")));
            }
        }
    }
    let cut = gpus.iter().any(Gpu::mig_enabled);
    if cut && settings.sharing.strategy() == SharingStrategy::Mps {
        let why = "cannot share GPUs with MIG on; switch MIG off, or share by timeSlicing";
        return Err(InvalidValue::new("sharing.mps", "", why));
    }
    Ok(())
}

/// The devices of one GPU with their resource names.
fn devices(
    gpu: &Gpu,
    strategy: MigStrategy,
    kernel: &KernelFiles,
    warnings: &mut Vec<String>,
) -> Result<Vec<(ResourceName, Device)>, InvalidValue> {
    let whole = Device {
        id: gpu.uuid.clone(),
        index: gpu.index.to_string(),
        gpu: gpu.uuid.clone(),
        instance: None,
        paths: vec![format!("/dev/nvidia{}", gpu.minor)],
        numa: kernel.numa(gpu)?,
        memory_mib: gpu.memory_mib(),
        compute: gpu.compute,
    };
    if strategy == MigStrategy::None || !gpu.mig_enabled() {
        return Ok(vec![(ResourceName::gpu(), whole)]);
    }
    let mut found = Vec::new();
    for part in &gpu.mig_devices {
        let device = mig_device(gpu, part, &whole, kernel);
        match strategy {
            MigStrategy::Mixed if part.slices.compute != part.slices.gpu => {
                warnings
                    .push(format!("{} is part of a shared GPU instance ({}): not offered", part.uuid, part.profile));
            }
            MigStrategy::Mixed => found.push((ResourceName::mig(&part.profile), device)),
            _ => found.push((ResourceName::gpu(), device)),
        }
    }
    Ok(found)
}

fn mig_device(gpu: &Gpu, part: &MigDevice, whole: &Device, kernel: &KernelFiles) -> Device {
    let instance = format!("gpu{}/gi{}", gpu.minor, part.gi);
    let keys = [format!("{instance}/access"), format!("{instance}/ci{}/access", part.ci)];
    let caps = keys.iter().filter_map(|key| kernel.minor(key)).map(|cap| format!("/dev/nvidia-caps/nvidia-cap{cap}"));
    Device {
        id: part.uuid.clone(),
        index: format!("{}:{}", gpu.index, part.index),
        instance: Some((part.gi, part.ci)),
        paths: whole.paths.iter().cloned().chain(caps).collect(),
        memory_mib: part.slices.memory_mib,
        ..whole.clone()
    }
}

/// Applies the sharing settings to the devices of a resource.
fn shared(name: ResourceName, devices: Vec<Device>, settings: &Settings) -> Result<Resource, InvalidValue> {
    let strategy = settings.sharing.strategy();
    let plain = Resource {
        unshared: name.clone(),
        name,
        devices,
        replicas: None,
        sharing: SharingStrategy::None,
        one_only: false,
    };
    let (Some(block), Some(shared)) = (settings.sharing.shared(), settings.sharing.of(&plain.unshared)) else {
        return Ok(plain);
    };
    if strategy == SharingStrategy::Mps {
        mps::within_limits(shared, &plain.devices)?;
    }
    Ok(Resource {
        name: shared.advertised_name().clone(),
        replicas: Some(shared.replicas),
        sharing: strategy,
        one_only: block.fail_requests_greater_than_one,
        ..plain
    })
}
