//! Nodes of other GPU models, from their public figures: names, PCI IDs, memory, MIG profiles.

use crate::fake::Recording;
use crate::gpu::nvidia::mig::Profile;
use crate::gpu::nvidia::{
    ComputeCapability, CudaVersion, Fabric, Gpu, Inventory, MigDevice, MigMode, MigSlices, Profiling, Reading,
    Relation, ThrottleReasons, Topology,
};
use crate::pci::PciAddress;

/// A GPU model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Model {
    /// A100 SXM4 with 40 GB.
    A100,
    /// A100 SXM4 with 80 GB.
    A100x80,
    /// H100 SXM5 with 80 GB.
    H100,
    /// H200 SXM5 with 141 GB.
    H200,
    /// B200 SXM6 with 180 GB.
    B200,
    /// GB200 of an NVL72 rack.
    Gb200,
    /// L40S, without MIG and NVLink.
    L40s,
}

struct Figures {
    name: &'static str,
    device: u16,
    memory_mib: u64,
    compute: (u32, u32),
    /// MIG slices; 0 without MIG.
    slices: u32,
    nvlinks: u32,
    watts: u32,
}

impl Model {
    /// Every model.
    pub const ALL: [Self; 7] = [Self::A100, Self::A100x80, Self::H100, Self::H200, Self::B200, Self::Gb200, Self::L40s];

    /// The model of a GPU, by its PCI id.
    pub(super) fn of(gpu: &Gpu) -> Option<Self> {
        Self::ALL.into_iter().find(|model| u32::from(model.figures().device) == gpu.pci_device >> 16)
    }

    fn figures(self) -> Figures {
        let of = |name, device, memory_mib, compute, slices, nvlinks, watts| Figures {
            name,
            device,
            memory_mib,
            compute,
            slices,
            nvlinks,
            watts,
        };
        match self {
            Self::A100 => of("NVIDIA A100-SXM4-40GB", 0x20b0, 40_960, (8, 0), 7, 12, 400),
            Self::A100x80 => of("NVIDIA A100-SXM4-80GB", 0x20b2, 81_920, (8, 0), 7, 12, 400),
            Self::H100 => of("NVIDIA H100 80GB HBM3", 0x2330, 81_559, (9, 0), 7, 18, 700),
            Self::H200 => of("NVIDIA H200", 0x2335, 143_771, (9, 0), 7, 18, 700),
            Self::B200 => of("NVIDIA B200", 0x2901, 183_359, (10, 0), 7, 18, 1000),
            Self::Gb200 => of("NVIDIA GB200", 0x2941, 189_471, (10, 0), 7, 18, 1200),
            Self::L40s => of("NVIDIA L40S", 0x26b9, 46_068, (8, 9), 0, 0, 350),
        }
    }
}

/// A node with this many GPUs of a model, connected by NVSwitch where the model has NVLinks.
pub fn node(model: Model, count: u32) -> Recording {
    let gpus: Vec<Gpu> = (0..count).map(|index| gpu(model, index)).collect();
    let mut topology = Topology::default();
    for (place, a) in gpus.iter().enumerate() {
        for b in &gpus[place + 1..] {
            // Half of the GPUs are on each socket, as in servers with eight of them.
            let same = (a.index < count.div_ceil(2)) == (b.index < count.div_ceil(2));
            let relation = if same { Relation::Socket } else { Relation::System };
            topology.set(&a.uuid, &b.uuid, relation, model.figures().nvlinks);
        }
    }
    let readings = gpus.iter().map(|gpu| (gpu.uuid.clone(), idle(model, gpu))).collect();
    let profiled = gpus.iter().filter(|gpu| gpu.gpm).map(|gpu| (gpu.uuid.clone(), Profiling::default()));
    let profiling = profiled.collect();
    let cuda = CudaVersion { major: 13, minor: 0 };
    let inventory = Inventory { driver: "580.65.06".into(), nvml: "13.580.65.06".into(), cuda, gpus, lost: Vec::new() };
    Recording { inventory, topology, readings, profiling }
}

fn gpu(model: Model, index: u32) -> Gpu {
    let figures = model.figures();
    let nvlinks = figures.nvlinks;
    let fabric = (model == Model::Gb200).then(|| Fabric {
        cluster: "b8b1f0a4-8d6a-4a8e-9a37-3d0c3c1f2e55".into(),
        clique: 1,
        joined: true,
    });
    Gpu {
        index,
        uuid: uuid("GPU", model as u32, index, 0),
        minor: index,
        name: figures.name.into(),
        brand: Some("Nvidia".into()),
        serial: Some(format!("16500{:02}{index:06}", model as u32)),
        vbios: None,
        inforom: None,
        inforom_parts: [const { None }; 3],
        pci: PciAddress::parse(&format!("0000:{:02x}:00.0", 0x11 + index * 0x10)).expect("an address"),
        pci_device: u32::from(figures.device) << 16 | 0x10de,
        pci_subsystem: 0x17ed_10de,
        memory_bytes: figures.memory_mib << 20,
        compute: ComputeCapability { major: figures.compute.0, minor: figures.compute.1 },
        mig: if figures.slices > 0 { MigMode::Disabled { pending: false } } else { MigMode::Unsupported },
        mig_devices: Vec::new(),
        fabric,
        addressing: None,
        nvlinks,
        nvswitch: nvlinks > 0,
        gpm: figures.compute.0 >= 9,
        virtual_gpu: false,
    }
}

