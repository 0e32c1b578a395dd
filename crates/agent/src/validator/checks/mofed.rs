//! Checks that the MOFED driver, which GPUDirect RDMA needs, is ready.

use capstan_node::validation;

use super::{Outcome, World};
use crate::{Error, Result};

pub(super) async fn run(world: &World) -> Result<Outcome> {
    if !world.options.gpu_direct_rdma_enabled {
        return Ok(Outcome::Skipped("GPUDirect RDMA is not enabled"));
    }
    let facts = world.facts().await?;
    if facts.label("feature.node.kubernetes.io/pci-15b3.present") != Some("true") {
        return Ok(Outcome::Skipped("the node has no Mellanox network adapter"));
    }
    let ready = match world.options.use_host_mofed {
        true => world.module_loaded("mlx5_core")?,
        false => world.exists(&world.mofed_dir().join(validation::MOFED_CONTAINER)),
    };
    match (ready, world.options.use_host_mofed) {
        (true, _) => Outcome::ready(validation::MOFED),
        (false, true) => Err(Error::Check("kernel module mlx5_core is not loaded on the host".into())),
        (false, false) => {
            Err(Error::Check("the network driver's pod is not ready: no /run/mellanox/drivers/.driver-ready".into()))
        }
    }
}
