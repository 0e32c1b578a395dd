//! Validates a node step by step: each step writes a file that the next ones wait for.
//!
//! A run checks one component. It removes the component's validation file first, so that no stale result is trusted,
//! and writes it again after the check passed. A skipped check removes the file of an earlier configuration.

mod barrier;
pub mod checks;
pub mod gpu;
mod options;
mod world;

use std::time::Duration;

use tokio::time::Instant;

use crate::files::Changes;
use crate::roles::{Entry, entry};
use crate::{Cx, Error, Result, node_status};

pub use barrier::{Barrier, WorkloadConfig};
pub use checks::{CHECKS, Check, Outcome};
pub use options::Options;
pub use world::World;

/// This role's entry in the agent's list.
pub(crate) const ROLE: Entry = entry!(
    capstan_node::VALIDATOR.name,
    "Validate one component of the node and write its validation file",
    Options,
    run
);

/// Checks one component and writes its file; the component `metrics` serves node status metrics instead.
pub async fn run(options: Options, cx: Cx) -> Result<()> {
    if options.component == node_status::COMPONENT {
        return node_status::run(options, cx).await;
    }
    let world = World::new(options, cx).await?;
    validate(&world).await
}

/// [`run`] with explicit dependencies.
pub async fn validate(world: &World) -> Result<()> {
    let options = &world.options;
    let check = checks::find(&options.component).ok_or_else(|| unknown(&options.component))?;
    if options.cleanup_all {
        let _ = std::fs::remove_dir_all(&options.output_dir);
    }
    std::fs::create_dir_all(&options.output_dir)
        .map_err(|source| Error::Io { what: format!("cannot make {}", options.output_dir.display()), source })?;
    let barrier = Barrier::at(&options.output_dir);
    for file in check.files {
        barrier.clear(file)?;
    }
    let outcome = tokio::select! {
        outcome = attempts(check, world) => outcome?,
        () = world.cx.stop.cancelled() => return Err(Error::Check("stopped before the check passed".into())),
    };
    match outcome {
        Outcome::Ready { file, content } => barrier.write(file, &content)?,
        Outcome::Skipped(why) => tracing::info!(component = check.name, why, "skipped"),
    }
    tracing::info!(component = check.name, "passed");
    Ok(())
}

/// Retries until the check passes, if it may wait; else runs it once. A repeated error is logged once.
async fn attempts(check: &Check, world: &World) -> Result<Outcome> {
    let options = &world.options;
    let interval = Duration::from_secs(options.sleep_interval_seconds.max(1));
    let start = Instant::now();
    let deadline = options.deadline_seconds.map(|seconds| start + Duration::from_secs(seconds));
    let mut logged = String::new();
    loop {
        // Watch before checking, so that no change in between is missed.
        let mut changes = Changes::of(&[&options.output_dir, &world.mofed_dir()]);
        let failure = match (check.run)(world).await {
            Ok(outcome) => return Ok(outcome),
            Err(error @ Error::Config(_)) => return Err(error),
            Err(error) => error,
        };
        let may_wait = options.with_wait || start.elapsed() < check.min_timeout;
        let expired = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if !may_wait || expired {
            return Err(failure);
        }
        let reason = failure.to_string();
        if reason != logged {
            tracing::warn!(component = check.name, %reason, "check not passed yet; retrying");
            logged = reason;
        }
        changes.next(interval).await;
    }
}

fn unknown(name: &str) -> Error {
    let names: Vec<&str> = CHECKS.iter().map(|check| check.name).collect();
    Error::Config(format!("--component (COMPONENT) '{name}' is unknown; choose one of {}", names.join(", ")))
}
