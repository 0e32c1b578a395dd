//! The operator: custom resources and their plans, connected to the runtime, and nothing else.
//!
//! [`run`] is the whole program: `capstan operator` calls it in a cluster, `capstan up` in its own process, tests with an
//! embedded cluster. Start reading with `nim_service`, a controller on one screen.

mod admission;
pub mod crds;
pub mod gpu;
mod nim_build;
mod nim_cache;
mod nim_pipeline;
mod nim_service;
mod orchestrator;
mod progress;
pub mod questions;
pub mod rights;
mod schemas;
mod settle;
mod states;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use capstan_api::nim::{NimBuild, NimCache, NimPipeline};
use capstan_runtime::ask::{Asker, How, Known};
use capstan_runtime::queue::Queue;
use capstan_runtime::registry::Registries;
use capstan_runtime::serve::Guard;
use capstan_runtime::webhook::{self, keeper};
use capstan_runtime::{Action, Anchor, Clock, Controller, Gate, Key, Metrics, Runtime, leader, serve};
use kube::Client;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use orchestrator::Nodes;
use questions::Ask;
use schemas::{Install, Schemas};
use states::States;

/// Why the operator does not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address cannot be listened on.
    #[error("cannot listen on {address} for {purpose}: {cause}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// What for.
        purpose: &'static str,
        /// Why.
        cause: String,
    },
    /// The lease is badly set.
    #[error("{0}")]
    Lease(String),
}

/// How the operator runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether our CRDs are installed and upgraded at the start.
    pub apply_crds: bool,
    /// The lease to hold before anything is written; `None` for a process that is alone.
    pub leader: Option<leader::Settings>,
    /// Where `/healthz` and `/readyz` answer.
    pub health: Option<SocketAddr>,
    /// Where `/metrics` answers, to those who may `get` it in the cluster.
    pub metrics: Option<Endpoint>,
    /// Where the admission webhook answers; without a certificate, nowhere.
    pub webhook: Option<Endpoint>,
    /// How a certificate of our own is kept, if an endpoint has one.
    pub keeper: Option<keeper::Settings>,
    /// What our CRDs go with when the release goes; `None` to keep them.
    pub crds_go_with: Option<Anchor>,
    /// Name of this process among its replicas.
    pub instance: String,
    /// The time of day.
    pub clock: Clock,
    /// How questions are asked that the API does not answer.
    pub ask: Ask,
    /// How long a registry may take to tell about an image; `None` asks none, and images count as ones that say nothing.
    pub registries: Option<Duration>,
    /// Namespace of KServe; found by its settings when unset.
    pub kserve_namespace: Option<String>,
    /// Where and with which images operands of GPU nodes run.
    pub gpu: gpu::Settings,
}

/// A server of ours.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Where it listens.
    pub address: SocketAddr,
    /// Where its certificate comes from.
    pub certificate: Certificate,
}

/// Where the certificate of an endpoint comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certificate {
    /// There is none: in the clear.
    None,
    /// We make it, keep it in a Secret and renew it.
    Own,
    /// It is mounted as `tls.crt` and `tls.key`.
    Mounted(PathBuf),
}

impl Options {
    /// Alone in a process with its own cluster: no lease, no sockets.
    pub fn in_process() -> Self {
        Self {
            apply_crds: true,
            leader: None,
            health: None,
            metrics: None,
            webhook: None,
            keeper: None,
            crds_go_with: None,
            instance: "capstan".into(),
            clock: Clock::Real,
            ask: Ask::offline(),
            registries: None,
            kserve_namespace: None,
            gpu: gpu::Settings { namespace: "capstan".into(), ..gpu::Settings::default() },
        }
    }
}

