//! Events: what users see under `kubectl describe`.
//!
//! The same note about the same object is one event with a count, and is written again only when something else was
//! said in between or a while has passed. Nothing waits for an event to be written; too many are dropped and counted.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use capstan_plan::{Note, Ref, Severity, kit};
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::error::{Class, Error};
use crate::gate::Gate;
use crate::metrics::Metrics;
use crate::writer::FIELD_MANAGER;

/// A note that goes on to hold is written again after this time, well before the server forgets the event.
const REMIND: Duration = Duration::from_secs(20 * 60);

/// How many events one object may have in a burst, and how soon it may have one more.
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_secs(60);

/// Objects that are remembered, and notes that may wait to be written.
const REMEMBERED: usize = 4096;
const WAITING: usize = 1024;

/// Records events. Clones share one state.
#[derive(Clone)]
pub struct Events {
    sender: mpsc::Sender<Said>,
    component: Arc<str>,
    metrics: Metrics,
}

/// What was said about an object in one go.
struct Said {
    component: Arc<str>,
    reference: Ref,
    uid: String,
    notes: Vec<Note>,
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
        let (sender, receiver) = mpsc::channel(WAITING);
        let scribe =
            Scribe { client, gate, metrics: metrics.clone(), clock, instance: instance.into(), memory: HashMap::new() };
        tokio::spawn(async move { stop.run_until_cancelled(scribe.run(receiver)).await });
        Self { sender, component: component.into(), metrics }
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
        let said = Said {
            component: self.component.clone(),
            reference: reference.clone(),
            uid: uid.into(),
            notes: notes.to_vec(),
        };
        if self.sender.try_send(said).is_err() && !notes.is_empty() {
            self.metrics.event_dropped();
        }
    }
}

/// Writes what was said.
struct Scribe {
    client: Client,
    gate: Gate,
    metrics: Metrics,
    clock: Clock,
    instance: String,
    /// By component and uid.
    memory: HashMap<(Arc<str>, String), Memory>,
}

/// What was said about an object.
struct Memory {
    events: BTreeMap<String, Written>,
    /// What was said the last time.
    last: BTreeSet<String>,
    left: u32,
    refilled: Instant,
    touched: Instant,
}

#[derive(Clone)]
struct Written {
    count: i32,
    at: Instant,
}

impl Scribe {
    async fn run(mut self, mut receiver: mpsc::Receiver<Said>) {
        while let Some(said) = receiver.recv().await {
            self.hear(said).await;
        }
    }

    async fn hear(&mut self, said: Said) {
        if !self.gate.is_open() {
            return;
        }
        let about = (said.component.clone(), said.uid.clone());
        if said.notes.is_empty() {
            // What is said next is news, even if it was said before.
            if let Some(memory) = self.memory.get_mut(&about) {
                memory.last.clear();
            }
            return;
        }
        let now = Instant::now();
        self.make_room();
        let memory = self.memory.entry(about).or_insert_with(|| Memory {
            events: BTreeMap::new(),
            last: BTreeSet::new(),
            left: BURST,
            refilled: now,
            touched: now,
        });
        memory.touched = now;
        let refills = now.duration_since(memory.refilled).as_secs() / REFILL.as_secs();
        if refills > 0 {
            memory.left = BURST.min(memory.left.saturating_add(refills.try_into().unwrap_or(BURST)));
            memory.refilled = now;
        }
        let mut due = Vec::new();
        let mut names = BTreeSet::new();
        for note in &said.notes {
            let name = name(&said, note);
            let again = memory.last.contains(&name);
            let reminded = memory.events.get(&name).is_some_and(|written| now.duration_since(written.at) < REMIND);
            if !(again && reminded) && names.insert(name.clone()) {
                if memory.left == 0 {
                    self.metrics.event_dropped();
                } else {
                    memory.left -= 1;
                    let count = memory.events.get(&name).map_or(0, |written| written.count);
                    due.push((name.clone(), note.clone(), count));
                }
            }
            names.insert(name);
        }
        memory.last = names;
        for (name, note, count) in due {
            match self.write(&said, &note, &name, count).await {
                Ok(count) => self.remember(&said, name, count),
                Err(error) => tracing::debug!(object = %said.reference, error = error.chain(), "event not recorded"),
            }
        }
    }

