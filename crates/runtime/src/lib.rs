//! The controller runtime: the effects around the pure core of `capstan-plan`.
//!
//! Start with [`Runtime`], which holds all parts, and [`controller`], the reconcile loop.
//!
//! | module | part |
//! |---|---|
//! | [`kinds`] | the table of kinds: what is watched, and how much of it is cached |
//! | [`cache`] | one trimmed watch per kind, snapshots for plans, changes for controllers |
//! | [`queue`], [`controller`] | the work queue and the reconcile loop |
//! | [`writer`] | server-side apply in waves, pruning, status, finalizers |
//! | [`gate`], [`leader`] | leader election: only the leader writes, and only until a deadline |
//! | [`events`] | Kubernetes events |
//! | [`query`], [`fetch`] | external queries of plans, which the API server cannot answer |
//! | [`metrics`], [`serve`] | Prometheus metrics, health and readiness |
//! | [`webhook`] | admission webhooks over TLS with self-managed certificates |

mod anchor;
pub mod cache;
pub mod clock;
pub mod controller;
pub mod error;
pub mod events;
pub mod fetch;
pub mod gate;
mod guard;
pub mod keys;
pub mod kinds;
pub mod leader;
pub mod metrics;
mod pods;
pub mod query;
pub mod queue;
pub mod read;
pub mod registry;
pub mod serve;
pub mod trim;
pub mod webhook;
pub mod writer;

use kube::Client;
use tokio_util::sync::CancellationToken;

pub use anchor::Anchor;
pub use cache::{Cache, Change, Key};
pub use clock::Clock;
pub use controller::{Action, Controller, Requeue};
pub use error::{Class, Error};
pub use events::Events;
pub use gate::Gate;
pub use metrics::Metrics;
pub use writer::Writer;

/// Settings of a runtime.
#[derive(Clone)]
pub struct Settings {
    /// The kinds to watch.
    pub kinds: &'static [kinds::Kind],
    /// The write gate: always open without leader election.
    pub gate: Gate,
    /// The clock.
    pub clock: Clock,
    /// Metrics.
    pub metrics: Metrics,
    /// Name of this process among its replicas.
    pub instance: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            kinds: *kinds::KINDS,
            gate: Gate::open(),
            clock: Clock::Real,
            metrics: Metrics::default(),
            instance: "capstan".into(),
        }
    }
}

/// All parts that controllers need. Clones share one state.
#[derive(Clone)]
pub struct Runtime {
    /// For requests that neither cache nor writer covers.
    pub client: Client,
    /// The cached state of the cluster.
    pub cache: Cache,
    /// Writes to the cluster.
    pub writer: Writer,
    /// Records events.
    pub events: Events,
    /// The write gate.
    pub gate: Gate,
    /// The clock.
    pub clock: Clock,
    /// Metrics.
    pub metrics: Metrics,
}

impl Runtime {
    /// Starts discovery, watches and the event recorder, until `stop`. Call it inside a tokio runtime, before
    /// controllers are built.
    pub fn start(client: Client, settings: Settings, stop: &CancellationToken) -> Self {
        let Settings { kinds, gate, clock, metrics, instance } = settings;
        let cache = Cache::new(kinds, metrics.clone());
        let writer = Writer::new(client.clone(), cache.clone(), gate.clone(), metrics.clone());
        let name = ("capstan", instance.as_str());
        let events = Events::start(client.clone(), gate.clone(), metrics.clone(), clock, name, stop.child_token());
        let recorder = events.clone();
        cache.on_undecodable(move |object| {
            recorder.record(&object.reference, &object.uid, &controller::unreadable(&object.reason));
        });
        cache.start(client.clone(), stop.child_token());
        Self { client, cache, writer, events, gate, clock, metrics }
    }
}
