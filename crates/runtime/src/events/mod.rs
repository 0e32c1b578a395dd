//! Events: what users see under `kubectl describe`.
//!
//! The same note about the same object is one event with a count, and is written again only when something else was
//! said in between or a while has passed. Nothing waits for an event to be written: it is kept until the server takes
//! it, and if it is lost after all, a metric counts it and the log says so.

mod backlog;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_plan::{Note, Ref, Severity, kit};
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use self::backlog::{Backlog, Due, REMIND, Subject};
use crate::clock::Clock;
use crate::error::{Class, Error, Streak};
use crate::gate::Gate;
use crate::metrics::Metrics;
use crate::writer::FIELD_MANAGER;

/// The log tells of lost events this often at most.
const TELL: Duration = Duration::from_secs(60);

/// How long an event lets other writes go first: what it tells of should be there, and others with it, before that is told.
const WAY: Duration = Duration::from_millis(250);

/// Records events. Clones share one state.
#[derive(Clone)]
pub struct Events {
    shared: Arc<Shared>,
    component: Arc<str>,
}

struct Shared {
    backlog: Mutex<Backlog>,
    said: Notify,
    losses: Mutex<Losses>,
    gate: Gate,
    metrics: Metrics,
    clock: Clock,
}

/// Events that were lost since the log told of some.
#[derive(Default)]
struct Losses {
    count: u64,
    told: Option<Instant>,
}

impl Events {
    /// Starts to record events in the name of `component`, until `stop`. `instance` tells processes apart.
    pub fn start(
        client: Client,
        gate: Gate,
        metrics: Metrics,
        clock: Clock,
        (component, instance): (&str, &str),
        stop: CancellationToken,
    ) -> Self {
        let (backlog, losses, said) = (Mutex::default(), Mutex::default(), Notify::new());
        let shared = Arc::new(Shared { backlog, said, losses, gate, metrics, clock });
        let scribe = EventWriter { client, instance: instance.into(), shared: shared.clone() };
        tokio::spawn(async move {
            stop.run_until_cancelled(scribe.run()).await;
            scribe.stop();
        });
        Self { shared, component: component.into() }
    }

    /// The same in the name of another component: `nimservice-controller`.
    pub fn named(&self, component: &str) -> Self {
        Self { component: component.into(), ..self.clone() }
    }

    /// Says one thing about an object.
    pub fn record(&self, reference: &Ref, uid: &str, note: &Note) {
        self.record_all(reference, uid, std::slice::from_ref(note));
    }

    /// Says everything there is to say about an object now. What was said the last time too is not written again.
    pub fn record_all(&self, reference: &Ref, uid: &str, notes: &[Note]) {
        let shared = &*self.shared;
        if !shared.gate.is_open() {
            return;
        }
        let subject = || Subject { component: self.component.clone(), reference: reference.clone(), uid: uid.into() };
        let key = backlog::key(&self.component, uid);
        let lost = shared.backlog().hear(subject, &key, notes, shared.clock.now());
        if lost > 0 {
            shared.lost(lost, reference, "too much was said about one object");
        }
        if !notes.is_empty() {
            shared.said.notify_one();
        }
    }
}

impl Shared {
    fn backlog(&self) -> MutexGuard<'_, Backlog> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lost(&self, count: u64, last: &Ref, why: &str) {
        self.metrics.events_dropped(count);
        let mut losses = self.losses.lock().unwrap_or_else(PoisonError::into_inner);
        losses.count += count;
        if losses.told.is_none_or(|told| told.elapsed() >= TELL) {
            tracing::warn!(count = losses.count, %last, why, "events dropped");
            *losses = Losses { count: 0, told: Some(Instant::now()) };
        }
    }
}

/// Writes what was said, one after another.
struct EventWriter {
    client: Client,
    instance: String,
    shared: Arc<Shared>,
}

impl EventWriter {
    async fn run(&self) {
        let mut streak = Streak::default();
        loop {
            let next = self.shared.backlog().next();
            match next {
                Some(due) => {
                    let _ = timeout(WAY, self.shared.gate.drained()).await;
                    self.one(due, &mut streak).await;
                }
                None => self.shared.said.notified().await,
            }
        }
    }

