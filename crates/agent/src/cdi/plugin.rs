//! The CDI specs of the device plugin: a vendor of its own, so that they do not conflict with the node's specs.

use std::path::{Path, PathBuf};

use capstan_cdi::{Format, file_name};
use capstan_hw::gpu::nvidia::Inventory;
use capstan_hw::gpu::nvidia::driver::Roots;

use super::{Mode, Settings, generate, generate_if_any, remove, write};
use crate::Result;

/// Vendor of the device plugin's specs.
const VENDOR: &str = "k8s.device-plugin.nvidia.com";

/// Devices to inject besides GPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extras {
    /// IMEX channels.
    pub channels: Vec<u32>,
    /// GDRCopy.
    pub gdrcopy: bool,
    /// GPUDirect Storage.
    pub gds: bool,
    /// MOFED: InfiniBand device nodes.
    pub mofed: bool,
}

/// Writes the specs of GPUs and extras into a directory, and returns the classes besides GPUs and channels that this
/// node has. Specs of disabled or missing classes are removed.
pub fn write_for_plugin(
    inventory: &Inventory,
    roots: &Roots,
    settings: &Settings,
    extras: &Extras,
    dir: &Path,
) -> Result<Vec<String>> {
    let of = |mode, devices| Settings { mode, devices, vendor: Some(VENDOR.into()), class: None, ..settings.clone() };
    let path =
        |settings: &Settings| -> Result<PathBuf> { Ok(dir.join(file_name(&settings.kind()?, None, Format::Json))) };
    let gpus = of(Mode::Auto, vec!["all".into()]);
    write(&generate(inventory, roots, &gpus)?, &path(&gpus)?)?;
    let channels: Vec<String> = extras.channels.iter().map(u32::to_string).collect();
    let imex = Settings { all_device: false, ..of(Mode::Imex, channels) };
    match &extras.channels[..] {
        [] => remove(&path(&imex)?)?,
        _ => drop(write(&generate(inventory, roots, &imex)?, &path(&imex)?)?),
    }
    let mut found = Vec::new();
    for (mode, wanted) in [(Mode::Gdrcopy, extras.gdrcopy), (Mode::Gds, extras.gds), (Mode::Mofed, extras.mofed)] {
        let settings = of(mode, vec!["all".into()]);
        let spec = if wanted { generate_if_any(inventory, roots, &settings)? } else { None };
        match spec {
            Some(spec) => {
                write(&spec, &path(&settings)?)?;
                found.push(settings.kind()?.class().to_owned());
            }
            None => remove(&path(&settings)?)?,
        }
    }
    Ok(found)
}
