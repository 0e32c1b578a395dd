//! Scenarios of a simulation.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use capstan_apiserver::faults::Matcher;
use capstan_sim::node::NodeHandle;
use k8s_openapi::api::core::v1::Node;
use serde::Serialize;
use tokio::sync::Semaphore;

use super::jobs::{Jobs, WARM_UP};
use super::spec::{KERNEL, POOL, chosen};
use super::world::World;
use crate::{Error, Result};

/// Number of samples for the chart.
const SAMPLES: u32 = 1440;
/// Start and length of the API server outage.
const OUTAGE: (Duration, Duration) = (Duration::from_secs(3600), Duration::from_secs(1800));
/// Timeout for a node to be ready after a reboot, before the next one starts.
const REBOOT_TIMEOUT: Duration = Duration::from_secs(3600);

/// A scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// Install on bare nodes.
    Install,
    /// Driver upgrade on all nodes.
    DriverUpgrade,
    /// Kernel upgrade on the nodes of a pool.
    OsUpgrade,
    /// Driver upgrade with a driver that fails to load on some nodes.
    Failures,
    /// Driver upgrade with an API server outage in the middle.
    Outage,
}

impl Scenario {
    /// All scenarios.
    pub const ALL: [Self; 5] = [Self::Install, Self::DriverUpgrade, Self::OsUpgrade, Self::Failures, Self::Outage];

    /// Its name on the command line, and a description.
    pub fn description(self) -> (&'static str, &'static str) {
        match self {
            Self::Install => ("install", "From bare nodes to ready"),
            Self::DriverUpgrade => ("driver-upgrade", "A new driver for all nodes"),
            Self::OsUpgrade => {
                ("os-upgrade", "Another kernel for the nodes of a pool, one reboot each, within the same budget")
            }
            Self::Failures => ("failures", "A new driver that does not load on some nodes"),
            Self::Outage => ("outage", "A new driver, and an API server that is away for half an hour in the middle"),
        }
    }
}

/// Options of a simulation.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The scenario.
    pub scenario: Scenario,
    /// New driver version; `next` by default.
    pub driver: Option<String>,
    /// Pool whose operating system is upgraded; all by default.
    pub pool: Option<String>,
    /// Simulated time, at least a minute.
    pub until: Duration,
}

impl Choice {
    /// Rejects options that the scenario does not use.
    pub(super) fn check(&self) -> Result<()> {
        if let (Some(pool), false) = (&self.pool, self.scenario == Scenario::OsUpgrade) {
            let why = "is for os-upgrade, and this scenario is about all nodes: leave it out";
            return Err(Error::Invalid(format!("--pool {pool} {why}")));
        }
        if let (Some(driver), Scenario::Install | Scenario::OsUpgrade) = (&self.driver, self.scenario) {
            let why = "is for a new driver, and this scenario has none: leave it out";
            return Err(Error::Invalid(format!("--driver {driver} {why}")));
        }
        Ok(())
    }

    /// The new driver version.
    fn version(&self) -> &str {
        self.driver.as_deref().unwrap_or("next")
    }
}

/// Results besides the counts.
pub(super) struct Outcome {
    pub(super) budget: Option<usize>,
    pub(super) verdict: String,
    pub(super) jobs: Option<super::jobs::JobsOutcome>,
}

/// Runs the scenario and advances virtual time until it ends.
pub(super) async fn play(world: &World, choice: &Choice, restored: bool) -> Result<Outcome> {
    if choice.scenario == Scenario::Install {
        world.tally.begin(false);
        world.apply_policy().await?;
        let policy = world.governing_policy().await?;
        world.record_status_changes(&policy);
        advance(world, choice.until).await;
        return Ok(Outcome { budget: None, verdict: world.verdict(&policy).await?, jobs: None });
    }
    if !restored {
        world.apply_policy().await?;
    }
    world.until_ready().await?;
    let jobs = world.fleet.jobs.as_ref().map(|jobs| Jobs::start(&world.cluster, jobs, world.tally.total()));
    if let Some(jobs) = &jobs {
        tokio::time::sleep(WARM_UP).await;
        jobs.begin();
    }
    let policy = world.governing_policy().await?;
    let budget = world.budget(&policy).await?;
    world.tally.begin(choice.scenario != Scenario::OsUpgrade);
    world.record_status_changes(&policy);
    match choice.scenario {
        Scenario::Install | Scenario::DriverUpgrade => {}
        Scenario::OsUpgrade => reboots(world, choice, budget)?,
        Scenario::Failures => fail(world, choice.version()),
        Scenario::Outage => outage(world),
    }
    if choice.scenario != Scenario::OsUpgrade {
        world.tally.note(format!("driver {} is wanted", choice.version()));
        world.change_driver(&policy, choice.version()).await?;
    }
    advance(world, choice.until).await;
    let verdict = world.verdict(&policy).await?;
    Ok(Outcome { budget: Some(budget), verdict, jobs: jobs.map(|jobs| jobs.outcome()) })
}

