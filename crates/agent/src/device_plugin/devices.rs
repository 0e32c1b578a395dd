//! Which devices a node offers, under which names. Plain functions over what the hardware and the kernel said.

use std::collections::BTreeMap;
use std::path::Path;

use capstan_hw::gpu::nvidia::{ComputeCapability, Gpu, Inventory, MigDevice};

use super::platform::Platform;
use super::settings::Settings;
use crate::config::{MigStrategy, ResourceName, SharingStrategy, Wrong};
use crate::mps;

/// One device, before it is shared.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Device {
    /// UUID.
    pub id: String,
    /// Place: `0`, or `0:1` for a MIG device.
    pub index: String,
    /// UUID of its GPU.
    pub gpu: String,
    /// GPU instance and compute instance of a MIG device.
    pub instance: Option<(u32, u32)>,
    /// Its device nodes.
    pub paths: Vec<String>,
    /// NUMA node that it is near to.
    pub numa: Option<i64>,
    /// Its memory.
    pub memory_mib: u64,
    /// What it can execute.
    pub compute: ComputeCapability,
}

/// Devices that are offered under one name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Resource {
    /// The name.
    pub name: ResourceName,
    /// The name that it would have unshared.
    pub unshared: ResourceName,
    /// Its devices.
    pub devices: Vec<Device>,
    /// How often each device is handed out, where it is shared.
    pub replicas: Option<u32>,
    /// How it is shared.
    pub sharing: SharingStrategy,
    /// A container gets one replica at most.
    pub one_only: bool,
}

impl Resource {
    /// Every device as the kubelet knows it, by id.
    pub(crate) fn offered(&self) -> impl Iterator<Item = (String, &Device)> {
        self.devices.iter().flat_map(move |device| {
            let names: Vec<String> = match self.replicas {
                None => vec![device.id.clone()],
                Some(replicas) => (0..replicas).map(|replica| format!("{}::{replica}", device.id)).collect(),
            };
            names.into_iter().map(move |name| (name, device))
        })
    }

    /// The device behind an id of the kubelet.
    pub(crate) fn find(&self, id: &str) -> Option<&Device> {
        let (real, replica) = split(id);
        let known = match (self.replicas, replica) {
            (None, None) => true,
            (Some(replicas), Some(replica)) => replica < replicas,
            _ => false,
        };
        self.devices.iter().find(|device| known && device.id == real)
    }

    /// Whether all devices are GPUs that can be told apart by how near they are.
    pub(crate) fn whole_gpus(&self) -> bool {
        self.devices.iter().all(|device| device.instance.is_none() && device.id.starts_with("GPU-"))
    }
}

/// An id without its replica, and the replica.
pub(crate) fn split(id: &str) -> (&str, Option<u32>) {
    match id.rsplit_once("::") {
        Some((real, replica)) if replica.bytes().all(|byte| byte.is_ascii_digit()) => match replica.parse() {
            Ok(replica) => (real, Some(replica)),
            Err(_) => (id, None),
        },
        _ => (id, None),
    }
}

/// What the kernel's files say about the devices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Kernel {
    /// `numa_node` of each GPU, by PCI address.
    pub numa: BTreeMap<String, String>,
    /// `mig-minors`.
    pub minors: String,
}

impl Kernel {
    /// Reads them below a root.
    pub(crate) fn read(root: &Path, inventory: &Inventory) -> Self {
        let numa = inventory.gpus.iter().filter_map(|gpu| {
            let file = root.join(format!("sys/bus/pci/devices/{}/numa_node", gpu.pci));
            Some((gpu.pci.to_string(), std::fs::read_to_string(file).ok()?))
        });
        let minors = std::fs::read_to_string(root.join("proc/driver/nvidia-caps/mig-minors")).unwrap_or_default();
        Self { numa: numa.collect(), minors }
    }

    fn numa(&self, gpu: &Gpu) -> Result<Option<i64>, Wrong> {
        let Some(text) = self.numa.get(gpu.pci.as_str()) else { return Ok(None) };
        let node: i64 = text.trim().parse().map_err(|_| {
            let file = format!("/sys/bus/pci/devices/{}/numa_node", gpu.pci);
            Wrong::new(file, format!("{:?}", text.trim()), "is no number of a NUMA node")
        })?;
        Ok((node >= 0).then_some(node))
    }

