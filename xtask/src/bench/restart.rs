//! Restart of an operator with all objects in place: it must write nothing.

use std::path::Path;

use anyhow::Result;

use super::arena::{Arena, Play, Step, play};
use super::cluster::FIRST;
use super::gpu::Fleet;
use super::nim::{Models, PORT};
use super::usage::megabytes;
use super::{Common, Report, models};
use crate::cluster::control_plane::Workloads;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Number of Ready NIMServices
    #[arg(long, default_value = "500", value_name = "NUMBER")]
    services: usize,
    /// Number of nodes with a ready ClusterPolicy
    #[arg(long, default_value = "1000", value_name = "NUMBER")]
    nodes: usize,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Name of the step in the request list.
const AGAIN: &str = "start again";

pub(super) async fn run(root: &Path, args: &Args) -> Result<()> {
    models::serve(PORT)?;
    let mut plays = Vec::new();
    for arena in args.common.arenas(root, Workloads::Simulated).await? {
        let (models, fleet) = (Models::new(&arena).await?, Fleet::new(&arena));
        plays.push(Restart { arena, models, fleet, services: args.services, nodes: args.nodes });
    }
    let columns = play(plays, args.common.idle).await?;
    let title = format!("A restart with {} NIMServices and {} nodes in place", args.services, args.nodes);
    let mut report = Report::new("restart", &title, columns);
    report.limit("objects written", 0.0);
    report.limit_idle(args.common.idle);
    report.finish(root, &args.common.against)
}

struct Restart {
    arena: Arena,
    models: Models,
    fleet: Fleet,
    services: usize,
    nodes: usize,
}

impl Play for Restart {
    const STEPS: &'static [Step] = &[Step::Do("put everything in place"), Step::Do(AGAIN), Step::Idle];

    fn arena(&mut self) -> &mut Arena {
        &mut self.arena
    }

    async fn step(&mut self, name: &'static str) -> Result<()> {
        if name != AGAIN {
            if self.services > 0 {
                self.models.create(&self.arena, self.services).await?;
                self.models.start(&self.arena, self.services).await?;
            }
            if self.nodes > 0 {
                self.fleet.add(&self.arena, self.nodes).await?;
                self.fleet.create(&self.arena).await?;
                self.fleet.until_labelled(self.nodes).await?;
                self.fleet.until_ready().await?;
            }
            self.arena.wait_until_idle().await?;
            return self.arena.note_memory("before the restart");
        }
        self.again().await
    }
}

impl Restart {
    async fn again(&mut self) -> Result<()> {
        let arena = &mut self.arena;
        arena.process(FIRST).stop()?;
        arena.begin_before_start()?;
        arena.pid = arena.launch(FIRST)?;
        arena.column.main("ready after", "s", arena.seconds());
        let requests = arena.wait_until_idle().await?;
        arena.column.main("last request after", "s", arena.seconds_to_last(&requests));
        let (work, peak) = (arena.usage()?.cpu, megabytes(arena.usage()?.peak));
        arena.column.main("work until silent", "CPU s", work);
        arena.column.detail("memory at most on the way", "MB", peak);
        arena.column.main("requests", "", requests.total() as f64);
        arena.column.detail("watches begun", "", requests.watches as f64);
        // Leases, reviews and unchanged CRDs are not counted as writes.
        let is_write = |kind: &str| {
            let (verb, resource) = kind.split_once(' ').unwrap_or_default();
            !["get", "list"].contains(&verb) && !resource.ends_with("reviews")
        };
        let written: u64 = requests.counts.iter().filter(|(kind, _)| is_write(kind)).map(|(_, count)| count).sum();
        arena.column.main("objects written", "", written as f64);
        arena.column.requests(AGAIN, &requests);
        Ok(())
    }
}
