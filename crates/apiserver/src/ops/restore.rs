//! Puts objects back as another server had them: identities, owners, status and all, without a word from admission.
//! For a copy of a cluster that is to be tried out.

use serde_json::Value;

use super::Server;
use super::convert::store_value;
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
}
