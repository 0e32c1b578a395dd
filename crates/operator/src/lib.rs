//! The operator: custom resources and their plans, connected to the runtime, and nothing else.
//!
//! [`run`] is the whole program: `capstan operator` calls it in a cluster, `capstan up` in its own process, tests with
//! an embedded cluster. Start reading with `controller`, the one reconcile, and then `nim/pipeline.rs`, a controller on
//! one screen. [`PRODUCTS`] lists the products.

pub mod admission;
mod controller;
pub mod crds;
mod endpoints;
pub mod gpu;
pub mod nemo;
pub mod nim;
mod orchestrator;
pub mod product;
pub mod queries;
pub mod rights;
mod schemas;
mod settle;
mod states;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use capstan_runtime::webhook::rotation;
use capstan_runtime::{Anchor, Clock, Gate, Metrics, Runtime, leader};
use kube::Client;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use product::PRODUCTS;

use product::Launch;
use queries::QueryBackend;
use schemas::{Install, Schemas};
use states::States;

/// Why the operator cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address cannot be listened on.
    #[error("cannot listen on {address} for {purpose}: {cause}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Its purpose.
        purpose: &'static str,
        /// Why.
        cause: String,
    },
    /// The lease settings are invalid.
    #[error("{0}")]
    Lease(String),
}

/// Options of the operator.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether our CRDs are installed and upgraded at the start.
    pub apply_crds: bool,
    /// Leader election; `None` for a single process.
    pub leader: Option<leader::Settings>,
    /// Address of `/healthz` and `/readyz`.
    pub health: Option<SocketAddr>,
    /// Endpoint of `/metrics`, for clients with RBAC permission to `get` it.
    pub metrics: Option<Endpoint>,
    /// Endpoint of the admission webhook; disabled without a certificate.
    pub webhook: Option<Endpoint>,
    /// Rotation of the self-managed certificate, if an endpoint uses it.
    pub certificate_rotation: Option<rotation::Settings>,
    /// Owner of our CRDs, to delete them with the release; `None` to keep them.
    pub crd_anchor: Option<Anchor>,
    /// Name of this process among its replicas.
    pub instance: String,
    /// The clock.
    pub clock: Clock,
    /// The backend of external queries.
    pub query_backend: QueryBackend,
    /// Timeout of registry requests; `None` disables them, and images count as unlabelled.
    pub registries: Option<Duration>,
    /// Namespace of KServe; detected by its ConfigMap when unset.
    pub kserve_namespace: Option<String>,
    /// Settings of GPU operands.
    pub gpu: gpu::Settings,
    /// What services of NeMo need to know.
    pub nemo: nemo::Settings,
}

/// An HTTP endpoint.
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
    /// None: plain HTTP.
    None,
    /// Self-managed: stored in a Secret and renewed.
    Own,
    /// It is mounted as `tls.crt` and `tls.key`.
    Mounted(PathBuf),
}

impl Options {
    /// In a process with its own cluster: no leader election, no sockets.
    pub fn in_process() -> Self {
        Self {
            apply_crds: true,
            leader: None,
            health: None,
            metrics: None,
            webhook: None,
            certificate_rotation: None,
            crd_anchor: None,
            instance: "capstan".into(),
            clock: Clock::Real,
            query_backend: QueryBackend::offline(),
            registries: None,
            kserve_namespace: None,
            gpu: gpu::Settings { namespace: "capstan".into(), ..gpu::Settings::default() },
            nemo: nemo::Settings::default(),
        }
    }
}

/// Runs the operator until `stop`. `ready` is sent once the caches have synced and, on the leader, our CRDs are served.
pub async fn run(
    client: Client,
    options: Options,
    stop: CancellationToken,
    ready: oneshot::Sender<()>,
) -> Result<(), Error> {
    if let Some(reason) = options.leader.as_ref().and_then(leader::Settings::invalid) {
        return Err(Error::Lease(reason));
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
    // Controllers and servers stop first, then watches and leader election: so a last write is never rejected.
    let (early, late) = (stop.child_token(), CancellationToken::new());
    let runtime = Runtime::start(client.clone(), settings, &late);
    let schemas = Schemas::new(&runtime);
    let mut tasks = JoinSet::new();
    endpoints::listen(&mut tasks, &runtime, &options, &early).await?;
    let mut launch = Launch::new(&runtime, &options, &schemas, &states, &mut tasks, &early);
    PRODUCTS.iter().for_each(|product| (product.controllers)(&mut launch));
    let election = options.leader.map(|lease| {
        let (gate, metrics) = (runtime.gate.clone(), runtime.metrics.clone());
        tokio::spawn(leader::run(client, lease, gate, options.clock, metrics, late.clone()))
    });
    let install = match options.crd_anchor {
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
    if let Some(election) = election {
        let _ = election.await;
    }
    Ok(())
}
