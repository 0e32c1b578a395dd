//! Checks that the confidential computing manager has set the mode, on nodes with one.

use capstan_node::validation;

use super::{Outcome, World};
use crate::{Error, Result};

pub(super) async fn run(world: &World) -> Result<Outcome> {
    let facts = world.facts().await?;
    let capable = facts.label("nvidia.com/cc.capable") == Some("true");
    let file = world.options.output_dir.join(validation::CC_MANAGER_CONTAINER);
    if capable && !world.exists(&file) {
        return Err(Error::Check(format!("the manager of confidential computing is not ready: no {}", file.display())));
    }
    Outcome::ready(validation::CC_MANAGER)
}