    fn remember(&mut self, said: &Said, name: String, count: i32) {
        if let Some(memory) = self.memory.get_mut(&(said.component.clone(), said.uid.clone())) {
            memory.events.retain(|_, written| written.at.elapsed() < 3 * REMIND);
            memory.events.insert(name, Written { count, at: Instant::now() });
        }
    }

    /// Forgets the objects that were silent for the longest.
    fn make_room(&mut self) {
        if self.memory.len() < REMEMBERED {
            return;
        }
        let mut touched: Vec<_> = self.memory.values().map(|memory| memory.touched).collect();
        touched.sort_unstable();
        let middle = touched[touched.len() / 2];
        self.memory.retain(|_, memory| memory.touched > middle);
    }

    /// Writes an event, or counts it up. Returns its count.
    async fn write(&self, said: &Said, note: &Note, name: &str, count: i32) -> Result<i32, Error> {
        let namespace = match said.reference.namespace.as_str() {
            "" => "default",
            namespace => namespace,
        };
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        if count > 0 {
            match self.count_up(&api, name, count).await {
                Err(error) if error.class() == Class::NotFound => {}
                other => return other,
            }
        }
        let event = self.event(said, note, name, namespace);
        let params = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
        let created = self.gate.pass("create", format!("Event {name}"), api.create(&params, &event)).await;
        self.metrics.request("create", "Event", created.is_ok());
        match created {
            Ok(_) => Ok(1),
            // A process before us wrote it; names follow from what is said.
            Err(error) if error.class() == Class::Conflict => {
                let there = api.get(name).await.map_err(|error| Error::request("get", name, error))?;
                self.count_up(&api, name, there.count.unwrap_or(1)).await
            }
            Err(error) => Err(error),
        }
    }

    async fn count_up(&self, api: &Api<Event>, name: &str, count: i32) -> Result<i32, Error> {
        let count = count.saturating_add(1);
        let change = json!({"count": count, "lastTimestamp": Time(self.clock.now())});
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        let patch = Patch::Merge(change);
        let patched = self.gate.pass("patch", format!("Event {name}"), api.patch(name, &params, &patch)).await;
        self.metrics.request("patch", "Event", patched.is_ok());
        patched.map(|_| count)
    }

    fn event(&self, said: &Said, note: &Note, name: &str, namespace: &str) -> Event {
        let now = self.clock.now();
        let Ref { gvk, namespace: place, name: object } = &said.reference;
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
                uid: Some(said.uid.clone()),
                ..ObjectReference::default()
            },
            type_: Some(severity(note.severity).into()),
            reason: Some(note.reason.into()),
            message: Some(cut(&note.message)),
            count: Some(1),
            event_time: Some(MicroTime(now)),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            action: Some("Reconcile".into()),
            source: Some(EventSource { component: Some(said.component.to_string()), host: None }),
            reporting_component: Some(said.component.to_string()),
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
fn name(said: &Said, note: &Note) -> String {
    let text = format!("{}\n{}\n{}\n{}", said.component, said.uid, note.reason, note.message);
    // Twice 32 bits of hash, from the two ends.
    let reversed: String = text.chars().rev().collect();
    let object: String = said.reference.name.chars().take(200).collect();
    format!("{object}.{}{}", kit::hash(&text), kit::hash(&reversed))
}

/// Servers refuse a message of more than 1024 bytes.
fn cut(message: &str) -> String {
    const LIMIT: usize = 1024;
    if message.len() <= LIMIT {
        return message.into();
    }
    let end = (0..=LIMIT - '…'.len_utf8()).rev().find(|index| message.is_char_boundary(*index)).unwrap_or(0);
    format!("{}…", &message[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_between_letters() {
        let cut = cut(&"ä".repeat(1000));
        assert!(cut.len() <= 1024 && cut.ends_with('…'));
        assert_eq!(super::cut("short"), "short");
    }
}
