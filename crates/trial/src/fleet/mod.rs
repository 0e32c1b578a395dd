//! Simulated fleets: dry runs of installs, upgrades and failures with the real operator.

mod chart;
mod jobs;
mod report;
mod scenario;
mod spec;
mod tally;
#[cfg(test)]
mod tests;
mod world;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use capstan_inspect::Snapshot;
use capstan_operator::Options;

pub use chart::svg;
pub use jobs::JobsOutcome;
pub use report::{Budget, Report, Requests};
pub use scenario::{Choice, Scenario};
pub use spec::{Fleet, Time};
pub use tally::{Sample, TimelineEntry};
use world::World;

use crate::{Error, Result, in_virtual_time};

/// Minimum simulated time.
const SHORTEST: Duration = Duration::from_secs(60);

/// Runs a scenario on a fleet, or on a copy of a snapshot's cluster, with an operator with these options.
pub fn simulate(fleet: Fleet, snapshot: Option<&Snapshot>, options: Options, choice: &Choice) -> Result<Report> {
    choice.check()?;
    if snapshot.is_some() && choice.scenario == Scenario::Install {
        let why = "a cluster that is there is not installed again: leave --from-cluster and --snapshot out";
        return Err(Error::Invalid(why.into()));
    }
    let choice = Choice { until: choice.until.max(SHORTEST), ..choice.clone() };
    in_virtual_time(async || played(fleet, snapshot, options, &choice).await)
}

async fn played(fleet: Fleet, snapshot: Option<&Snapshot>, options: Options, choice: &Choice) -> Result<Report> {
    let begin = Instant::now();
    let world = World::start(fleet, snapshot, options, choice.until).await?;
    let outcome = scenario::play(&world, choice, snapshot.is_some()).await?;
    let counted = world.tally.result();
    let budget = outcome.budget.map(|allowed| Budget { allowed, most: counted.most, mean: counted.mean });
    let requests = Requests {
        reads: world.traffic.reads.load(Ordering::Relaxed),
        writes: world.traffic.writes.load(Ordering::Relaxed),
    };
    Ok(Report {
        scenario: choice.scenario,
        nodes: counted.nodes,
        virtual_seconds: choice.until.as_secs(),
        real_seconds: begin.elapsed().as_secs_f64(),
        verdict: outcome.verdict,
        timeline: counted.timeline,
        budget,
        node_hours_lost: counted.node_hours,
        gpu_hours_lost: counted.gpu_hours,
        jobs: outcome.jobs,
        requests,
        end: counted.end,
        samples: counted.samples,
    })
}
