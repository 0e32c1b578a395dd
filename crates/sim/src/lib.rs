//! A Kubernetes cluster in one process: API server, controllers, scheduler and virtual nodes.
//!
//! Start with [`Cluster`]. It needs no sockets and no files, starts in a fraction of a second, and follows tokio's clock:
//! in a test with paused time a day passes in a moment.
//!
//! | module | part |
//! |---|---|
//! | [`informer`], [`Caches`] | one typed copy of every object, and who is told when it changes |
//! | [`queue`] | keys to look at, with delays and backoff |
//! | [`controllers`] | deployments, daemon sets, jobs, volumes, node health … |
//! | [`scheduler`] | which node a pod goes to |
//! | [`node`] | kubelets without containers |
//!
//! It knows nothing of GPUs: extended resources are just names.

mod caches;
mod context;
pub mod controllers;
mod events;
pub mod informer;
pub mod matching;
pub mod node;
pub mod queue;
pub mod scheduler;
mod writer;

use capstan_apiserver::admit;
use capstan_apiserver::clock::Clock;
use capstan_apiserver::error::Status;
use capstan_apiserver::lifecycle::Lifecycle;
use capstan_apiserver::ops::{self, Server};
use jiff::Timestamp;

pub use caches::Caches;
pub use context::{Context, Tasks};
pub use events::{Recorder, Severity, reference};
pub use node::NodeTemplate;
pub use writer::{Writer, is_already_exists, is_conflict, is_not_found};

/// A cluster that runs until it is dropped.
pub struct Cluster {
    /// The API server.
    pub server: Server,
    context: Context,
    tasks: Tasks,
    _lifecycle: Lifecycle,
}

/// What a cluster is to be like.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    start: Option<Timestamp>,
    seed: Option<u64>,
    controllers: controllers::Settings,
    scheduler: scheduler::Settings,
    nodes: node::Settings,
}

impl Cluster {
    /// Describes a cluster.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// What parts of the cluster are given: for code that runs beside them.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Ends everything that runs.
    pub fn stop(&self) {
        self.tasks.stop();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Builder {
    /// The time at the start; real time if this is not called.
    pub fn start_time(mut self, start: Timestamp) -> Self {
        self.start = Some(start);
        self
    }

    /// Makes UIDs and generated names repeatable.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Adds `count` plain nodes: `node-0`, `node-1` …
    pub fn nodes(mut self, count: usize) -> Self {
        let first = self.nodes.nodes.len();
        let more =
            (first..first + count).map(|i| NodeTemplate { name: format!("node-{i}"), ..NodeTemplate::default() });
        self.nodes.nodes.extend(more);
        self
    }

    /// Adds a node.
    pub fn node(mut self, node: NodeTemplate) -> Self {
        self.nodes.nodes.push(node);
        self
    }

    /// Says how nodes behave. Replaces all nodes that were added before.
    pub fn node_settings(mut self, settings: node::Settings) -> Self {
        self.nodes = settings;
        self
    }

    /// Says how the scheduler works.
    pub fn scheduler_settings(mut self, settings: scheduler::Settings) -> Self {
        self.scheduler = settings;
        self
    }

    /// Says which controllers run.
    pub fn controller_settings(mut self, settings: controllers::Settings) -> Self {
        self.controllers = settings;
        self
    }

    /// Starts the cluster. When it returns, all caches are filled.
    pub async fn start(self) -> Result<Cluster, Status> {
        let clock = self.start.map_or_else(Clock::real, Clock::starting_at);
        let server = Server::new(ops::Settings { clock: Some(clock), seed: self.seed, ..ops::Settings::default() });
        let (kinds, plugins) = admit::standard(&admit::Settings::default());
        server.set_kinds(kinds);
        plugins.into_iter().for_each(|plugin| server.add_admission(plugin));
        let lifecycle = Lifecycle::start(&server).await?;
        let tasks = Tasks::default();
        let context = Context::new(server.clone(), tasks.clone());
        controllers::start(&context, &self.controllers);
        scheduler::start(&context, &self.scheduler);
        node::start(&context, self.nodes);
        context.caches.synced().await;
        Ok(Cluster { server, context, tasks, _lifecycle: lifecycle })
    }
}
