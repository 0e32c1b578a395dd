//! Generates a CDI spec from the inventory and the driver's files.

use std::collections::BTreeSet;

use capstan_cdi::{COHERENT, ContainerEdits, Device, Spec};
use capstan_hw::gpu::nvidia::driver::Roots;
use capstan_hw::gpu::nvidia::{Addressing, Gpu, Inventory, MigDevice};
use capstan_hw::root::executable_in;

use super::common::common;
use super::files::Driver;
use super::{Mode, NameStrategy, Settings, csv, devices, modes, wsl};
use crate::{Error, Result};

/// Display adapters, which are not GPUs for compute.
const DISPLAYS: [&str; 2] = ["DGX Display", "NVIDIA DGX Display"];

/// The CDI spec of this node. Inspects files and device nodes below the roots; paths in the spec are host paths.
pub fn generate(inventory: &Inventory, roots: &Roots, settings: &Settings) -> Result<Spec> {
    generate_if_any(inventory, roots, settings)?.ok_or_else(|| {
        let what = format!("{:?}", settings.mode).to_lowercase();
        Error::Check(format!("there is no device node for a spec of mode {what} below {}", roots.dev_here.display()))
    })
}

/// [`generate`], or `None` if the node has no such device.
pub fn generate_if_any(inventory: &Inventory, roots: &Roots, settings: &Settings) -> Result<Option<Spec>> {
    let mode = match settings.mode {
        Mode::Auto => platform(inventory, settings),
        mode => mode,
    };
    let settings = &Settings { mode, ..settings.clone() };
    let kind = settings.kind()?;
    check_hook(settings)?;
    let mut spec = Spec { kind: kind.to_string(), ..Spec::default() };
    match mode {
        Mode::Auto | Mode::Nvml => {
            spec.devices = gpus(inventory, roots, settings)?;
            spec.container_edits = common(&Driver::find(roots, settings, &inventory.driver)?, settings);
        }
        Mode::Management => {
            spec.devices = modes::management(roots, settings);
            spec.container_edits = common(&Driver::find(roots, settings, &inventory.driver)?, settings);
        }
        Mode::Csv => (spec.devices, spec.container_edits) = csv::generate(roots, settings)?,
        Mode::Wsl => (spec.devices, spec.container_edits) = wsl::generate(roots, settings)?,
        Mode::Imex => spec.devices = modes::imex(roots, settings)?,
        Mode::Gds => (spec.devices, spec.container_edits) = modes::gds(roots, settings),
        Mode::Mofed => spec.devices = modes::mofed(roots, settings),
        Mode::Gdrcopy => spec.devices = modes::gdrcopy(roots, settings),
        Mode::Nvswitch => spec.devices = modes::nvswitch(roots, settings),
    }
    let counted = !matches!(mode, Mode::Auto | Mode::Nvml | Mode::Csv | Mode::Wsl);
    if counted && spec.devices.is_empty() {
        return Ok(None);
    }
    if settings.all_device && !spec.devices.iter().all(|device| device.name == "none") {
        spec.add_merged("all").map_err(invalid)?;
    }
    spec.simplify();
    spec.cdi_version = spec.minimum_version().to_owned();
    spec.validate().map_err(invalid)?;
    Ok(Some(spec))
}

fn invalid(error: capstan_cdi::Error) -> Error {
    Error::Config(format!("the CDI spec would be invalid: {error}"))
}

/// Detects the mode of this machine.
fn platform(inventory: &Inventory, settings: &Settings) -> Mode {
    let root = &settings.root;
    let family = std::fs::read_to_string(root.join("sys/devices/soc0/family")).unwrap_or_default();
    let tegra = root.join("etc/nv_tegra_release").exists() || family.to_ascii_lowercase().starts_with("tegra");
    let integrated = !inventory.gpus.is_empty() && inventory.gpus.iter().all(Gpu::integrated);
    if root.join("usr/lib/wsl/lib/libdxcore.so").exists() {
        Mode::Wsl
    } else if integrated || (tegra && inventory.driver.is_empty()) {
        Mode::Csv
    } else {
        Mode::Nvml
    }
}

/// Rejects a spec whose hook binary is missing: every container with it would fail.
fn check_hook(settings: &Settings) -> Result<()> {
    match &settings.hook_here {
        Some(hook) if !executable_in(std::path::Path::new("/"), hook) => Err(Error::Check(format!(
            "{} is no program that can be run, and the spec's hooks need it at {} on the host",
            hook.display(),
            settings.hook.display()
        ))),
        _ => Ok(()),
    }
}

/// A GPU or a MIG device.
enum Unit<'a> {
    Gpu(&'a Gpu),
    Mig(&'a Gpu, &'a MigDevice),
}