    /// Writes one event. A server that is away or asks for a pause gets one, and the event waits.
    async fn one(&self, due: Due, streak: &mut Streak) {
        let count = self.shared.backlog().count(&due);
        let error = match self.write(&due, count).await {
            Ok(count) => {
                *streak = Streak::default();
                return self.shared.backlog().written(&due, count);
            }
            Err(error) => error,
        };
        let passing = matches!(error.class(), Class::Throttled | Class::Unavailable);
        if passing && due.said.since.elapsed() < REMIND {
            self.shared.backlog().again(due);
            sleep(error.delay(streak.another(error.class()))).await;
        } else {
            self.shared.backlog().given_up(&due);
            self.shared.lost(1, &due.subject.reference, &error.chain());
        }
    }

    /// Says what is left at the end.
    fn stop(&self) {
        let mut backlog = self.shared.backlog();
        let left = backlog.len() as u64;
        if let Some(due) = backlog.next() {
            self.shared.lost(left, &due.subject.reference, "the process ends");
        }
    }

    /// Writes an event, or counts it up. Returns its count.
    async fn write(&self, due: &Due, count: i32) -> Result<i32, Error> {
        let name = name(due);
        let namespace = match due.subject.reference.namespace.as_str() {
            "" => "default",
            namespace => namespace,
        };
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        if count > 0 {
            match self.count_up(&api, &name, count, due).await {
                Err(error) if error.class() == Class::NotFound => {}
                other => return other,
            }
        }
        let event = self.event(due, &name, namespace);
        let Shared { gate, metrics, .. } = &*self.shared;
        let params = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
        let created = gate.pass("create", format!("Event {name}"), api.create(&params, &event)).await;
        metrics.request("create", "Event", created.is_ok());
        match created {
            Ok(_) => Ok(1),
            // A process before us wrote it; names follow from what is said.
            Err(error) if error.class() == Class::Conflict => {
                let there = gate.pass("get", format!("Event {name}"), api.get(&name)).await?;
                self.count_up(&api, &name, there.count.unwrap_or(1), due).await
            }
            Err(error) => Err(error),
        }
    }

    async fn count_up(&self, api: &Api<Event>, name: &str, count: i32, due: &Due) -> Result<i32, Error> {
        let count = count.saturating_add(1);
        let change = json!({"count": count, "lastTimestamp": Time(due.said.at)});
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        let patch = Patch::Merge(change);
        let Shared { gate, metrics, .. } = &*self.shared;
        let patched = gate.pass("patch", format!("Event {name}"), api.patch(name, &params, &patch)).await;
        metrics.request("patch", "Event", patched.is_ok());
        patched.map(|_| count)
    }

    fn event(&self, Due { subject, said, .. }: &Due, name: &str, namespace: &str) -> Event {
        let Ref { gvk, namespace: place, name: object } = &subject.reference;
        Event {
            metadata: ObjectMeta {
                name: Some(name.into()),
                namespace: Some(namespace.into()),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some(gvk.api_version()),
                kind: Some(gvk.kind.to_string()),
                namespace: Some(place.clone()).filter(|place| !place.is_empty()),
                name: Some(object.clone()),
                uid: Some(subject.uid.clone()),
                ..ObjectReference::default()
            },
            type_: Some(severity(said.note.severity).into()),
            reason: Some(said.note.reason.into()),
            message: Some(said.note.message.clone()),
            count: Some(1),
            event_time: Some(MicroTime(said.at)),
            first_timestamp: Some(Time(said.at)),
            last_timestamp: Some(Time(said.at)),
            action: Some("Reconcile".into()),
            source: Some(EventSource { component: Some(subject.component.to_string()), host: None }),
            reporting_component: Some(subject.component.to_string()),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        }
    }
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Normal => "Normal",
        Severity::Warning => "Warning",
    }
}

/// The name follows from what is said about which object, so that a new process finds the event of an old one.
fn name(Due { subject, said, .. }: &Due) -> String {
    let text = format!("{}\n{}\n{}\n{}", subject.component, subject.uid, said.note.reason, said.note.message);
    // Twice 32 bits of hash, from the two ends.
    let reversed: String = text.chars().rev().collect();
    let object: String = subject.reference.name.chars().take(200).collect();
    format!("{object}.{}{}", kit::hash(&text), kit::hash(&reversed))
}
