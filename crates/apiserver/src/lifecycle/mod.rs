//! Controllers that belong to the API server: garbage collection, namespace deletion, and serving
//! CustomResourceDefinitions.

mod definitions;
mod garbage;
mod namespace;

use std::sync::Arc;

use serde_json::json;
use tokio::task::JoinHandle;

use crate::error::Result;
use crate::ops::{Caller, Server, Target, UserInfo, WriteOptions};
use crate::registry::Resource;
use crate::store::{Object, TableKey};

/// Namespaces that every cluster has.
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// The background controllers of a server. They stop when this is dropped.
#[derive(Debug)]
pub struct Lifecycle {
    tasks: Vec<JoinHandle<()>>,
}

impl Lifecycle {
    /// Creates the standard namespaces and starts the controllers.
    pub async fn start(server: &Server) -> Result<Self> {
        // Before the first write, so that no event is missed.
        let garbage = garbage::GarbageCollector::new(server);
        let namespaces = namespace::NamespaceController::new(server)?;
        let mut definitions = definitions::CrdController::new(server)?;
        // Other controllers depend on which resources are served.
        definitions.reconcile_all(server).await;
        create_namespaces(server).await?;
        let tasks = vec![tokio::spawn(garbage.run()), tokio::spawn(namespaces.run()), tokio::spawn(definitions.run())];
        Ok(Self { tasks })
    }
}

impl Drop for Lifecycle {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

async fn create_namespaces(server: &Server) -> Result<()> {
    let Some(resource) = server.registry().lookup("", "v1", "namespaces") else { return Ok(()) };
    let (caller, options) = (Caller::system("kube-apiserver"), WriteOptions::default());
    for name in NAMESPACES {
        let body = json!({"metadata": {"name": name}});
        match server.create(&caller, &Target::all(resource.clone(), None), body.into(), &options).await {
            Ok(_) => {}
            Err(status) if status.reason == "AlreadyExists" => {}
            Err(status) => return Err(status),
        }
    }
    Ok(())
}

/// The caller identity of a controller's service account.
fn controller(account: &str) -> Caller {
    Caller { user: UserInfo::service_account("kube-system", account, ""), user_agent: "kube-controller-manager".into() }
}

/// A served version of a table's resource: the storage version, if it is served.
fn resource_of(server: &Server, table: &TableKey) -> Option<Arc<Resource>> {
    let snapshot = server.registry().snapshot();
    let mut versions = snapshot.versions(&table.group, &table.plural);
    let first = versions.next()?;
    let stored = |one: &&Arc<Resource>| one.version == one.storage_version;
    Some(if stored(&first) { first.clone() } else { versions.find(stored).unwrap_or(first).clone() })
}

/// The request target of a stored object.
fn target_of(resource: Arc<Resource>, object: &Object) -> Target {
    let namespace = Some(object.namespace()).filter(|namespace| !namespace.is_empty());
    Target::one(resource, namespace, object.name())
}

#[cfg(test)]
mod tests;
