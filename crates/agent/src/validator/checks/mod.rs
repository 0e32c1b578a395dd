//! The checks: one file per kind, one row each.

mod cc;
mod cuda;
mod dev_char;
mod driver;
mod modules;
mod mofed;
mod plugin;
mod sandbox;
#[cfg(test)]
mod tests;
mod toolkit;
mod workload;

use std::time::Duration;

use capstan_node::validation;
use futures::future::BoxFuture;

use super::World;
use crate::Result;

/// Outcome of a passed check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It passed: write this file.
    Ready {
        /// Name of the file.
        file: &'static str,
        /// What is in it.
        content: String,
    },
    /// Not applicable on this node, with the reason.
    Skipped(&'static str),
}

impl Outcome {
    fn ready(file: &'static str) -> Result<Self> {
        Ok(Self::Ready { file, content: String::new() })
    }
}

/// A check.
pub struct Check {
    /// Name of the component.
    pub name: &'static str,
    /// Its validation files: removed before it runs.
    pub files: &'static [&'static str],
    /// Minimum timeout, whatever the flags say.
    pub min_timeout: Duration,
    /// The check.
    pub run: fn(&World) -> BoxFuture<'_, Result<Outcome>>,
}

macro_rules! check {
    ($name:literal, $files:expr, $run:path) => {
        check!($name, $files, $run, Duration::ZERO)
    };
    ($name:literal, $files:expr, $run:path, $min_timeout:expr) => {
        Check { name: $name, files: $files, min_timeout: $min_timeout, run: |world| Box::pin($run(world)) }
    };
}

/// VFs are created one by one, after the vGPU manager started.
const VF_TIMEOUT: Duration = Duration::from_secs(300);

/// Every check.
pub const CHECKS: &[Check] = &[
    check!("driver", &[validation::DRIVER], driver::run),
    check!("nvidia-fs", &[validation::NVIDIA_FS], modules::nvidia_fs),
    check!("gdrcopy", &[validation::GDRCOPY], modules::gdrcopy),
    check!("nvidia-peermem", &[validation::NVIDIA_PEERMEM], modules::nvidia_peermem),
    check!("toolkit", &[validation::TOOLKIT], toolkit::run),
    check!("cuda", &[validation::CUDA], cuda::run),
    check!("plugin", &[validation::PLUGIN], plugin::run),
    check!("mofed", &[validation::MOFED], mofed::run),
    check!("vfio-pci", &[validation::VFIO_PCI], sandbox::vfio_pci),
    check!(
        "vgpu-manager",
        &[validation::VGPU_MANAGER, validation::HOST_VGPU_MANAGER],
        sandbox::vgpu_manager,
        VF_TIMEOUT
    ),
    check!("vgpu-devices", &[validation::VGPU_DEVICES], sandbox::vgpu_devices),
    check!("cc-manager", &[validation::CC_MANAGER], cc::run),
];

/// A check by name.
pub fn find(name: &str) -> Option<&'static Check> {
    CHECKS.iter().find(|check| check.name == name)
}

pub(crate) use driver::{DriverLocation, find_driver};
