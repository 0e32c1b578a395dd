//! Namespace controller: deletes the pods of a terminating namespace, then everything else, then finalizes it.
//! Conditions report what remains.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{FuturesUnordered, select_all};
use serde_json::{Value, json};

use super::{controller, resource_of, target_of};
use crate::error::{Result, Status};
use crate::ops::{Caller, DeleteOptions, Propagation, Server, Target, WeakServer, WriteOptions};
use crate::store::{EventKind, Object, Selection, Start, TableKey, Watch};

const KUBERNETES_FINALIZER: &str = "kubernetes";
/// Retry interval after a failure.
const RETRY: Duration = Duration::from_secs(1);

pub(super) struct NamespaceController {
    server: WeakServer,
    caller: Caller,
    namespaces: Watch,
}

impl NamespaceController {
    pub(super) fn new(server: &Server) -> Result<Self> {
        let namespaces = watch_namespaces(server)?;
        Ok(Self { server: server.downgrade(), caller: controller("namespace-controller"), namespaces })
    }

    pub(super) async fn run(mut self) {
        let mut known: BTreeSet<Arc<str>> = BTreeSet::new();
        let mut emptying = FuturesUnordered::new();
        let mut initial = std::mem::take(&mut self.namespaces.initial);
        loop {
            for object in initial.drain(..).filter(|object| object.deleting) {
                if known.insert(object.uid.clone()) {
                    emptying.push(empty(self.server.clone(), self.caller.clone(), object));
                }
            }
            tokio::select! {
                event = self.namespaces.next() => match event {
                    Some(event) if event.kind != EventKind::Deleted => initial.push(event.object),
                    Some(_) => {}
                    None => {
                        // The watch was terminated as too slow: relist.
                        let Some(server) = self.server.upgrade() else { return };
                        let Ok(watch) = watch_namespaces(&server) else { return };
                        self.namespaces = watch;
                        initial = std::mem::take(&mut self.namespaces.initial);
                    }
                },
                Some(uid) = emptying.next() => { known.remove(&uid); }
            }
        }
    }
}

fn watch_namespaces(server: &Server) -> Result<Watch> {
    server.store().watch(&TableKey::new("", "namespaces"), Selection::default(), Start::State)
}

