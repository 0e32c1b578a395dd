//! The CDI specs behind the device names that the plugin hands out.

use std::path::Path;

use capstan_hw::gpu::nvidia::Inventory;
use capstan_hw::gpu::nvidia::driver::Roots;

use super::settings::Settings;
use crate::Result;

/// Input of the CDI specs.
pub struct SpecRequest<'a> {
    /// GPUs of the node.
    pub inventory: &'a Inventory,
    /// Settings of the plugin.
    pub settings: &'a Settings,
    /// Roots of the driver.
    pub roots: &'a Roots,
    /// Root of `/proc` and `/sys`.
    pub root: &'a Path,
    /// IMEX channels that containers get.
    pub channels: &'a [u32],
}

/// Writes CDI specs: the interface between the plugin and the spec generator.
pub trait CdiSpecs: Send + Sync + 'static {
    /// Writes all specs, and returns the classes besides GPUs and IMEX channels (`gdrcopy`, `gds`, `mofed`) that have
    /// one.
    fn write(&self, request: &SpecRequest<'_>) -> Result<Vec<String>>;
}
