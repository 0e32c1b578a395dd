//! The operator: custom resources and their plans, connected to the runtime, and nothing else.
//!
//! [`run`] is the whole program: `capstan operator` calls it in a cluster, `capstan up` in its own process, tests with an
//! embedded cluster. Start reading with `controller`, the one reconcile, and then `nim/pipeline.rs`, a controller on one
//! screen. [`PRODUCTS`] lists what is wired here.

pub mod admission;
mod controller;
pub mod crds;
mod endpoints;
pub mod gpu;
pub mod nemo;
pub mod nim;
mod orchestrator;
pub mod product;
pub mod questions;
pub mod rights;
mod schemas;
mod settle;
mod states;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use capstan_runtime::webhook::keeper;
use capstan_runtime::{Anchor, Clock, Gate, Metrics, Runtime, leader};
use kube::Client;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use product::PRODUCTS;

use product::Launch;
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
    /// What services of NeMo need to know.
    pub nemo: nemo::Settings,
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
            nemo: nemo::Settings::default(),
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
        PRODUCTS.iter().for_each(|product| (product.metrics)(&options, registry));
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
    let schemas = Schemas::new(&runtime);
    let mut tasks = JoinSet::new();
    endpoints::listen(&mut tasks, &runtime, &options, &early).await?;
    let mut launch = Launch::new(&runtime, &options, &schemas, &states, &mut tasks, &early);
    PRODUCTS.iter().for_each(|product| (product.controllers)(&mut launch));
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