/// Advances virtual time, and samples the fleet at intervals.
async fn advance(world: &World, until: Duration) {
    world.tally.sample();
    for _ in 0..SAMPLES {
        tokio::time::sleep(until / SAMPLES).await;
        world.tally.sample();
    }
}

/// Makes the new driver fail to load on some nodes, until they are repaired.
fn fail(world: &World, version: &str) {
    let failures = &world.fleet.failures;
    let names = world.cluster.nodes().names().into_iter();
    let bad: BTreeSet<String> = names.filter(|name| chosen(world.fleet.seed, name, failures.driver)).collect();
    world.tally.note(format!("driver {version} does not load on {} nodes", bad.len()));
    world.bad.set(version, bad.clone());
    let Some(repair) = failures.repair else { return };
    let (failing_drivers, tally) = (world.bad.clone(), world.tally.clone());
    world.cluster.context().spawn(async move {
        tokio::time::sleep(repair.0).await;
        for node in &bad {
            failing_drivers.repair(node);
        }
        tally.note(format!("{} nodes are mended", bad.len()));
    });
}

/// Takes the API server down for a while: no request is answered.
fn outage(world: &World) {
    let (server, tally) = (world.cluster.server.clone(), world.tally.clone());
    world.cluster.context().spawn(async move {
        tokio::time::sleep(OUTAGE.0).await;
        tally.note("the API server is away");
        let cut = server.faults().cut_off(Matcher::new());
        tokio::time::sleep(OUTAGE.1).await;
        cut.remove();
        tally.note("the API server is back");
    });
}

/// Cordons the nodes of a pool, a few at a time, and boots them with another kernel.
fn reboots(world: &World, choice: &Choice, budget: usize) -> Result<()> {
    let of_pool = |node: &NodeHandle| {
        let object = node.object();
        let label = object.as_ref().and_then(|node| node.metadata.labels.as_ref()?.get(POOL));
        choice.pool.as_ref().is_none_or(|pool| label == Some(pool))
    };
    let nodes = world.cluster.nodes();
    let pool: Vec<NodeHandle> = nodes.names().iter().filter_map(|name| nodes.get(name)).filter(of_pool).collect();
    if pool.is_empty() {
        let pools: Vec<&str> = world.fleet.pools.iter().map(|pool| pool.name.as_str()).collect();
        let wanted = choice.pool.as_deref().unwrap_or_default();
        return Err(Error::Invalid(format!("there is no pool {wanted:?}: choose one of {}", pools.join(", "))));
    }
    world.tally.note(format!("{} nodes get another kernel, {budget} at a time", pool.len()));
    let (places, tally, fleet) = (Arc::new(Semaphore::new(budget.max(1))), world.tally.clone(), world.fleet.clone());
    let context = world.cluster.context().clone();
    world.cluster.context().spawn(async move {
        let all = u32::try_from(budget.max(1)).unwrap_or(u32::MAX);
        for node in pool {
            let Ok(place) = places.clone().acquire_owned().await else { return };
            let lost = chosen(fleet.seed, node.name(), fleet.failures.reboot);
            let (boot, repair) = (fleet.pace.reboot.0, fleet.failures.repair);
            context.spawn(async move {
                if let Err(error) = reboot(&node, boot, repair.map(|time| time.0).filter(|_| lost), lost).await {
                    tracing::debug!(%error, node = node.name(), "reboot failed");
                }
                drop(place);
            });
        }
        let _ = places.acquire_many(all).await;
        tally.note("all nodes have been booted");
    });
    Ok(())
}

/// Reboots one node: cordon, power off, boot another kernel, uncordon when its GPUs work.
async fn reboot(
    node: &NodeHandle,
    boot: Duration,
    repair: Option<Duration>,
    lost: bool,
) -> Result<(), capstan_apiserver::error::Status> {
    node.cordon(true).await?;
    node.down();
    capstan_gpu_sim::reboot(node.host());
    if lost {
        match repair {
            // Another task reboots this node.
            None => return Ok(()),
            Some(repair) => tokio::time::sleep(repair).await,
        }
    }
    tokio::time::sleep(boot).await;
    node.set_labels(&[(KERNEL, "6.14.0-33-generic")]).await?;
    node.set_capacity("nvidia.com/gpu", Some("0")).await?;
    node.up().await?;
    let offers = |node: &Node| {
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref()?.get("nvidia.com/gpu"));
        allocatable.is_some_and(|count| count.0 != "0")
    };
    let _ = tokio::time::timeout(REBOOT_TIMEOUT, node.until(offers)).await;
    node.cordon(false).await
}
