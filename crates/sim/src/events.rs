//! Event recorder. Repeats are counted and floods rate-limited, as client-go does.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use capstan_apiserver::clock::Clock;
use capstan_apiserver::ops::PatchKind;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::json;
use tokio::sync::mpsc;

use crate::context::Tasks;
use crate::correlate::{Correlator, ObservedEvent, Plan};
use crate::informer::Kind;
use crate::writer::{Writer, is_not_found};

/// Capacity of the write queue; on overflow events are dropped.
const QUEUE_CAPACITY: usize = 4096;

/// Type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// `Normal`.
    Normal,
    /// `Warning`.
    Warning,
}

impl Severity {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Queue of events to write. Clones share one state.
#[derive(Clone)]
pub(crate) struct EventSink {
    queue: Option<mpsc::Sender<Report>>,
    last: Arc<AtomicI64>,
}

/// Records events of one component.
#[derive(Clone)]
pub struct Recorder {
    sink: EventSink,
    component: Arc<str>,
    host: Arc<str>,
    clock: Clock,
}

struct Report {
    about: ObjectReference,
    severity: Severity,
    reason: Cow<'static, str>,
    message: String,
    component: Arc<str>,
    host: Arc<str>,
    at: Timestamp,
    nanos: i64,
}

impl EventSink {
    pub(crate) fn start(writer: Writer, tasks: &Tasks) -> Self {
        let (queue, reports) = mpsc::channel(QUEUE_CAPACITY);
        tasks.spawn(write_all(writer, reports));
        Self { queue: Some(queue), last: Arc::default() }
    }

    /// A sink that drops all events.
    pub(crate) fn disabled() -> Self {
        Self { queue: None, last: Arc::default() }
    }

    pub(crate) fn recorder(&self, component: &str, host: &str, clock: Clock) -> Recorder {
        Recorder { sink: self.clone(), component: component.into(), host: host.into(), clock }
    }

    /// A unique time in nanoseconds, also while virtual time is paused: part of the event name.
    fn unique(&self, at: Timestamp) -> i64 {
        let now = i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX);
        let before = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(now.max(last + 1)));
        before.map_or(now, |last| now.max(last + 1))
    }
}

impl Recorder {
    /// Records an event about an object. It is written asynchronously.
    pub fn event<K: Kind>(
        &self,
        about: &K,
        severity: Severity,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) {
        self.event_on(reference(about), severity, reason, message);
    }

    /// Records an event about a reference, for instance a container of a pod.
    pub fn event_on(
        &self,
        about: ObjectReference,
        severity: Severity,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) {
        let Some(queue) = &self.sink.queue else { return };
        let at = self.clock.now();
        let report = Report {
            about,
            severity,
            reason: reason.into(),
            message: message.into(),
            component: self.component.clone(),
            host: self.host.clone(),
            at,
            nanos: self.sink.unique(at),
        };
        // A full queue loses the event.
        let _ = queue.try_send(report);
    }
}

/// The involved object of an event.
pub fn reference<K: Kind>(object: &K) -> ObjectReference {
    let meta = object.metadata();
    ObjectReference {
        api_version: Some(K::API_VERSION.to_owned()),
        kind: Some(K::KIND.to_owned()),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        field_path: None,
    }
}

async fn write_all(writer: Writer, mut reports: mpsc::Receiver<Report>) {
    let mut correlator = Correlator::default();
    while let Some(report) = reports.recv().await {
        let Some(plan) = correlator.correlate(&observed_event(&report)) else { continue };
        if let Err(error) = write(&writer, &mut correlator, plan, report).await {
            tracing::debug!(%error, "event dropped");
        }
        // Other components share this thread.
        tokio::task::yield_now().await;
    }
}

fn observed_event(report: &Report) -> ObservedEvent<'_> {
    let about = &report.about;
    let text = |text: &'_ Option<String>| text.clone().unwrap_or_default();
    let [kind, namespace, name, uid, version] =
        [&about.kind, &about.namespace, &about.name, &about.uid, &about.api_version].map(text);
    ObservedEvent {
        source: [&*report.component, &*report.host, &kind, &namespace, &name, &uid, &version].join("\0"),
        field_path: about.field_path.as_deref().unwrap_or_default(),
        reason: [report.severity.as_str(), &*report.reason].join("\0"),
        message: &report.message,
        at: report.at,
    }
}

async fn write(
    writer: &Writer,
    correlator: &mut Correlator,
    plan: Plan,
    mut report: Report,
) -> capstan_apiserver::error::Result<()> {
    report.message = plan.combined.unwrap_or(report.message);
    let namespace = report.about.namespace.clone().unwrap_or_else(|| "default".to_owned());
    if let Some(name) = &plan.name {
        let body = json!({"count": plan.count, "lastTimestamp": Time(report.at), "message": report.message});
        let patched = writer.patch::<Event>(Some(&namespace), name, None, PatchKind::Merge, body).await.map(drop);
        match patched {
            Err(error) if is_not_found(&error) => {}
            other => return other,
        }
    }
    let event = event(report, &namespace, plan.count);
    let name = event.metadata.name.clone().unwrap_or_default();
    writer.create(&event).await?;
    correlator.record_written(plan.key, name);
    Ok(())
}

fn event(report: Report, namespace: &str, count: i32) -> Event {
    let about = report.about.name.as_deref().unwrap_or_default();
    let source = EventSource { component: Some(report.component.to_string()), host: some(&report.host) };
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{about}.{:x}", report.nanos)),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: report.about,
        reason: Some(report.reason.into_owned()),
        message: Some(report.message),
        source: Some(source),
        first_timestamp: Some(Time(report.at)),
        last_timestamp: Some(Time(report.at)),
        count: Some(count),
        type_: Some(report.severity.as_str().to_owned()),
        reporting_component: Some(report.component.to_string()),
        reporting_instance: Some(report.host.to_string()),
        ..Event::default()
    }
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}
