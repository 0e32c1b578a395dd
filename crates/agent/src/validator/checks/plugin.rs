//! Checks that the node advertises GPUs, and that a pod can get one.

use std::time::Duration;

use capstan_node::validation;
use futures::StreamExt;

use super::{Outcome, World, workload};
use crate::own_node::NodeFacts;
use crate::{Error, Result};

/// Timeout of the device plugin's registration.
const REGISTRATION_TIMEOUT: Duration = Duration::from_secs(150);

pub(super) async fn run(world: &World) -> Result<Outcome> {
    capacity(world).await?;
    if world.options.with_workload {
        workload::run(world, workload::Kind::Plugin).await?;
    }
    Outcome::ready(validation::PLUGIN)
}

/// Waits until the node has GPU capacity.
async fn capacity(world: &World) -> Result<()> {
    let offered = async {
        let mut changes = (world.watch)();
        while let Some(facts) = changes.next().await {
            if NodeFacts::gpus(&facts?.capacity).next().is_some() {
                return Ok(());
            }
        }
        std::future::pending().await
    };
    let nothing = || {
        let why = "the node has no nvidia.com/gpu or nvidia.com/mig-… resource: look at the device plugin's pod on it";
        Err(Error::Check(why.into()))
    };
    tokio::time::timeout(REGISTRATION_TIMEOUT, offered).await.unwrap_or_else(|_| nothing())
}