fn gpus(inventory: &Inventory, roots: &Roots, settings: &Settings) -> Result<Vec<Device>> {
    let units = units(inventory);
    let mut wanted: Vec<&Unit<'_>> = Vec::new();
    let mut devices = Vec::new();
    for id in &settings.devices {
        match id.as_str() {
            "all" => wanted.extend(&units),
            "none" => devices.push(empty()),
            id => wanted.push(units.iter().find(|unit| unit.is(id)).ok_or_else(|| no_device(id))?),
        }
    }
    let minors = std::fs::read_to_string(settings.root.join("proc/driver/nvidia-caps/mig-minors"));
    let minors = minors.unwrap_or_default();
    let mut names = BTreeSet::new();
    let mut without_node = Vec::new();
    for unit in &wanted {
        let edits = unit.edits(&minors, roots, settings);
        if edits.device_nodes.is_empty() {
            // A container could not use it, and a spec with it would be refused, for all GPUs.
            without_node.push(unit.name(NameStrategy::Index)?);
            continue;
        }
        for strategy in &settings.names {
            let name = unit.name(*strategy)?;
            if !names.insert(name.clone()) {
                return Err(Error::Config(format!("device '{name}' is there twice")));
            }
            let coherent = settings.flags.coherent_annotations.then(|| unit.coherent());
            let annotations = coherent.map(|is| (COHERENT.to_owned(), is.to_string())).into_iter().collect();
            devices.push(Device { name, annotations, container_edits: edits.clone() });
        }
    }
    if !wanted.is_empty() && without_node.len() == wanted.len() {
        let dev = roots.dev_here.join("dev");
        return Err(Error::Check(format!("no GPU has a device node in {}: is the driver loaded?", dev.display())));
    }
    if !without_node.is_empty() {
        tracing::warn!(gpus = ?without_node, "left out of the CDI spec: no device node");
    }
    Ok(devices)
}

fn no_device(id: &str) -> Error {
    Error::Config(format!("there is no device '{id}'; write all, an index such as 0 or 0:1, or a UUID"))
}

/// A device for containers that request none: CDI requires an edit.
fn empty() -> Device {
    let edits = ContainerEdits { env: vec!["NVCT_EMPTY_DEVICE=".into()], ..ContainerEdits::default() };
    Device { name: "none".into(), container_edits: edits, ..Device::default() }
}

/// Whole GPUs without MIG, and MIG devices.
fn units(inventory: &Inventory) -> Vec<Unit<'_>> {
    let gpus = inventory.gpus.iter().filter(|gpu| !DISPLAYS.contains(&gpu.name.as_str()));
    let parts = |gpu| match gpu {
        gpu if Gpu::mig_enabled(gpu) => gpu.mig_devices.iter().map(|part| Unit::Mig(gpu, part)).collect(),
        gpu => vec![Unit::Gpu(gpu)],
    };
    gpus.flat_map(parts).collect()
}

impl Unit<'_> {
    fn is(&self, id: &str) -> bool {
        let strategies = [NameStrategy::Index, NameStrategy::Uuid];
        strategies.iter().any(|strategy| self.name(*strategy).is_ok_and(|name| name == id))
    }

    fn name(&self, strategy: NameStrategy) -> Result<String> {
        let name = match (self, strategy) {
            (Self::Gpu(gpu), NameStrategy::Index) => gpu.index.to_string(),
            (Self::Gpu(gpu), NameStrategy::TypeIndex) => format!("gpu{}", gpu.index),
            (Self::Gpu(gpu), NameStrategy::Uuid) => gpu.uuid.clone(),
            (Self::Mig(gpu, part), NameStrategy::Index) => format!("{}:{}", gpu.index, part.index),
            (Self::Mig(gpu, part), NameStrategy::TypeIndex) => format!("mig{}:{}", gpu.index, part.index),
            (Self::Mig(_, part), NameStrategy::Uuid) => part.uuid.clone(),
        };
        if name.is_empty() {
            return Err(Error::Config("a device has no UUID to be named by".into()));
        }
        Ok(name)
    }

    fn edits(&self, minors: &str, roots: &Roots, settings: &Settings) -> ContainerEdits {
        match self {
            Self::Gpu(gpu) => devices::gpu(gpu, roots, settings),
            Self::Mig(gpu, part) => devices::mig(gpu, part, minors, roots, settings),
        }
    }

    fn coherent(&self) -> bool {
        let (Self::Gpu(gpu) | Self::Mig(gpu, _)) = self;
        gpu.addressing == Some(Addressing::Ats)
    }
}
