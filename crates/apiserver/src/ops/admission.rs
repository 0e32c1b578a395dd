//! What others have to say about a write: rules of built-in kinds, and admission plugins such as webhooks.

use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{Caller, DeleteOptions, FieldValidation, Propagation, Server, Target, WriteOptions};
use crate::error::{Cause, Result};
use crate::registry::Resource;
use crate::store::Object;

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

/// The options of a request.
#[derive(Clone, Debug)]
pub enum Options {
    /// Of a create.
    Create(WriteOptions),
    /// Of an update.
    Update(WriteOptions),
    /// Of a patch.
    Patch(WriteOptions),
    /// Of a delete.
    Delete(DeleteOptions),
}

impl Options {
    /// As admission webhooks get them: CreateOptions, UpdateOptions, PatchOptions or DeleteOptions.
    pub fn to_json(&self) -> Value {
        let (kind, options) = match self {
            Self::Create(options) => ("CreateOptions", write_json(options)),
            Self::Update(options) => ("UpdateOptions", write_json(options)),
            Self::Patch(options) => ("PatchOptions", write_json(options)),
            Self::Delete(options) => ("DeleteOptions", delete_json(options)),
        };
        let mut json = options;
        json["kind"] = kind.into();
        json["apiVersion"] = "meta.k8s.io/v1".into();
        if matches!(self, Self::Patch(options) if options.force) {
            json["force"] = true.into();
        }
        json
    }

    /// Whether nothing is to be written.
    pub fn dry_run(&self) -> bool {
        match self {
            Self::Create(options) | Self::Update(options) | Self::Patch(options) => options.dry_run,
            Self::Delete(options) => options.dry_run,
        }
    }
}

fn write_json(options: &WriteOptions) -> Value {
    let mut json = json!({});
    if options.dry_run {
        json["dryRun"] = json!(["All"]);
    }
    if !options.field_manager.is_empty() {
        json["fieldManager"] = options.field_manager.as_str().into();
    }
    json["fieldValidation"] = match options.field_validation {
        FieldValidation::Ignore => "Ignore".into(),
        FieldValidation::Warn => "Warn".into(),
        FieldValidation::Strict => "Strict".into(),
    };
    json
}

fn delete_json(options: &DeleteOptions) -> Value {
    let mut json = json!({});
    if options.dry_run {
        json["dryRun"] = json!(["All"]);
    }
    if let Some(grace) = options.grace {
        json["gracePeriodSeconds"] = grace.into();
    }
    if let Some(propagation) = options.propagation {
        json["propagationPolicy"] = match propagation {
            Propagation::Orphan => "Orphan".into(),
            Propagation::Background => "Background".into(),
            Propagation::Foreground => "Foreground".into(),
        };
    }
    if let Some(uid) = &options.preconditions.uid {
        json["preconditions"]["uid"] = uid.as_str().into();
    }
    if let Some(version) = &options.preconditions.resource_version {
        json["preconditions"]["resourceVersion"] = version.as_str().into();
    }
    json
}

/// What admission may know about a request.
pub struct Request {
    /// The server, to look other objects up.
    pub server: Server,
    /// Who asks.
    pub caller: Caller,
    /// What is asked about. The name is set unless it is yet to be generated.
    pub target: Target,
    /// What is done.
    pub operation: Operation,
    /// The object before, in the version of the request.
    pub old: Option<Arc<Value>>,
    /// Options of the request.
    pub options: Options,
    warnings: Mutex<Vec<String>>,
}

impl Request {
    /// A request to be asked about.
    pub fn new(
        server: &Server,
        caller: &Caller,
        target: &Target,
        operation: Operation,
        old: Option<Arc<Value>>,
        options: Options,
    ) -> Self {
        let (server, caller, target) = (server.clone(), caller.clone(), target.clone());
        Self { server, caller, target, operation, old, options, warnings: Mutex::default() }
    }

    /// Whether nothing will be written.
    pub fn dry_run(&self) -> bool {
        self.options.dry_run()
    }

    /// Adds a warning for the caller.
    pub fn warn(&self, text: impl Into<String>) {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).push(text.into());
    }

    /// The warnings so far; there are none afterwards.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.warnings.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// An admission plugin. Plugins run in the order in which the server has them: first all changes, then, after
/// validation, all checks.
pub trait Admission: Send + Sync + 'static {
    /// Whether the plugin cares about a request at all.
    fn handles(&self, request: &Request) -> bool;

    /// Changes the object. Not called for deletions and connections.
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

/// What is built in about kinds beyond their schemas. Objects are in the version of the request.
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

    /// Checks an object beyond its schema; `old` is nothing on create. Names and metadata are checked elsewhere.
    fn validate(&self, request: &Request, object: &Value, old: Option<&Value>) -> Vec<Cause> {
        let _ = (request, object, old);
        Vec::new()
    }

    /// An object has gone for good: gives back what [`Kinds::prepare`] allocated.
    fn removed(&self, server: &Server, resource: &Resource, object: &Object) {
        let _ = (server, resource, object);
    }
}

/// No rules.
impl Kinds for () {}
