//! CRD controllers: accept names, serve the custom resources, and delete all custom objects before a CRD is removed
//! (establishing, naming and finalizing controllers of kube-apiserver).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use serde::Deserialize;
use serde_json::{Value, json};

use super::resource_of;
use crate::error::{Result, Status};
use crate::ops::{Caller, DeleteOptions, ListOptions, Server, Target, WeakServer, WriteOptions};
use crate::registry::crd::{self, Condition};
use crate::store::{EventKind, FieldPaths, Object, Selection, Start, TableKey, Watch};

/// Retry interval after a failure, and while finalizers block a deletion.
const RETRY: Duration = Duration::from_secs(1);

/// Reconciles CRDs into the registry of served resources.
pub(super) struct CrdController {
    server: WeakServer,
    caller: Caller,
    watch: Watch,
    /// Served resources by CRD name.
    served: BTreeMap<String, Served>,
}

/// The resources of one CRD.
struct Served {
    table: TableKey,
    /// The parts of the CRD that they derive from: while unchanged, compiled schemas and rules are kept.
    from: [Value; 3],
}

impl CrdController {
    pub(super) fn new(server: &Server) -> Result<Self> {
        let watch = watch(server)?;
        let caller = Caller::system("kube-apiserver");
        Ok(Self { server: server.downgrade(), caller, watch, served: BTreeMap::new() })
    }

    /// Reconciles the CRDs that existed when the watch started.
    pub(super) async fn reconcile_all(&mut self, server: &Server) {
        for object in std::mem::take(&mut self.watch.initial) {
            self.reconcile(server, &object).await;
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            match self.watch.next().await {
                Some(event) => {
                    let Some(server) = self.server.upgrade() else { return };
                    if event.kind == EventKind::Deleted {
                        self.handle_deleted(&server, event.object.name()).await;
                    } else {
                        self.reconcile(&server, &event.object).await;
                    }
                }
                None => {
                    // The watch was terminated as too slow: relist.
                    let Some(server) = self.server.upgrade() else { return };
                    let Ok(watch) = watch(&server) else { return };
                    self.watch = watch;
                    self.reconcile_all(&server).await;
                }
            }
        }
    }

    /// Reconciles one CRD: its status, its served resources, its deletion.
    async fn reconcile(&mut self, server: &Server, object: &Object) {
        let definition = object.value();
        self.serve(server, object.name(), &definition);
        // Other CRDs matter only until the names are accepted, and reading them is expensive.
        let settled = definition["spec"]["names"] == definition["status"]["acceptedNames"];
        let others = if settled { Vec::new() } else { crds_of_group(server, &definition) };
        if let Some(new) = crd::settle(&definition, &others, &server.clock().rfc3339()) {
            // The status write triggers another event.
            if let Err(status) = write_status(server, &self.caller, &new).await {
                tracing::debug!(%status, crd = object.name(), "CRD status not written; retrying");
            }
        }
        if object.deleting && finalizers(&definition).any(|one| one == crd::CLEANUP) {
            tokio::spawn(clean_up(server.downgrade(), self.caller.clone(), object.name().to_owned()));
        }
    }

    fn serve(&mut self, server: &Server, name: &str, definition: &Value) {
        let from =
            ["Established", "Terminating"].map(|kind| crd::condition(definition, kind).map(|it| it["status"].clone()));
        let from = [
            definition["spec"].clone(),
            definition["status"]["acceptedNames"].clone(),
            from.into_iter().map(Option::unwrap_or_default).collect(),
        ];
        if self.served.get(name).is_some_and(|served| served.from == from) {
            return;
        }
        let resources = crd::resources(definition);
        let Some(first) = resources.first() else { return self.withdraw(server, name) };
        let (table, fields) = (TableKey::of(first), FieldPaths::of(first));
        server.registry().replace(&table.group, &table.plural, resources);
        server.store().reindex(&table, &fields);
        self.served.insert(name.to_owned(), Served { table, from });
    }

    fn withdraw(&mut self, server: &Server, name: &str) {
        if let Some(Served { table, .. }) = self.served.remove(name) {
            server.registry().replace(&table.group, &table.plural, Vec::new());
            server.store().drop_table(&table);
        }
    }

    /// Handles a deleted CRD; others may now be given its names.
    async fn handle_deleted(&mut self, server: &Server, name: &str) {
        self.withdraw(server, name);
        for other in server.store().select(&table(), &Selection::default()) {
            Box::pin(self.reconcile(server, &other)).await;
        }
    }
}

