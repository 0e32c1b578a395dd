//! What every controller runs on: the effects around the pure core of `capstan-plan`.
//!
//! Start with [`Runtime`], which holds all parts, and [`controller`], which shows how they are used.
//!
//! | module | part |
//! |---|---|
//! | [`kinds`] | the table of kinds: what is watched, and how much of it is kept |
//! | [`cache`] | one trimmed watch per kind, snapshots for decisions, changes for controllers |
//! | [`queue`], [`controller`] | keys to look at, and the loop that looks at them |
//! | [`writer`] | server-side apply in waves, pruning, status, finalizers |
//! | [`gate`], [`leader`] | who may write: only who holds the lease, only until a deadline |
//! | [`events`] | what users are told |
//! | [`ask`], [`fetch`] | what plans want to know that the API does not tell |
//! | [`metrics`], [`serve`] | what operators of the operator see |
//! | [`webhook`] | admission over TLS with certificates of our own |

mod anchor;
pub mod ask;
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

/// How a runtime is put together.
#[derive(Clone)]
pub struct Settings {
    /// The kinds to watch.
    pub kinds: &'static [kinds::Kind],
    /// The gate of writes: open for a process that need not lead.
    pub gate: Gate,
    /// The time of day.
    pub clock: Clock,
    /// What is measured.
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

/// All parts, as controllers need them. Clones share one state.
#[derive(Clone)]
pub struct Runtime {
    /// Requests that nothing here has a better way for.
    pub client: Client,
    /// What is known of the cluster.
    pub cache: Cache,
    /// Writes to it.
    pub writer: Writer,
    /// Tells users.
    pub events: Events,
    /// Who may write.
    pub gate: Gate,
    /// The time of day.
    pub clock: Clock,
    /// What is measured.
    pub metrics: Metrics,
}

impl Runtime {
    /// Starts to follow the cluster until `stop`. Call it inside a tokio runtime, and then put controllers together.
    pub fn start(client: Client, settings: Settings, stop: &CancellationToken) -> Self {
        let Settings { kinds, gate, clock, metrics, instance } = settings;
        let cache = Cache::new(kinds, metrics.clone());
        let writer = Writer::new(client.clone(), cache.clone(), gate.clone(), metrics.clone());
        let name = ("capstan", instance.as_str());
        let events = Events::start(client.clone(), gate.clone(), metrics.clone(), clock, name, stop.child_token());
        let poisoned = events.clone();
        cache.on_poison(move |poison| {
            poisoned.record(&poison.reference, &poison.uid, &controller::unreadable(&poison.reason));
        });
        cache.start(client.clone(), stop.child_token());
        Self { client, cache, writer, events, gate, clock, metrics }
    }
}
