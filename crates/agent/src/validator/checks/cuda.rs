//! Whether GPUs compute: a kernel on every GPU, its result compared number by number.

use capstan_node::validation;

use super::super::gpu;
use super::{Outcome, World, workload};
use crate::{Error, Place, Result};

pub(super) async fn run(world: &World) -> Result<Outcome> {
    match world.cx.place {
        Place::Container => prove(world).await?,
        Place::VirtualNode => {
            let gpus = (world.open)(&world.cx.roots)?.whole_gpus()?.gpus.len();
            tracing::info!(gpus, "CUDA check skipped on a virtual node; GPUs respond");
        }
    }
    if world.options.with_workload && world.node.is_some() {
        workload::prove(world, workload::Kind::Cuda).await?;
    }
    Outcome::ready(validation::CUDA)
}

/// Lets every GPU compute.
async fn prove(world: &World) -> Result<()> {
    let (roots, level) = (world.cx.roots.clone(), gpu::Level::of(&world.options));
    let proofs = tokio::task::spawn_blocking(move || gpu::prove(&roots, &level));
    let proofs = proofs.await.map_err(|error| Error::Outside(error.to_string()))??;
    for proof in &proofs {
        tracing::info!(gpu = %proof.uuid, name = %proof.name, "{proof}");
    }
    let failed: Vec<String> = proofs.iter().filter_map(|proof| proof.failure()).collect();
    if failed.is_empty() { Ok(()) } else { Err(Error::Check(failed.join("; "))) }
}