fn table() -> TableKey {
    TableKey::new(crd::GROUP, crd::PLURAL)
}

fn watch(server: &Server) -> Result<Watch> {
    server.store().watch(&table(), Selection::default(), Start::State)
}

/// The CRDs of the same group, names and status only: their schemas are not parsed.
fn crds_of_group(server: &Server, definition: &Value) -> Vec<Value> {
    #[derive(Deserialize)]
    struct Names {
        #[serde(default)]
        status: Accepted,
    }
    #[derive(Default, Deserialize)]
    struct Accepted {
        #[serde(default, rename = "acceptedNames")]
        names: Value,
    }
    let group = &definition["spec"]["group"];
    let suffix = format!(".{}", group.as_str().unwrap_or_default());
    let objects = server.store().select(&table(), &Selection::default());
    let objects = objects.iter().filter(|object| object.name().ends_with(&suffix));
    objects
        .filter_map(|object| {
            let names: Names = object.parse().ok()?;
            let status = json!({"acceptedNames": names.status.names});
            Some(json!({"metadata": {"name": object.name()}, "spec": {"group": group}, "status": status}))
        })
        .collect()
}

fn finalizers(definition: &Value) -> impl Iterator<Item = &str> {
    definition["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn target(server: &Server, name: &str, subresource: &str) -> Result<Target> {
    let resource = server.registry().lookup(crd::GROUP, "v1", crd::PLURAL).ok_or_else(Status::no_such_resource)?;
    let target = Target::one(resource, None, name);
    Ok(if subresource.is_empty() { target } else { target.sub(subresource) })
}

async fn write_status(server: &Server, caller: &Caller, definition: &Value) -> Result<()> {
    let name = definition["metadata"]["name"].as_str().unwrap_or_default();
    let target = target(server, name, "status")?;
    server.update(caller, &target, definition.clone().into(), &WriteOptions::default()).await.map(drop)
}

/// Deletes the objects of a terminating CRD, then removes its finalizer.
async fn clean_up(server: WeakServer, caller: Caller, name: String) {
    loop {
        let Some(server) = server.upgrade() else { return };
        match clean_up_once(&server, &caller, &name).await {
            Ok(true) => return,
            Ok(false) => {}
            Err(status) => tracing::debug!(%status, crd = name, "objects of a CRD not deleted; retrying"),
        }
        drop(server);
        tokio::time::sleep(RETRY).await;
    }
}

/// One attempt; whether the CRD is finalized.
async fn clean_up_once(server: &Server, caller: &Caller, name: &str) -> Result<bool> {
    let Some(object) = server.store().get(&table(), "", name).filter(|object| object.deleting) else { return Ok(true) };
    let mut definition = object.value();
    if !finalizers(&definition).any(|one| one == crd::CLEANUP) {
        return Ok(true);
    }
    let Some(outcome) = delete_objects(server, caller, &definition).await? else { return Ok(false) };
    crd::set_condition(&mut definition, &outcome, &server.clock().rfc3339());
    let options = WriteOptions::default();
    let written = server.update(caller, &target(server, name, "status")?, definition.into(), &options).await?;
    let mut definition = written.object.value();
    let kept: Vec<Value> = finalizers(&definition).filter(|one| *one != crd::CLEANUP).map(Value::from).collect();
    definition["metadata"]["finalizers"] = kept.into();
    server.update(caller, &target(server, name, "")?, definition.into(), &options).await?;
    Ok(true)
}

/// The final condition once all objects are deleted; `None` while some remain.
async fn delete_objects(server: &Server, caller: &Caller, definition: &Value) -> Result<Option<Condition<'static>>> {
    let plural = definition["spec"]["names"]["plural"].as_str().unwrap_or_default();
    let table = TableKey::new(definition["spec"]["group"].as_str().unwrap_or_default(), plural);
    let Some(resource) = resource_of(server, &table) else {
        let message = "resource was never established";
        return Ok(Some(Condition::new("Terminating", false, "NeverEstablished", message)));
    };
    let target = Target::all(resource, None);
    server.delete_collection(caller, &target, &ListOptions::default(), &DeleteOptions::default()).await?;
    let left: Vec<Arc<Object>> = server.store().select(&table, &Selection::default());
    let done = || Condition::new("Terminating", false, "InstanceDeletionCompleted", "removed all instances");
    Ok(left.is_empty().then(done))
}
