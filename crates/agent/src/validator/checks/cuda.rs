//! Checks that GPUs compute: runs a kernel on every GPU and compares its result.

use capstan_node::validation;

use super::super::gpu;
use super::{Outcome, World, workload};
use crate::{Error, Place, Result};

pub(super) async fn run(world: &World) -> Result<Outcome> {
    match world.cx.place {
        Place::Container => test_gpus(world).await?,
        Place::VirtualNode => {
            let gpus = (world.open)(&world.cx.roots)?.whole_gpus()?.gpus.len();
            tracing::info!(gpus, "CUDA check skipped on a virtual node; GPUs respond");
        }
    }
    if world.options.with_workload && world.node.is_some() {
        workload::run(world, workload::Kind::Cuda).await?;
    }
    Outcome::ready(validation::CUDA)
}

/// Runs the kernel on every GPU.
async fn test_gpus(world: &World) -> Result<()> {
    let (roots, level) = (world.cx.roots.clone(), gpu::Level::of(&world.options));
    let results = tokio::task::spawn_blocking(move || gpu::test_gpus(&roots, &level));
    let results = results.await.map_err(|error| Error::External(error.to_string()))??;
    for result in &results {
        tracing::info!(gpu = %result.uuid, name = %result.name, "{result}");
    }
    let failed: Vec<String> = results.iter().filter_map(|result| result.failure()).collect();
    if failed.is_empty() { Ok(()) } else { Err(Error::Check(failed.join("; "))) }
}
