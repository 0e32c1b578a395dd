//! The CDI specs that the plugin's names stand for.

use std::path::Path;

use capstan_hw::gpu::nvidia::Inventory;
use capstan_hw::gpu::nvidia::driver::Roots;

use super::settings::Settings;
use crate::Result;

/// What specs are wanted for.
pub struct Wanted<'a> {
    /// What there is.
    pub inventory: &'a Inventory,
    /// What the plugin does.
    pub settings: &'a Settings,
    /// Where the driver is.
    pub roots: &'a Roots,
    /// Root of `/proc` and `/sys`.
    pub root: &'a Path,
    /// IMEX channels that containers get.
    pub channels: &'a [u32],
}

/// Writes specs: the edge between the plugin, which decides what containers are told, and the generator.
pub trait CdiSpecs: Send + Sync + 'static {
    /// Writes all specs that are wanted, and returns the classes beyond GPUs and channels (`gdrcopy`, `gds`,
    /// `mofed`) for which there is one.
    fn write(&self, wanted: &Wanted<'_>) -> Result<Vec<String>>;
}
