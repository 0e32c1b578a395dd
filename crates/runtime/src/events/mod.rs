//! Events: what users see under `kubectl describe`.
//!
//! The same note about the same object is one event with a count. It is written again only after a different note, or
//! after a while. Recording never blocks: an event is pending until the server accepts it; a dropped one is counted by
//! a metric and logged.

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

use self::backlog::{Backlog, Due, REFRESH_INTERVAL, Subject};
use crate::clock::Clock;
use crate::error::{Class, Error, Streak};
use crate::gate::Gate;
use crate::metrics::Metrics;
use crate::writer::FIELD_MANAGER;

/// Dropped events are logged this often at most.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// How long an event waits for writes in flight: the change that it reports should be visible first.
const WRITE_GRACE: Duration = Duration::from_millis(250);

/// Records events. Clones share one state.
#[derive(Clone)]
pub struct Events {
    shared: Arc<Shared>,
    component: Arc<str>,
}

struct Shared {
    backlog: Mutex<Backlog>,
    pending: Notify,
    dropped: Mutex<Dropped>,
    gate: Gate,
    metrics: Metrics,
    clock: Clock,
}

/// Dropped events since the last log line.
#[derive(Default)]
struct Dropped {
    count: u64,
    logged: Option<Instant>,
}

impl Events {
    /// Starts to record events as `component`, until `stop`. `instance` identifies the process.
    pub fn start(
        client: Client,
        gate: Gate,
        metrics: Metrics,
        clock: Clock,
        (component, instance): (&str, &str),
        stop: CancellationToken,
    ) -> Self {
        let (backlog, dropped, pending) = (Mutex::default(), Mutex::default(), Notify::new());
        let shared = Arc::new(Shared { backlog, pending, dropped, gate, metrics, clock });
        let writer = EventWriter { client, instance: instance.into(), shared: shared.clone() };
        tokio::spawn(async move {
            stop.run_until_cancelled(writer.run()).await;
            writer.stop();
        });
        Self { shared, component: component.into() }
    }

    /// The same for another component: `nimservice-controller`.
    pub fn named(&self, component: &str) -> Self {
        Self { component: component.into(), ..self.clone() }
    }

    /// Records one note about an object.
    pub fn record(&self, reference: &Ref, uid: &str, note: &Note) {
        self.record_all(reference, uid, std::slice::from_ref(note));
    }

    /// Records all current notes of an object. Those of the last call are not written again.
    pub fn record_all(&self, reference: &Ref, uid: &str, notes: &[Note]) {
        let shared = &*self.shared;
        if !shared.gate.is_open() {
            return;
        }
        let subject = || Subject { component: self.component.clone(), reference: reference.clone(), uid: uid.into() };
        let key = backlog::key(&self.component, uid);
        let dropped = shared.backlog().record(subject, &key, notes, shared.clock.now());
        if dropped > 0 {
            shared.drop_events(dropped, reference, "rate limit of the object exceeded");
        }
        if !notes.is_empty() {
            shared.pending.notify_one();
        }
    }
}

impl Shared {
    fn backlog(&self) -> MutexGuard<'_, Backlog> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn drop_events(&self, count: u64, last: &Ref, why: &str) {
        self.metrics.events_dropped(count);
        let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        dropped.count += count;
        if dropped.logged.is_none_or(|logged| logged.elapsed() >= LOG_INTERVAL) {
            tracing::warn!(count = dropped.count, %last, why, "events dropped");
            *dropped = Dropped { count: 0, logged: Some(Instant::now()) };
        }
    }
}

/// Writes pending events, one after another.
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
                    let _ = timeout(WRITE_GRACE, self.shared.gate.drained()).await;
                    self.write_one(due, &mut streak).await;
                }
                None => self.shared.pending.notified().await,
            }
        }
    }

    /// Writes one event. If the server is unavailable or throttles, the event is requeued after a backoff.
    async fn write_one(&self, due: Due, streak: &mut Streak) {
        let count = self.shared.backlog().count(&due);
        let error = match self.write(&due, count).await {
            Ok(count) => {
                *streak = Streak::default();
                return self.shared.backlog().written(&due, count);
            }
            Err(error) => error,
        };
        let transient = matches!(error.class(), Class::Throttled | Class::Unavailable);
        if transient && due.event.since.elapsed() < REFRESH_INTERVAL {
            self.shared.backlog().requeue(due);
            sleep(error.delay(streak.record(error.class()))).await;
        } else {
            self.shared.backlog().discard(&due);
            self.shared.drop_events(1, &due.subject.reference, &error.chain());
        }
    }

    /// Counts the events that are still pending at the end as dropped.
    fn stop(&self) {
        let mut backlog = self.shared.backlog();
        let left = backlog.len() as u64;
        if let Some(due) = backlog.next() {
            self.shared.drop_events(left, &due.subject.reference, "process stopped");
        }
    }

    /// Creates an event, or increments its count. Returns the count.
    async fn write(&self, due: &Due, count: i32) -> Result<i32, Error> {
        let name = name(due);
        let namespace = match due.subject.reference.namespace.as_str() {
            "" => "default",
            namespace => namespace,
        };
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        if count > 0 {
            match self.increment(&api, &name, count, due).await {
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
            // An earlier process created it: the name is a hash of the content.
            Err(error) if error.class() == Class::Conflict => {
                let existing = gate.pass("get", format!("Event {name}"), api.get(&name)).await?;
                self.increment(&api, &name, existing.count.unwrap_or(1), due).await
            }
            Err(error) => Err(error),
        }
    }

    async fn increment(&self, api: &Api<Event>, name: &str, count: i32, due: &Due) -> Result<i32, Error> {
        let count = count.saturating_add(1);
        let change = json!({"count": count, "lastTimestamp": Time(due.event.at)});
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        let patch = Patch::Merge(change);
        let Shared { gate, metrics, .. } = &*self.shared;
        let patched = gate.pass("patch", format!("Event {name}"), api.patch(name, &params, &patch)).await;
        metrics.request("patch", "Event", patched.is_ok());
        patched.map(|_| count)
    }

    fn event(&self, Due { subject, event, .. }: &Due, name: &str, namespace: &str) -> Event {
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
            type_: Some(severity(event.note.severity).into()),
            reason: Some(event.note.reason.into()),
            message: Some(event.note.message.clone()),
            count: Some(1),
            event_time: Some(MicroTime(event.at)),
            first_timestamp: Some(Time(event.at)),
            last_timestamp: Some(Time(event.at)),
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

/// The name is a hash of object and content, so that a new process finds the event of an old one.
fn name(Due { subject, event, .. }: &Due) -> String {
    let text = format!("{}\n{}\n{}\n{}", subject.component, subject.uid, event.note.reason, event.note.message);
    // Twice 32 bits of hash, from the two ends.
    let reversed: String = text.chars().rev().collect();
    let object: String = subject.reference.name.chars().take(200).collect();
    format!("{object}.{}{}", kit::hash(&text), kit::hash(&reversed))
}