    /// Number of a capability's device node; lines that cannot be read are passed over.
    fn minor(&self, key: &str) -> Option<u32> {
        let mut lines = self.minors.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(name, _)| *name == key).and_then(|(_, minor)| minor.trim().parse().ok())
    }
}

/// What a node offers, and what its owner should know about what it does not.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Offer {
    /// Resources with at least one device.
    pub resources: Vec<Resource>,
    /// Remarks.
    pub remarks: Vec<String>,
}

/// What a node offers.
pub(crate) fn offer(
    platform: Platform,
    inventory: &Inventory,
    settings: &Settings,
    kernel: &Kernel,
) -> Result<Offer, Wrong> {
    let mut offer = Offer::default();
    let mut by_name: BTreeMap<ResourceName, Vec<Device>> = BTreeMap::new();
    match platform {
        Platform::Wsl => drop(by_name.insert(ResourceName::gpu(), vec![single("all", "all", &["/dev/dxg"])])),
        Platform::Tegra => drop(by_name.insert(ResourceName::gpu(), vec![single("tegra", "0", &[])])),
        Platform::Nvml => {
            fits(inventory, settings, &mut offer.remarks)?;
            for gpu in &inventory.gpus {
                for (name, device) in devices(gpu, settings.mig, kernel, &mut offer.remarks)? {
                    by_name.entry(name).or_default().push(device);
                }
            }
            let whole = settings.mig == MigStrategy::None || !inventory.gpus.iter().any(Gpu::mig_enabled);
            for lost in inventory.lost.iter().filter(|_| whole) {
                // It was lost before anyone asked what it is: it is named, so that the node's owner sees it missing.
                let Some(uuid) = &lost.uuid else { continue };
                let device = single(uuid, &lost.index.to_string(), &[]);
                by_name.entry(ResourceName::gpu()).or_default().push(device);
            }
        }
    }
    for (name, devices) in by_name {
        offer.resources.push(shared(name, devices, settings)?);
    }
    Ok(offer)
}

/// A machine whose GPUs are one device.
fn single(id: &str, index: &str, paths: &[&str]) -> Device {
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

/// Whether the strategy and the MIG layout go together.
fn fits(inventory: &Inventory, settings: &Settings, remarks: &mut Vec<String>) -> Result<(), Wrong> {
    let gpus = &inventory.gpus;
    let wrong = |why: String| Err(Wrong::new("migStrategy", settings.mig.as_str(), why));
    let empty: Vec<&str> = gpus
        .iter()
        .filter(|gpu| gpu.mig_enabled() && gpu.mig_devices.is_empty())
        .map(|gpu| gpu.uuid.as_str())
        .collect();
    match settings.mig {
        MigStrategy::None => {}
        MigStrategy::Mixed if empty.is_empty() => {}
        MigStrategy::Mixed => remarks.push(format!("MIG is on and there are no MIG devices on {}", empty.join(", "))),
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
        return Err(Wrong::new("sharing.mps", "", why));
    }
    Ok(())
}

/// The devices of one GPU, with the names under which they are offered.
fn devices(
    gpu: &Gpu,
    strategy: MigStrategy,
    kernel: &Kernel,
    remarks: &mut Vec<String>,
) -> Result<Vec<(ResourceName, Device)>, Wrong> {
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
                remarks.push(format!("{} is part of a shared GPU instance ({}): not offered", part.uuid, part.profile));
            }
            MigStrategy::Mixed => found.push((ResourceName::mig(&part.profile), device)),
            _ => found.push((ResourceName::gpu(), device)),
        }
    }
    Ok(found)
}

fn mig_device(gpu: &Gpu, part: &MigDevice, whole: &Device, kernel: &Kernel) -> Device {
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

/// The devices of a name, shared as the settings say.
fn shared(name: ResourceName, devices: Vec<Device>, settings: &Settings) -> Result<Resource, Wrong> {
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
        name: shared.offered().clone(),
        replicas: Some(shared.replicas),
        sharing: strategy,
        one_only: block.fail_requests_greater_than_one,
        ..plain
    })
}
