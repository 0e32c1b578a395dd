//! Admission plugins that workloads rely on and kube-apiserver enables by default.

mod classes;
mod limit_ranger;
mod node_restriction;
mod priority;
mod runtime_class;
mod service_account;
mod storage;
mod taints;

pub use classes::{DefaultIngressClass, DefaultStorageClass};
pub use limit_ranger::LimitRanger;
pub use node_restriction::NodeRestriction;
pub use priority::Priority;
pub use runtime_class::RuntimeClass;
pub use service_account::ServiceAccount;
pub use storage::{StorageProtection, VolumeResize};
pub use taints::{DefaultTolerationSeconds, TaintNewNodes};

use std::sync::Arc;

use futures::future::{BoxFuture, ready};
use serde_json::Value;

use super::json::Read;
use crate::error::{Result, Status};
use crate::ops::{Admission, Operation, Request};
use crate::store::{Object, Selection, TableKey};

/// A synchronous admission plugin.
pub(super) trait Plugin: Send + Sync + 'static {
    /// Whether it handles a request.
    fn handles(&self, request: &Request) -> bool;

    /// Mutates the object.
    fn mutate(&self, request: &Request, object: &mut Value) -> Result<()> {
        let _ = (request, object);
        Ok(())
    }

    /// Validates the object; `None` for a deletion.
    fn validate(&self, request: &Request, object: Option<&Value>) -> Result<()> {
        let _ = (request, object);
        Ok(())
    }
}

macro_rules! admissions {
    ($($plugin:ident)*) => {
        $(impl Admission for $plugin {
            fn handles(&self, request: &Request) -> bool {
                Plugin::handles(self, request)
            }

            fn mutate<'a>(&'a self, request: &'a Request, mut object: Value) -> BoxFuture<'a, Result<Value>> {
                let done = Plugin::mutate(self, request, &mut object).map(|()| object);
                Box::pin(ready(done))
            }

            fn validate<'a>(&'a self, request: &'a Request, object: Option<&'a Value>) -> BoxFuture<'a, Result<()>> {
                Box::pin(ready(Plugin::validate(self, request, object)))
            }
        })*
    };
}

admissions! {
    DefaultIngressClass DefaultStorageClass DefaultTolerationSeconds LimitRanger NodeRestriction Priority RuntimeClass
    ServiceAccount StorageProtection TaintNewNodes VolumeResize
}

/// Whether a request is for the resource itself, and not for a subresource.
fn is(request: &Request, group: &str, plural: &str) -> bool {
    let target = &request.target;
    target.subresource.is_none() && &*target.resource.group == group && &*target.resource.plural == plural
}

fn creates(request: &Request, group: &str, plural: &str) -> bool {
    request.operation == Operation::Create && is(request, group, plural)
}

/// 403 as an admission plugin words it.
pub(super) fn forbidden(request: &Request, object: &Value, why: &str) -> Status {
    let meta = &object["metadata"];
    let name = match (request.target.name.as_deref(), meta.text("name"), meta.text("generateName")) {
        (Some(name), _, _) => name,
        (None, "", "") => "Unknown",
        (None, "", prefix) => prefix,
        (None, name, _) => name,
    };
    Status::forbidden(&request.target.resource, name, why)
}

/// Looks up an object.
fn find(request: &Request, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Object>> {
    request.server.store().get(&TableKey::new(group, plural), namespace, name)
}

/// All objects of a resource.
fn all(request: &Request, group: &str, plural: &str) -> Vec<Value> {
    let objects = request.server.store().select(&TableKey::new(group, plural), &Selection::default());
    objects.iter().map(|object| object.value()).collect()
}

#[cfg(test)]
mod tests;
