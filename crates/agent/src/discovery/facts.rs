//! Facts about a node's GPUs, and the resources derived from them.

use std::collections::BTreeMap;

use capstan_hw::gpu::nvidia::{Gpu, Inventory, MigDevice, MigMode};

use super::labels::{Resource, product, sanitise};
use super::vgpu::HostDriver;
use crate::config::{MigStrategy, ResourceName, Sharing, SharingStrategy};
use crate::{Error, Result};

/// Display adapters, which are not GPUs for compute.
const DISPLAYS: [&str; 2] = ["DGX Display", "NVIDIA DGX Display"];
const NO_CLUSTER: &str = "00000000-0000-0000-0000-000000000000";

/// Facts about a node.
pub struct Facts<'a> {
    /// The driver's inventory; empty without a driver.
    pub inventory: &'a Inventory,
    /// PCI classes of the GPUs.
    pub classes: Vec<Option<u32>>,
    /// Machine type.
    pub machine: String,
    /// Time of discovery in Unix seconds; `None` to omit the label.
    pub timestamp: Option<i64>,
    /// Whether GPUs are virtual; `None` if the PCI config space is not readable.
    pub vgpu: Option<Vgpu>,
    /// MIG strategy.
    pub mig: MigStrategy,
    /// Sharing of devices.
    pub sharing: &'a Sharing,
    /// GPUs are passed through to virtual machines, so there is no driver to query.
    pub passthrough: bool,
}

/// Virtual GPUs of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vgpu {
    /// At least one GPU is virtual.
    pub present: bool,
    /// The host's driver.
    pub host: Option<HostDriver>,
}

/// A driver version in parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverVersion {
    /// The full version.
    pub full: String,
    /// 580 of 580.65.06.
    pub major: String,
    /// 65.
    pub minor: String,
    /// 06, or nothing.
    pub revision: String,
}

impl DriverVersion {
    /// Parses `X.Y` or `X.Y.Z`.
    pub fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split('.').collect();
        let (major, minor, revision) = match parts[..] {
            [major, minor] => (major, minor, ""),
            [major, minor, revision] => (major, minor, revision),
            _ => return None,
        };
        let full = text.to_owned();
        Some(Self { full, major: major.into(), minor: minor.into(), revision: revision.into() })
    }

    fn unknown() -> Self {
        let unknown = || "unknown".to_owned();
        Self { full: "unknown.unknown.unknown".into(), major: unknown(), minor: unknown(), revision: unknown() }
    }
}

