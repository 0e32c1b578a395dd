//! Kernel modules that a driver pod loads in addition to the driver.

use capstan_node::validation;

use super::{Outcome, World};
use crate::{Error, Result};

pub(super) async fn nvidia_fs(world: &World) -> Result<Outcome> {
    loaded(world, "nvidia_fs")?;
    Outcome::ready(validation::NVIDIA_FS)
}

pub(super) async fn gdrcopy(world: &World) -> Result<Outcome> {
    loaded(world, "gdrdrv")?;
    Outcome::ready(validation::GDRCOPY)
}

pub(super) async fn nvidia_peermem(world: &World) -> Result<Outcome> {
    loaded(world, "nvidia_peermem")?;
    Outcome::ready(validation::NVIDIA_PEERMEM)
}

fn loaded(world: &World, module: &str) -> Result<()> {
    match world.module_loaded(module)? {
        true => Ok(()),
        false => Err(Error::Check(format!("kernel module {module} is not loaded"))),
    }
}