/// Empties one namespace until it is removed. Returns its UID.
async fn empty(server: WeakServer, caller: Caller, namespace: Arc<Object>) -> Arc<str> {
    let (name, uid) = (namespace.name().to_owned(), namespace.uid.clone());
    drop(namespace);
    loop {
        let Some(server) = server.upgrade() else { return uid };
        match step(&server, &caller, &name, &uid).await {
            Ok(Next::Done) => return uid,
            Ok(Next::Wait(mut changes)) => {
                drop(server);
                // The timeout is a resync in case an event is missed.
                let _ = tokio::time::timeout(RETRY * 30, changes.next()).await;
            }
            Err(status) => {
                drop(server);
                tracing::debug!(%status, namespace = name, "namespace not emptied; retrying");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

enum Next {
    Done,
    /// Continue when something in the namespace is deleted.
    Wait(futures::stream::BoxStream<'static, ()>),
}

async fn step(server: &Server, caller: &Caller, name: &str, uid: &str) -> Result<Next> {
    let namespaces = server.registry().lookup("", "v1", "namespaces").ok_or_else(Status::no_such_resource)?;
    let target = Target::one(namespaces, None, name);
    let Some(object) = server.store().get(&TableKey::new("", "namespaces"), "", name) else { return Ok(Next::Done) };
    if &*object.uid != uid || !object.deleting {
        return Ok(Next::Done);
    }
    let tables = tables(server);
    // Watch before deleting, so that no deletion is missed.
    let changes = tables
        .iter()
        .filter_map(|table| server.store().watch(table, Selection::namespace(name), Start::Now).ok())
        .map(|watch| watch.filter_map(|event| async move { (event.kind == EventKind::Deleted).then_some(()) }).boxed());
    let changes = select_all(changes.collect::<Vec<_>>()).boxed();
    delete_content(server, caller, &tables, name).await?;
    let remaining = remaining(server, &tables, name);
    report(server, caller, &target, &remaining).await?;
    if !remaining.counts.is_empty() {
        return Ok(Next::Wait(changes));
    }
    finalize(server, caller, &target).await?;
    Ok(Next::Done)
}

/// The tables of namespaced resources.
fn tables(server: &Server) -> Vec<TableKey> {
    let snapshot = server.registry().snapshot();
    let stored = snapshot.iter().filter(|one| one.namespaced && one.serves("delete") && one.serves("list"));
    let tables: BTreeSet<TableKey> = stored.map(|one| TableKey::of(one)).collect();
    tables.into_iter().collect()
}

/// Deletes pods, and everything else once no pods are left: pods may depend on the rest.
async fn delete_content(server: &Server, caller: &Caller, tables: &[TableKey], namespace: &str) -> Result<()> {
    let pods = TableKey::new("", "pods");
    delete_all(server, caller, &pods, namespace).await?;
    if !server.store().select(&pods, &Selection::namespace(namespace)).is_empty() {
        return Ok(());
    }
    for table in tables {
        delete_all(server, caller, table, namespace).await?;
    }
    Ok(())
}

async fn delete_all(server: &Server, caller: &Caller, table: &TableKey, namespace: &str) -> Result<()> {
    let objects = server.store().select(table, &Selection::namespace(namespace));
    let Some(resource) = resource_of(server, table) else { return Ok(()) };
    let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
    for object in objects.iter().filter(|object| !object.deleting) {
        match server.delete(caller, &target_of(resource.clone(), object), &options).await {
            Ok(_) | Err(Status { code: 404 | 409, .. }) => {}
            Err(status) => return Err(status),
        }
    }
    Ok(())
}

/// Remaining content of a namespace.
#[derive(Default)]
struct Remaining {
    /// By resource, such as `pods.`.
    counts: BTreeMap<String, usize>,
    /// By finalizer.
    finalizers: BTreeMap<String, usize>,
}

fn remaining(server: &Server, tables: &[TableKey], namespace: &str) -> Remaining {
    let mut remaining = Remaining::default();
    for table in tables {
        let objects = server.store().select(table, &Selection::namespace(namespace));
        if objects.is_empty() {
            continue;
        }
        remaining.counts.insert(format!("{}.{}", table.plural, table.group), objects.len());
        for object in objects {
            for finalizer in object.value()["metadata"]["finalizers"].as_array().into_iter().flatten() {
                *remaining.finalizers.entry(finalizer.as_str().unwrap_or_default().to_owned()).or_default() += 1;
            }
        }
    }
    remaining
}

/// Reports the remaining content in conditions.
async fn report(server: &Server, caller: &Caller, target: &Target, remaining: &Remaining) -> Result<()> {
    let list = |all: &BTreeMap<String, usize>, word: &str| {
        let all = all.iter().map(|(what, count)| format!("{what} {word} {count} resource instances"));
        all.collect::<Vec<_>>().join(", ")
    };
    let content = match remaining.counts.is_empty() {
        true => ("False", "ContentRemoved", "All content successfully removed".to_owned()),
        false => {
            ("True", "SomeResourcesRemain", format!("Some resources are remaining: {}", list(&remaining.counts, "has")))
        }
    };
    let finalizers = match remaining.finalizers.is_empty() {
        true => ("False", "ContentHasNoFinalizers", "All content-preserving finalizers finished".to_owned()),
        false => {
            let which = list(&remaining.finalizers, "in");
            let message = format!("Some content in the namespace has finalizers remaining: {which}");
            ("True", "SomeFinalizersRemain", message)
        }
    };
    let fine = |reason, message: &str| ("False", reason, message.to_owned());
    let conditions = [
        ("NamespaceDeletionDiscoveryFailure", fine("ResourcesDiscovered", "All resources successfully discovered")),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            fine("ParsedGroupVersions", "All legacy kube types successfully parsed"),
        ),
        (
            "NamespaceDeletionContentFailure",
            fine("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
        ),
        ("NamespaceContentRemaining", content),
        ("NamespaceFinalizersRemaining", finalizers),
    ];
    let mut object = server.get(caller, target, &Default::default()).await?.value();
    let now = server.clock().rfc3339();
    let before = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let after = conditions.map(|(kind, (status, reason, message))| {
        let same = before.iter().find(|one| one["type"] == kind && one["status"] == status);
        let since = same.map_or_else(|| json!(now), |one| one["lastTransitionTime"].clone());
        json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since})
    });
    object["status"]["conditions"] = Value::from(after.to_vec());
    server.update(caller, &target.clone().sub("status"), object.into(), &WriteOptions::default()).await?;
    Ok(())
}

/// Removes the `kubernetes` finalizer of an empty namespace.
async fn finalize(server: &Server, caller: &Caller, target: &Target) -> Result<()> {
    let mut object = server.get(caller, target, &Default::default()).await?.value();
    if let Some(finalizers) = object["spec"]["finalizers"].as_array_mut() {
        finalizers.retain(|one| one != KUBERNETES_FINALIZER);
    }
    server.update(caller, &target.clone().sub("finalize"), object.into(), &WriteOptions::default()).await?;
    Ok(())
}