/// Runs the operator until `stop`. `ready` is told once the caches are complete and, if we lead, our CRDs are served.
pub async fn run(
    client: Client,
    options: Options,
    stop: CancellationToken,
    ready: oneshot::Sender<()>,
) -> Result<(), Error> {
    if let Some(fault) = options.leader.as_ref().and_then(leader::Settings::fault) {
        return Err(Error::Lease(fault));
    }
    let gate = if options.leader.is_some() { Gate::closed() } else { Gate::open() };
    let states = States::new(gate.clone());
    let metrics = Metrics::with(|registry| {
        options.gpu.metrics.register(registry);
        registry.register_collector(Box::new(states.clone()));
    });
    let settings = capstan_runtime::Settings {
        gate: gate.clone(),
        clock: options.clock,
        instance: options.instance.clone(),
        metrics,
        ..capstan_runtime::Settings::default()
    };
    // Controllers and servers end first, then the watches and the lease: so a last write is never refused.
    let (early, late) = (stop.child_token(), CancellationToken::new());
    let runtime = Runtime::start(client.clone(), settings, &late);
    states.follow(&runtime.cache);
    let schemas = Schemas::new(&runtime);
    let mut tasks = JoinSet::new();
    listen(&mut tasks, &runtime, &options, &early).await?;
    controllers(&mut tasks, &runtime, &schemas, &options, &early);
    let leading = options.leader.map(|lease| {
        let (gate, metrics) = (runtime.gate.clone(), runtime.metrics.clone());
        tokio::spawn(leader::run(client, lease, gate, options.clock, metrics, late.clone()))
    });
    let install = match options.crds_go_with {
        _ if !options.apply_crds => Install::Never,
        Some(anchor) => Install::Tied(anchor),
        None => Install::Kept,
    };
    let follow = schemas.clone().follow(install, early.clone());
    tasks.spawn(follow);
    let announce = async {
        runtime.cache.synced().await;
        if runtime.gate.is_open() {
            schemas.checked().await;
        }
        let _ = ready.send(());
    };
    early.run_until_cancelled(announce).await;
    tasks.join_all().await;
    late.cancel();
    if let Some(leading) = leading {
        let _ = leading.await;
    }
    Ok(())
}

/// Every controller: one line each.
fn controllers(
    tasks: &mut JoinSet<()>,
    runtime: &Runtime,
    schemas: &Schemas,
    options: &Options,
    stop: &CancellationToken,
) {
    let nodes = Nodes::follow(&runtime.cache);
    let registries = options.registries.map(|patience| Registries::new(runtime.client.clone(), patience));
    let asking = Asking {
        known: questions::known_to(registries.clone()),
        how: questions::with_registries(&options.ask, registries),
        registries: options.registries.is_some(),
    };
    nim_service::start(tasks, runtime, schemas, nodes.clone(), &asking, options, stop);
    gpu::start(tasks, runtime, schemas, &options.gpu, stop);
    let mut run = Run { tasks, runtime, schemas, nodes, asking, stop };
    let caches = Controller::of::<NimCache>("nimcache", runtime).watching(nim_cache::concerned(runtime));
    run.controller::<NimCache, _, _>(caches, nim_cache::reconcile);
    let builds = Controller::of::<NimBuild>("nimbuild", runtime).watching(nim_build::concerned(runtime));
    run.controller::<NimBuild, _, _>(builds, nim_build::reconcile);
    run.controller::<NimPipeline, _, _>(Controller::of::<NimPipeline>("nimpipeline", runtime), nim_pipeline::reconcile);
}

/// How plans find out what the API does not tell.
#[derive(Clone)]
struct Asking {
    how: How,
    known: Known,
    /// Whether registries are asked.
    registries: bool,
}

impl Asking {
    /// Asks for a controller with that queue.
    fn asker(&self, queue: Queue<Key>) -> Asker {
        Asker::new(self.how.clone(), self.known.clone(), queue)
    }
}

/// What a reconcile works with.
#[derive(Clone)]
struct Cx {
    runtime: Runtime,
    schemas: Schemas,
    nodes: Nodes,
    asker: Asker,
    /// Whether registries are asked.
    registries: bool,
}