impl Facts<'_> {
    /// Rejects facts that cannot be labelled.
    pub fn check(&self) -> Result<()> {
        let driver = &self.inventory.driver;
        if !self.gpus().is_empty() && !self.passthrough && DriverVersion::parse(driver).is_none() {
            return Err(Error::External(format!("the driver's version '{driver}' is not of the form X.Y or X.Y.Z")));
        }
        let mig = self.gpus().iter().any(|gpu| gpu.mig_enabled());
        if mig && self.sharing.strategy() == SharingStrategy::Mps {
            let why = "MPS cannot share MIG devices: switch MIG off, or share by time-slicing";
            return Err(Error::Config(why.into()));
        }
        Ok(())
    }

    /// The GPUs, without display adapters.
    pub fn gpus(&self) -> Vec<&Gpu> {
        self.inventory.gpus.iter().filter(|gpu| !DISPLAYS.contains(&gpu.name.as_str())).collect()
    }

    pub(super) fn driver(&self) -> DriverVersion {
        DriverVersion::parse(&self.inventory.driver)
            .filter(|_| !self.passthrough)
            .unwrap_or_else(DriverVersion::unknown)
    }

    pub(super) fn mig_capable(&self) -> bool {
        self.gpus().iter().any(|gpu| gpu.mig != MigMode::Unsupported)
    }

    pub(super) fn mps_capable(&self) -> bool {
        self.sharing.strategy() == SharingStrategy::Mps
    }

    pub(super) fn mig_strategy(&self) -> Option<&'static str> {
        (self.mig != MigStrategy::None).then(|| self.mig.as_str())
    }

    pub(super) fn mode(&self) -> &'static str {
        let all = |class: u32| !self.classes.is_empty() && self.classes.iter().all(|found| *found == Some(class));
        match () {
            () if all(0x03_0000) => "graphics",
            () if all(0x03_0200) => "compute",
            () => "unknown",
        }
    }

    /// The NVLink clique that all GPUs with a fabric are in.
    pub(super) fn clique(&self) -> Option<String> {
        let gpus = self.gpus();
        let fabrics = gpus.iter().filter_map(|gpu| gpu.fabric.as_ref());
        let mut joined = fabrics.filter(|fabric| fabric.joined && fabric.cluster != NO_CLUSTER);
        let first = joined.next()?;
        if joined.any(|other| other != first) {
            tracing::warn!("GPUs are in different NVLink cliques; clique label not set");
            return None;
        }
        Some(format!("{}.{}", first.cluster, first.clique))
    }

    /// The resources of the node. With several models, the model with the lowest index has the plain names, and each
    /// model has its own names in addition.
    pub(super) fn resources(&self) -> Vec<Resource> {
        let gpus = self.gpus();
        let cut = gpus.iter().any(|gpu| gpu.mig_enabled());
        match self.mig {
            MigStrategy::None => self.full(&gpus),
            MigStrategy::Single if !cut => self.full(&gpus),
            MigStrategy::Single => vec![self.single(&gpus)],
            MigStrategy::Mixed => {
                // A GPU with MIG enabled is not advertised as a whole: do not count it.
                let whole: Vec<&Gpu> = gpus.iter().copied().filter(|gpu| !gpu.mig_enabled()).collect();
                let mut resources = if whole.is_empty() { self.cut_up(&gpus) } else { self.full(&whole) };
                resources.extend(self.mixed(&gpus));
                resources
            }
        }
    }

    /// Whole GPUs, by model.
    fn full(&self, gpus: &[&Gpu]) -> Vec<Resource> {
        let mut models: Vec<(&str, Vec<&Gpu>)> = Vec::new();
        for gpu in gpus {
            match models.iter_mut().find(|(name, _)| *name == gpu.name) {
                Some((_, same)) => same.push(gpu),
                None => models.push((&gpu.name, vec![gpu])),
            }
        }
        let mut resources = Vec::new();
        let several = models.len() > 1;
        for (place, (name, same)) in models.iter().enumerate() {
            let resource = self.gpus_of(name, same);
            if several {
                resources.push(Resource { name: format!("gpu-{}", sanitise(name)), ..resource.clone() });
            }
            if place == 0 {
                resources.push(resource);
            }
        }
        resources
    }

    fn gpus_of(&self, name: &str, gpus: &[&Gpu]) -> Resource {
        // A GPU with MIG enabled cannot be shared as a whole; one without decides for its model.
        let usable = gpus.iter().find(|gpu| !gpu.mig_enabled());
        let first = usable.or(gpus.first()).copied();
        let mut resource = self.shared(&ResourceName::gpu(), "gpu", name, &[]);
        resource.count = gpus.len();
        if usable.is_none() {
            resource.replicas = 0;
            resource.product = product(name, &[]);
        }
        resource.memory_mib = first.map(Gpu::memory_mib).filter(|&mib| mib > 0);
        resource.compute = first.map(|gpu| gpu.compute).filter(|compute| compute.major > 0);
        resource
    }

    /// A node with MIG enabled on all GPUs advertises no whole GPU, but still has a model.
    fn cut_up(&self, gpus: &[&Gpu]) -> Vec<Resource> {
        let Some(first) = gpus.first() else { return Vec::new() };
        vec![Resource { count: 0, ..self.gpus_of(&first.name, &[first]) }]
    }

    /// Strategy `single`: MIG devices as GPUs, or a marker if the layout is invalid for it.
    fn single(&self, gpus: &[&Gpu]) -> Resource {
        let parts: Vec<(&Gpu, &MigDevice)> =
            gpus.iter().flat_map(|gpu| gpu.mig_devices.iter().map(move |part| (*gpu, part))).collect();
        let name = gpus.first().map(|gpu| gpu.name.as_str()).unwrap_or_default();
        let alike = parts.windows(2).all(|pair| pair[0].1.profile == pair[1].1.profile);
        let each = gpus.iter().all(|gpu| gpu.mig_enabled() && !gpu.mig_devices.is_empty());
        let Some((gpu, part)) = parts.first().filter(|_| alike && each) else {
            return Resource {
                name: "gpu".into(),
                product: product(name, &["MIG-INVALID"]),
                count: 0,
                replicas: 0,
                sharing: "",
                memory_mib: Some(0),
                compute: None,
                slices: None,
            };
        };
        let suffix = format!("MIG-{}", part.profile.replace('+', "."));
        let resource = self.shared(&ResourceName::gpu(), "gpu", &gpu.name, &[&suffix]);
        Resource { compute: Some(gpu.compute), ..of_parts(resource, part, parts.len()) }
    }

    /// Strategy `mixed`: a resource per MIG profile.
    fn mixed(&self, gpus: &[&Gpu]) -> Vec<Resource> {
        let mut profiles: BTreeMap<&str, Vec<(&Gpu, &MigDevice)>> = BTreeMap::new();
        for gpu in gpus.iter().filter(|gpu| gpu.mig_enabled()) {
            // A compute instance smaller than its GPU instance has no resource.
            let whole = gpu.mig_devices.iter().filter(|part| part.slices.compute == part.slices.gpu);
            whole.for_each(|part| profiles.entry(&part.profile).or_default().push((gpu, part)));
        }
        let resource = |(profile, parts): (&str, Vec<(&Gpu, &MigDevice)>)| {
            let (gpu, part) = parts.first()?;
            let plain = profile.replace('+', ".");
            let resource = self.shared(
                &ResourceName::mig(profile),
                &format!("mig-{plain}"),
                &gpu.name,
                &[&format!("MIG-{plain}")],
            );
            Some(of_parts(resource, part, parts.len()))
        };
        profiles.into_iter().filter_map(resource).collect()
    }

    /// A resource with sharing applied.
    fn shared(&self, resource: &ResourceName, name: &str, model: &str, parts: &[&str]) -> Resource {
        let shared = self.sharing.of(resource).filter(|shared| shared.replicas > 1);
        let mut parts = parts.to_vec();
        if shared.is_some_and(|shared| shared.rename.is_none()) {
            parts.push("SHARED");
        }
        let sharing = shared.map_or(SharingStrategy::None, |_| self.sharing.strategy());
        Resource {
            name: name.to_owned(),
            product: product(model, &parts),
            count: 0,
            replicas: shared.map_or(1, |shared| shared.replicas),
            sharing: sharing.as_str(),
            memory_mib: None,
            compute: None,
            slices: None,
        }
    }
}

fn of_parts(resource: Resource, part: &MigDevice, count: usize) -> Resource {
    Resource { count, memory_mib: Some(part.slices.memory_mib), slices: Some(part.slices), ..resource }
}