/// A deterministic UUID.
pub(super) fn uuid(prefix: &str, model: u32, gpu: u32, part: u32) -> String {
    format!("{prefix}-c0ffee{model:02x}-0000-4000-8000-{gpu:08x}{part:04x}")
}

fn idle(model: Model, gpu: &Gpu) -> Reading {
    let reserved = 612 << 20;
    Reading {
        sm_clock: Some(345),
        memory_clock: Some(2619),
        temperature: Some(30),
        memory_temperature: (gpu.compute.major >= 8 && model != Model::L40s).then_some(42),
        power: Some(model.figures().watts * 100),
        energy: Some(1_000_000),
        pcie_replays: Some(0),
        utilisation: Some(0),
        memory_utilisation: Some(0),
        encoder: Some(0),
        decoder: Some(0),
        memory_free: Some(gpu.memory_bytes - reserved),
        memory_used: Some(0),
        memory_reserved: Some(reserved),
        nvlink: (gpu.nvlinks > 0).then_some(0),
        remapped_correctable: Some(0),
        remapped_uncorrectable: Some(0),
        remap_pending: Some(false),
        remap_failed: Some(false),
        throttle: Some(ThrottleReasons(1)),
        processes: Some(0),
        ..Reading::default()
    }
}

impl Recording {
    /// The same node with these MIG devices on one GPU.
    ///
    /// # Panics
    /// If a profile has no slices or memory: the test is wrong.
    #[must_use]
    pub fn with_mig(mut self, gpu: usize, profiles: &[&str]) -> Self {
        let gpu = &mut self.inventory.gpus[gpu];
        gpu.mig = MigMode::Enabled { pending_off: false };
        gpu.mig_devices.clear();
        for (place, name) in profiles.iter().enumerate() {
            let profile: Profile = name.parse().expect("a MIG profile");
            let index = u32::try_from(place).expect("few profiles");
            gpu.mig_devices.push(part(gpu, index, &profile));
        }
        let readings = gpu.mig_devices.iter().map(|part| {
            let bytes = part.slices.memory_mib << 20;
            let reading = Reading { memory_free: Some(bytes), memory_used: Some(0), ..Reading::default() };
            (part.uuid.clone(), reading)
        });
        self.readings.extend(readings);
        self
    }

    /// The same node with MIG enabled and no MIG device on one GPU.
    #[must_use]
    pub fn with_mig_empty(self, gpu: usize) -> Self {
        self.with_mig(gpu, &[])
    }
}

fn part(gpu: &Gpu, index: u32, profile: &Profile) -> MigDevice {
    // Instance IDs are assigned by size: small ones get high IDs, each ID once.
    let first = match profile.gpu {
        7.. => 0,
        3..=6 => 1,
        2 => 3,
        _ => 7,
    };
    let gi = (first..).find(|gi| gpu.mig_devices.iter().all(|part| part.gi != *gi)).unwrap_or(first);
    let media = u32::from(profile.gpu >= 2 || !profile.with.is_empty());
    let slices = MigSlices {
        gpu: profile.gpu,
        compute: profile.compute,
        memory_mib: profile.gigabytes * 1024 * 15 / 16,
        multiprocessors: profile.compute * 16,
        copy_engines: profile.gpu,
        decoders: media * profile.gpu,
        encoders: 0,
        jpeg: media * profile.gpu,
        ofa: u32::from(!profile.with.is_empty() || profile.gpu >= 7),
    };
    let number = gpu.pci_device >> 16;
    let uuid = uuid("MIG", number & 0xff, gpu.index, index + 1);
    MigDevice { index, uuid, gi, ci: 0, slices, profile: profile.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_device_of_a_node_has_a_name_of_its_own() {
        for model in Model::ALL {
            let node = node(model, 8).with_mig(0, &["1g.10gb", "1g.10gb"]).with_mig(1, &["1g.10gb"]);
            let mut names = super::super::uuids(&node.inventory);
            let count = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), count, "{model:?}");
        }
    }

    #[test]
    fn every_part_is_an_instance_of_its_own() {
        let profiles = ["1g.18gb", "2g.35gb", "1g.18gb+me", "2g.35gb", "1g.18gb"];
        let node = node(Model::H200, 1).with_mig(0, &profiles);
        let mut numbers: Vec<u32> = node.inventory.gpus[0].mig_devices.iter().map(|part| part.gi).collect();
        assert_eq!(numbers, [7, 3, 8, 4, 9]);
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), profiles.len());
    }
}
