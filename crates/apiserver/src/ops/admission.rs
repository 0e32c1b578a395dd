//! What others have to say about a write: rules of built-in kinds, and admission plugins such as webhooks.

use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use serde_json::Value;

use super::{Caller, Target};
use crate::error::{Cause, Result};
use crate::registry::Resource;

/// What a request does to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The object is new.
    Create,
    /// The object changes.
    Update,
    /// The object goes.
    Delete,
    /// A stream is opened to it.
    Connect,
}

/// What admission may know about a request.
#[derive(Debug)]
pub struct Request {
    /// Who asks.
    pub caller: Caller,
    /// What is asked about. The name is set unless it is yet to be generated.
    pub target: Target,
    /// What is done.
    pub operation: Operation,
    /// The object before, in the version of the request.
    pub old: Option<Arc<Value>>,
    /// Options of the request as JSON: CreateOptions, UpdateOptions, PatchOptions or DeleteOptions.
    pub options: Value,
    /// Whether nothing will be written.
    pub dry_run: bool,
    /// Warnings that plugins have for the caller.
    pub warnings: Mutex<Vec<String>>,
}

impl Request {
    /// Adds a warning for the caller.
    pub fn warn(&self, text: impl Into<String>) {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).push(text.into());
    }
}

/// An admission plugin. Plugins run in the order in which the server has them: first all changes, then, after
/// validation, all checks.
pub trait Admission: Send + Sync + 'static {
    /// Whether the plugin cares about a request at all.
    fn handles(&self, request: &Request) -> bool;

    /// Changes the object. Not called for deletions and connections that have none.
    fn mutate<'a>(&'a self, request: &'a Request, object: Value) -> BoxFuture<'a, Result<Value>> {
        let _ = request;
        Box::pin(std::future::ready(Ok(object)))
    }

    /// Checks the object that is about to be written; `None` for a deletion.
    fn validate<'a>(&'a self, request: &'a Request, object: Option<&'a Value>) -> BoxFuture<'a, Result<()>> {
        let _ = (request, object);
        Box::pin(std::future::ready(Ok(())))
    }
}

/// What is built in about kinds beyond their schemas.
pub trait Kinds: Send + Sync + 'static {
    /// Fills in defaults, on every write, before managed fields are computed.
    fn default(&self, resource: &Resource, object: &mut Value) {
        let _ = (resource, object);
    }

    /// Brings an object into shape before a write (`old` is nothing on create), after admission: allocated values,
    /// fields that this endpoint may not set.
    fn prepare(&self, request: &Request, object: &mut Value, old: Option<&Value>) -> Result<()> {
        let _ = (request, object, old);
        Ok(())
    }

    /// Checks an object beyond its schema; `old` is nothing on create.
    fn validate(&self, request: &Request, object: &Value, old: Option<&Value>) -> Vec<Cause> {
        let _ = (request, object, old);
        Vec::new()
    }
}

/// No rules.
impl Kinds for () {}
