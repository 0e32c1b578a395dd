//! Whether GPUs compute: a kernel on every GPU, its result compared number by number.

use capstan_node::validation;

use super::super::gpu;
use super::{Outcome, World, workload};
use crate::{Error, Place, Result};

pub(super) async fn run(world: &World) -> Result<Outcome> {
    let (cx, level) = (world.cx.clone(), gpu::Level::of(&world.options));
    let proofs = tokio::task::spawn_blocking(move || match cx.place {
        Place::Container => gpu::prove(&cx.roots, &level),
        Place::VirtualNode => gpu::pretend(&cx),
    });
    let proofs = proofs.await.map_err(|error| Error::Outside(error.to_string()))??;
    for proof in &proofs {
        tracing::info!(gpu = %proof.uuid, name = %proof.name, "{proof}");
    }
    let failed: Vec<String> = proofs.iter().filter_map(|proof| proof.failure()).collect();
    if !failed.is_empty() {
        return Err(Error::Check(failed.join("; ")));
    }
    if world.options.with_workload && world.node.is_some() {
        workload::prove(world, workload::Kind::Cuda).await?;
    }
    Outcome::ready(validation::CUDA)
}