/// Where controllers run.
struct Run<'a> {
    tasks: &'a mut JoinSet<()>,
    runtime: &'a Runtime,
    schemas: &'a Schemas,
    nodes: Nodes,
    asking: Asking,
    stop: &'a CancellationToken,
}

impl Run<'_> {
    /// Starts the controller of `K`, which is also woken when the schema of a CRD changes.
    fn controller<K, F, Fut>(&mut self, controller: Controller, reconcile: F)
    where
        K: kube::Resource<DynamicType = ()>,
        F: Fn(Cx, Key) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Action, capstan_runtime::Error>> + Send + 'static,
    {
        self.schemas.wake::<K>(controller.queue(), &self.runtime.cache);
        let cx = Cx {
            runtime: self.runtime.clone(),
            schemas: self.schemas.clone(),
            nodes: self.nodes.clone(),
            asker: self.asking.asker(controller.queue()),
            registries: self.asking.registries,
        };
        self.tasks.spawn(controller.run(self.stop.clone(), move |key| reconcile(cx.clone(), key)));
    }
}

/// Health, metrics and admission, where they are asked for.
async fn listen(
    tasks: &mut JoinSet<()>,
    runtime: &Runtime,
    options: &Options,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let own = webhook::Certificate::default();
    if let Some(settings) = options.keeper.clone() {
        tasks.spawn(keeper::run(runtime.clone(), settings, own.clone(), stop.clone()));
    }
    if let Some(endpoint) = &options.metrics {
        let listener = open(endpoint.address, "metrics").await?;
        let guard = Guard::ask(runtime.client.clone());
        let certificate = certificate(tasks, &endpoint.certificate, &own, stop);
        tasks.spawn(serve::metrics(listener, runtime.metrics.clone(), guard, certificate, stop.clone()));
    }
    let mut hook = None;
    if let Some(endpoint) = &options.webhook
        && let Some(certificate) = certificate(tasks, &endpoint.certificate, &own, stop)
    {
        let listener = open(endpoint.address, "the webhook").await?;
        hook = Some(certificate.clone());
        tasks.spawn(webhook::run(listener, certificate, admission::routes(runtime, options), stop.clone()));
    }
    if let Some(address) = options.health {
        let (listener, cache) = (open(address, "health checks").await?, runtime.cache.clone());
        let ready = move || {
            serve::caches_are_complete(&cache)?;
            // Without a certificate the API server would call us in vain.
            let served = hook.as_ref().is_none_or(webhook::Certificate::is_set);
            if served { Ok(()) } else { Err("no certificate for the webhook yet".into()) }
        };
        tasks.spawn(serve::health(listener, ready, stop.clone()));
    }
    Ok(())
}

/// The certificate that an endpoint serves, if it has one.
fn certificate(
    tasks: &mut JoinSet<()>,
    source: &Certificate,
    own: &webhook::Certificate,
    stop: &CancellationToken,
) -> Option<webhook::Certificate> {
    match source {
        Certificate::None => None,
        Certificate::Own => Some(own.clone()),
        Certificate::Mounted(folder) => {
            let (mounted, folder, stop) = (webhook::Certificate::default(), folder.clone(), stop.clone());
            let certificate = mounted.clone();
            tasks.spawn(async move { webhook::files::run(&folder, mounted, stop).await });
            Some(certificate)
        }
    }
}

async fn open(address: SocketAddr, purpose: &'static str) -> Result<tokio::net::TcpListener, Error> {
    let listener = tokio::net::TcpListener::bind(address).await;
    listener.map_err(|error| Error::Listen { address, purpose, cause: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_in_use_is_one_clear_line() {
        let taken = open((std::net::Ipv4Addr::LOCALHOST, 0).into(), "metrics").await.expect("a free port");
        let address = taken.local_addr().expect("an address");
        let error = open(address, "probes").await.expect_err("taken").to_string();
        assert!(error.starts_with(&format!("cannot listen on {address} for probes: ")), "{error}");
    }
}
