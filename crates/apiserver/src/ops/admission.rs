//! Admission: the interfaces of admission plugins (such as webhooks) and of the rules of built-in kinds.

use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{Caller, DeleteOptions, FieldValidation, Propagation, Server, Target, WriteOptions};
use crate::error::{Cause, Result};
use crate::registry::Resource;
use crate::store::Object;

/// Operation of a request, as in `AdmissionReview`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// An object is created.
    Create,
    /// An object is updated.
    Update,
    /// An object is deleted.
    Delete,
    /// A stream to an object is opened (exec, attach, port-forward).
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

    /// Whether this is a dry run.
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

/// Admission attributes of a request.
pub struct Request {
    /// The server, to look up other objects.
    pub server: Server,
    /// The caller.
    pub caller: Caller,
    /// The request target. The name is set unless it is yet to be generated.
    pub target: Target,
    /// The operation.
    pub operation: Operation,
    /// The old object, in the version of the request.
    pub old: Option<Arc<Value>>,
    /// Options of the request.
    pub options: Options,
    warnings: Mutex<Vec<String>>,
}

impl Request {
    /// Attributes of a request.
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

    /// Whether this is a dry run.
    pub fn dry_run(&self) -> bool {
        self.options.dry_run()
    }

    /// Adds a warning for the caller.
    pub fn warn(&self, text: impl Into<String>) {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).push(text.into());
    }

    /// Takes the warnings collected so far.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.warnings.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// An admission plugin. Plugins run in the order in which they were registered: first all `mutate`, then, after
/// validation, all `validate`.
pub trait Admission: Send + Sync + 'static {
    /// Whether the plugin handles a request.
    fn handles(&self, request: &Request) -> bool;

    /// Mutates the object. Not called for deletions and connections.
    fn mutate<'a>(&'a self, request: &'a Request, object: Value) -> BoxFuture<'a, Result<Value>> {
        let _ = request;
        Box::pin(std::future::ready(Ok(object)))
    }

    /// Validates the object before it is written; `None` for a deletion.
    fn validate<'a>(&'a self, request: &'a Request, object: Option<&'a Value>) -> BoxFuture<'a, Result<()>> {
        let _ = (request, object);
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Defaulting, preparation and validation of built-in kinds beyond their schemas. Objects are in the version of the
/// request.
pub trait KindRules: Send + Sync + 'static {
    /// Sets defaults, on every write, before managed fields are computed.
    fn default(&self, resource: &Resource, object: &mut Value) {
        let _ = (resource, object);
    }

    /// Prepares an object after admission (`old` is `None` on create): allocates values, resets fields that this
    /// endpoint may not set.
    fn prepare(&self, request: &Request, object: &mut Value, old: Option<&Value>) -> Result<()> {
        let _ = (request, object, old);
        Ok(())
    }

    /// Validates an object beyond its schema; `old` is `None` on create. Names and metadata are validated elsewhere.
    fn validate(&self, request: &Request, object: &Value, old: Option<&Value>) -> Vec<Cause> {
        let _ = (request, object, old);
        Vec::new()
    }

    /// Called after an object was removed: releases what [`KindRules::prepare`] allocated.
    fn removed(&self, server: &Server, resource: &Resource, object: &Object) {
        let _ = (server, resource, object);
    }
}

/// No rules.
impl KindRules for () {}
