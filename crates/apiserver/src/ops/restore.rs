//! Writes past admission, validation and managed fields: for a copy of a cluster that is to be tried out, and for thousands
//! of nodes that are played in this process.

use std::sync::Arc;

use serde_json::Value;

use super::convert::store_value;
use super::{Server, Target};
use crate::error::{Result, Status};
use crate::registry;
use crate::store::{Clash, Object};

impl Server {
    /// Stores an object as it is. One of the same name that is there already stays; then the answer is `false`.
    pub fn restore(&self, object: &Value) -> Result<bool> {
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        let (group, version) = registry::group_version(text("apiVersion"));
        let Some(resource) = self.registry().by_kind(group, version, text("kind")) else {
            return Err(Status::bad_request(format!("no kind {} in {}", text("kind"), text("apiVersion"))));
        };
        let profile = self.profile(&resource);
        let stored = Object::new(profile.stored.clone(), &store_value(&profile, object.clone()), &profile.fields);
        match self.store().create(&profile.table, stored) {
            Ok(_) => Ok(true),
            Err(Clash::Present(_) | Clash::Absent) => Ok(false),
        }
    }

    /// Gives an object another status, if it is still what the writer saw.
    pub fn put_status(&self, target: &Target, uid: &str, revision: u64, status: Value) -> Result<Arc<Object>> {
        let (resource, profile) = (&target.resource, self.profile(&target.resource));
        let name = target.name.as_deref().unwrap_or_default();
        let live = self.store().get(&profile.table, target.namespace.as_deref().unwrap_or_default(), name);
        let live = live.filter(|live| &*live.uid == uid).ok_or_else(|| Status::not_found(resource, name))?;
        if live.revision != revision {
            return Err(Status::modified(resource, name));
        }
        let told = live.with_status(status, &profile.fields);
        let told = told.ok_or_else(|| Status::internal("the status is not the last member of the object"))?;
        self.store().update(&profile.table, told, revision).map_err(|_| Status::modified(resource, name))
    }
}
