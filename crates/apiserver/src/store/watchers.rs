//! The watchers of a table, indexed by what they select: an event is offered only to watchers that may match it, so
//! that five thousand nodes that each watch their own pods cost no more than one watcher of all pods.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::{Event, EventKind, Object, Selection};

/// Index key of a watcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Bucket {
    All,
    Namespace(Box<str>),
    Name(Box<str>),
    Field(Box<str>, Box<str>),
}

impl Bucket {
    /// The narrowest bucket that receives every event of the selection.
    pub(super) fn of(selection: &Selection) -> Self {
        if let Some(name) = selection.fields.required("metadata.name") {
            Self::Name(name.into())
        } else if let Some((path, value)) = selection.fields.any_required() {
            Self::Field(path.into(), value.into())
        } else if let Some(namespace) = selection.only_namespace() {
            Self::Namespace(namespace.into())
        } else {
            Self::All
        }
    }
}

#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) id: u64,
    pub(super) selection: Selection,
    pub(super) queue: mpsc::Sender<Event>,
}

type Buckets = HashMap<Box<str>, Vec<Watcher>>;

#[derive(Debug, Default)]
pub(super) struct Watchers {
    all: Vec<Watcher>,
    namespaces: Buckets,
    names: Buckets,
    fields: HashMap<Box<str>, Buckets>,
}

impl Watchers {
    pub(super) fn len(&self) -> usize {
        let count = |buckets: &Buckets| buckets.values().map(Vec::len).sum::<usize>();
        self.all.len() + count(&self.namespaces) + count(&self.names) + self.fields.values().map(count).sum::<usize>()
    }

    pub(super) fn add(&mut self, bucket: Bucket, watcher: Watcher) {
        match bucket {
            Bucket::All => self.all.push(watcher),
            Bucket::Namespace(namespace) => self.namespaces.entry(namespace).or_default().push(watcher),
            Bucket::Name(name) => self.names.entry(name).or_default().push(watcher),
            Bucket::Field(path, value) => self.fields.entry(path).or_default().entry(value).or_default().push(watcher),
        }
    }

    pub(super) fn remove(&mut self, bucket: &Bucket, id: u64) {
        match bucket {
            Bucket::All => self.all.retain(|watcher| watcher.id != id),
            Bucket::Namespace(namespace) => remove(&mut self.namespaces, namespace, id),
            Bucket::Name(name) => remove(&mut self.names, name, id),
            Bucket::Field(path, value) => {
                if let Some(buckets) = self.fields.get_mut(path) {
                    remove(buckets, value, id);
                    if buckets.is_empty() {
                        self.fields.remove(path);
                    }
                }
            }
        }
    }

    /// Delivers an event to all watchers whose selection matches.
    pub(super) fn send(&mut self, event: &Event) {
        let gone = OnceCell::new();
        let show = |watchers: Option<&mut Vec<Watcher>>| {
            if let Some(watchers) = watchers {
                watchers.retain(|watcher| deliver(watcher, event, &gone));
            }
        };
        show(Some(&mut self.all));
        if !self.namespaces.is_empty() {
            show(self.namespaces.get_mut(event.object.namespace()));
        }
        if !self.names.is_empty() {
            show(self.names.get_mut(event.object.name()));
        }
        for (path, buckets) in &mut self.fields {
            let now = event.object.fields.get(path).unwrap_or_default();
            let before = event.previous.as_ref().map(|previous| previous.fields.get(path).unwrap_or_default());
            show(buckets.get_mut(now));
            if let Some(before) = before.filter(|before| *before != now) {
                show(buckets.get_mut(before));
            }
        }
    }
}

fn remove(buckets: &mut Buckets, value: &str, id: u64) {
    if let Some(watchers) = buckets.get_mut(value) {
        watchers.retain(|watcher| watcher.id != id);
        if watchers.is_empty() {
            buckets.remove(value);
        }
    }
}

/// Delivers an event to a watcher if it matches. False: the watcher was dropped or lags too far behind, and is removed.
fn deliver(watcher: &Watcher, event: &Event, gone: &OnceCell<Arc<Object>>) -> bool {
    match filter_event(&watcher.selection, event, gone) {
        Some(event) => watcher.queue.try_send(event).is_ok(),
        None => true,
    }
}

/// Translates an event for a selection: an object that starts to match is added, one that no longer matches is deleted,
/// with its last matching state. `gone` caches that state for other watchers of the same event.
pub(super) fn filter_event(selection: &Selection, event: &Event, gone: &OnceCell<Arc<Object>>) -> Option<Event> {
    let before = event.previous.as_ref().is_some_and(|previous| selection.matches(previous));
    let now = event.kind != EventKind::Deleted && selection.matches(&event.object);
    let kind = match (before, now) {
        (false, false) => return None,
        (false, true) => EventKind::Added,
        (true, true) => EventKind::Modified,
        (true, false) => EventKind::Deleted,
    };
    let object = match &event.previous {
        Some(previous) if kind == EventKind::Deleted && event.kind != EventKind::Deleted => {
            gone.get_or_init(|| Arc::new(previous.at(event.object.revision))).clone()
        }
        _ => event.object.clone(),
    };
    Some(Event { kind, object, previous: event.previous.clone() })
}
