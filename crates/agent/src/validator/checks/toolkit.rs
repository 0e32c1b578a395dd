//! Checks that the container runtime injects the driver: this pod requests all GPUs, so they must be here.

use capstan_hw::gpu::nvidia::driver::Roots;
use capstan_node::validation;

use super::{Outcome, World};
use crate::{Error, Result};

pub(super) async fn run(world: &World) -> Result<Outcome> {
    // The runtime injects the driver into this container's own root.
    let roots = Roots::new(&world.cx.root, &world.cx.root, None);
    let hardware = (world.open)(&roots).map_err(|error| {
        Error::Check(format!(
            "this container did not get the driver: {error}; does its runtime class name the NVIDIA runtime, and is the runtime configured on this node?"
        ))
    })?;
    let gpus = hardware.whole_gpus()?.gpus;
    if gpus.is_empty() {
        return Err(Error::Check("the container runtime gave this container no GPU".into()));
    }
    Outcome::ready(validation::TOOLKIT)
}
