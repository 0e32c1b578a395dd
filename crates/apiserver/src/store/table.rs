//! The objects of one resource, with event log, indexes and watchers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::log::Log;
use super::watchers::Watchers;
use super::{Event, EventKind, FieldPaths, Object, Retention, TableKey};

/// Indexed fields, so that lists by their values cost only what they return: kubelets list the pods of their node, and
/// `kubectl describe` lists the events of an object.
const INDEXED: [&str; 2] = ["spec.nodeName", "involvedObject.uid"];

#[derive(Debug)]
pub(super) struct Table {
    pub(super) key: TableKey,
    pub(super) objects: BTreeMap<Arc<str>, Arc<Object>>,
    pub(super) log: Log,
    pub(super) watchers: Watchers,
    /// Per indexed field: value to keys.
    indexes: [HashMap<Box<str>, BTreeSet<Arc<str>>>; INDEXED.len()],
}

impl Table {
    pub(super) fn new(key: TableKey, floor: u64) -> Self {
        let (objects, indexes) = (BTreeMap::new(), Default::default());
        Self { key, objects, log: Log::new(floor), watchers: Watchers::default(), indexes }
    }

    /// Stores a new state, appends the event to the log and delivers it to the watchers.
    pub(super) fn commit(&mut self, event: Event, retention: &Retention) {
        if let Some(previous) = &event.previous {
            self.unindex(previous);
        }
        if event.kind == EventKind::Deleted {
            self.objects.remove(&**event.object.key());
        } else {
            self.index(&event.object);
            self.objects.insert(event.object.key().clone(), event.object.clone());
        }
        self.watchers.send(&event);
        self.log.push(event, retention);
    }

    /// Inserts an object that was loaded from disk, without an event.
    pub(super) fn restore(&mut self, object: Arc<Object>) {
        self.index(&object);
        self.objects.insert(object.key().clone(), object);
    }

    /// Keys of all objects with that value in that field, if the field is indexed.
    pub(super) fn indexed(&self, path: &str, value: &str) -> Option<impl Iterator<Item = &Arc<str>>> {
        let at = INDEXED.iter().position(|indexed| *indexed == path)?;
        Some(self.indexes[at].get(value).into_iter().flatten())
    }

    pub(super) fn reindex(&mut self, fields: &FieldPaths) {
        for index in &mut self.indexes {
            index.clear();
        }
        let objects: Vec<_> = self.objects.values().map(|object| Arc::new(object.reindexed(fields))).collect();
        for object in objects {
            self.restore(object);
        }
    }

    fn index(&mut self, object: &Object) {
        for (path, index) in INDEXED.iter().zip(&mut self.indexes) {
            let Some(value) = object.fields.get(path) else { continue };
            match index.get_mut(value) {
                Some(keys) => keys.insert(object.key().clone()),
                None => index.entry(value.into()).or_default().insert(object.key().clone()),
            };
        }
    }

    fn unindex(&mut self, object: &Object) {
        for (path, index) in INDEXED.iter().zip(&mut self.indexes) {
            let Some(value) = object.fields.get(path) else { continue };
            if let Some(keys) = index.get_mut(value) {
                keys.remove(&**object.key());
                if keys.is_empty() {
                    index.remove(value);
                }
            }
        }
    }
}
