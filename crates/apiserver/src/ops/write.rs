//! create, update and patch.

use std::sync::Arc;

use serde_json::Value;

use super::admission::Options;
use super::body::Form;
use super::pipeline::{self, Tracker};
use super::server::Profile;
use super::{
    Caller, Operation, Patch, PatchKind, Payload, Request, Server, Target, WriteOptions, Written, binding, convert,
    delete, eviction, meta, namespaces, read, scale,
};
use crate::apply::patch;
use crate::error::{Cause, Result, Status};
use crate::registry::crd;
use crate::store::{Object, WriteError};

/// Maximum number of attempts after a conflict, or when a generated name exists.
pub(super) const ATTEMPTS: usize = 64;
const NAMES: usize = 8;

/// A write request.
pub(super) struct Call<'a> {
    pub(super) server: &'a Server,
    pub(super) caller: &'a Caller,
    pub(super) target: &'a Target,
    pub(super) options: &'a WriteOptions,
    pub(super) profile: Arc<Profile>,
    pub(super) warnings: Vec<String>,
}

/// The change that a write makes to the live object.
pub(super) enum Change {
    /// Update: replaces it.
    Replace(Value),
    /// Patch.
    Patch(patch::Patch),
    /// Server-side apply.
    Apply(Value),
}

pub(super) async fn create(
    server: &Server,
    caller: &Caller,
    target: &Target,
    body: Payload,
    options: &WriteOptions,
) -> Result<Written> {
    match (target.subresource.as_deref(), &*target.resource.group, &*target.resource.plural) {
        (Some("eviction"), "", "pods") => return eviction::evict(server, caller, target, body, options).await,
        (Some("binding"), "", "pods") | (None, "", "bindings") => {
            return binding::bind(server, caller, target, body, options).await;
        }
        (Some(_), _, _) => return Err(Status::no_such_resource()),
        _ => {}
    }
    if target.resource.custom().is_some_and(|custom| custom.terminating) {
        return Err(definition_ends(target));
    }
    let mut call = Call::new(server, caller, target, options);
    let mut object = Form::of(&call.profile).decode(body, options, &mut call.warnings)?;
    meta::fit_namespace(target, &mut object)?;
    pipeline::complete(server, &call.profile, &mut object);
    meta::dedupe_owners(&mut object, &mut call.warnings);
    object = call.tracker().update(None, object);
    call.create(object, Options::Create(options.clone())).await
}

/// 405: the CRD of the resource is terminating.
fn definition_ends(target: &Target) -> Status {
    let message = "create not allowed while custom resource definition is terminating";
    let details = serde_json::json!({"group": &*target.resource.group, "kind": &*target.resource.plural});
    Status::new(405, "MethodNotAllowed", message).with_details(details)
}

pub(super) async fn update(
    server: &Server,
    caller: &Caller,
    target: &Target,
    body: Payload,
    options: &WriteOptions,
) -> Result<Written> {
    let mut call = Call::new(server, caller, target, options);
    if target.subresource.as_deref() == Some("scale") {
        let scale = scale::decode(&mut call, body)?;
        return call.change(Change::Replace(scale), Options::Update(options.clone())).await;
    }
    let mut object = Form::of(&call.profile).decode(body, options, &mut call.warnings)?;
    meta::fit_name(target, &object)?;
    meta::fit_namespace(target, &mut object)?;
    call.change(Change::Replace(object), Options::Update(options.clone())).await
}

pub(super) async fn patch(
    server: &Server,
    caller: &Caller,
    target: &Target,
    patch: Patch,
    options: &WriteOptions,
) -> Result<Written> {
    let mut call = Call::new(server, caller, target, options);
    let change = match patch.kind {
        PatchKind::Json => Change::Patch(read_patch(patch::Kind::Json, patch.body)?),
        PatchKind::Merge => Change::Patch(read_patch(patch::Kind::Merge, patch.body)?),
        PatchKind::Strategic => Change::Patch(read_patch(patch::Kind::Strategic, patch.body)?),
        PatchKind::Apply => {
            let form = Form::of(&call.profile);
            Change::Apply(form.decode_config(patch.body, options, &mut call.warnings)?)
        }
    };
    call.change(change, Options::Patch(options.clone())).await
}

/// Parses the patch in a body.
fn read_patch(kind: patch::Kind, body: Payload) -> Result<patch::Patch> {
    match body {
        Payload::Object(value) => Ok(patch::Patch { kind, value, strict_errors: Vec::new() }),
        Payload::Json(text) => patch::decode(kind, &text),
    }
}

impl<'a> Call<'a> {
    pub(super) fn new(server: &'a Server, caller: &'a Caller, target: &'a Target, options: &'a WriteOptions) -> Self {
        let profile = server.profile(&target.resource);
        Self { server, caller, target, options, profile, warnings: Vec::new() }
    }

    fn subresource(&self) -> &'a str {
        self.target.subresource.as_deref().unwrap_or_default()
    }

    pub(super) fn tracker(&self) -> Tracker<'_> {
        Tracker::new(self.server, &self.profile, self.caller, self.subresource(), self.options)
    }

    fn request(&self, operation: Operation, old: Option<Arc<Value>>, options: Options) -> Request {
        Request::new(self.server, self.caller, self.target, operation, old, options)
    }

    /// Creates an object that is decoded, defaulted and has managed fields.
    async fn create(&mut self, object: Value, options: Options) -> Result<Written> {
        let (server, target) = (self.server, self.target);
        let name = meta::text(&object, "name").to_owned();
        if !meta::text(&object, "resourceVersion").is_empty() {
            return Err(Status::new(500, "", "resourceVersion should not be set on objects to be created"));
        }
        let mut request = self.request(Operation::Create, None, options);
        request.target.name = Some(name.clone()).filter(|name| !name.is_empty());
        namespaces::admit_create(server, target, &name)?;
        let admitted = self.mutate(&request, object).await?;
        for attempt in 1.. {
            let mut object = admitted.clone();
            meta::prepare_create(server, &self.profile, &mut object);
            namespaces::prepare_create(&self.profile, &mut object);
            self.kinds_prepare(&request, &mut object, None)?;
            self.validate(&request, &object, None)?;
            self.check(&request, &object).await?;
            let generated = name.is_empty().then(|| meta::text(&object, "name").to_owned());
            let object = self.object(object);
            if self.options.dry_run {
                if server.store().get(&self.profile.table, object.namespace(), object.name()).is_some() {
                    return Err(Status::already_exists(&target.resource, object.name()));
                }
                return self.written(Arc::new(object), true);
            }
            match server.store().create(&self.profile.table, object) {
                Ok(object) => return self.written(object, true),
                Err(_) if generated.is_some() && attempt < NAMES => {}
                Err(_) => {
                    let name = generated.unwrap_or(name);
                    return Err(Status::already_exists(&target.resource, &name));
                }
            }
        }
        unreachable!("the loop ends by returning")
    }

    /// Changes the target object.
    pub(super) async fn change(&mut self, change: Change, options: Options) -> Result<Written> {
        let name = self.target.name.clone().unwrap_or_default();
        for _ in 0..ATTEMPTS {
            let Ok(live) = read::find(self.server, &self.profile, self.target) else {
                return self.create_instead(change, options, &name).await;
            };
            let conditional = match &change {
                Change::Replace(object) => !meta::text(object, "resourceVersion").is_empty(),
                _ => false,
            };
            match self.attempt(&change, &options, live).await? {
                Some(written) => return Ok(written),
                None if conditional => return Err(Status::modified(&self.target.resource, &name)),
                None => {}
            }
        }
        Err(Status::modified(&self.target.resource, &name))
    }

    /// The target does not exist: apply, and update for some kinds, create it.
    async fn create_instead(&mut self, change: Change, options: Options, name: &str) -> Result<Written> {
        let main = self.subresource().is_empty();
        let (resource, profile) = (&self.target.resource, self.profile.clone());
        let mut object = match change {
            Change::Replace(object) if main && profile.strategy.create_on_update => self.tracker().update(None, object),
            Change::Apply(config) if main => {
                let uid = meta::text(&config, "uid");
                if !uid.is_empty() {
                    let why = format!(
                        "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                    );
                    return Err(Status::conflict(resource, name, &why));
                }
                self.apply(None, &config)?
            }
            _ => return Err(Status::not_found(resource, name)),
        };
        pipeline::refit(self.server, &profile, &mut object)?;
        meta::dedupe_owners(&mut object, &mut self.warnings);
        // A `resourceVersion` precondition is ignored on create.
        meta::members(&mut object).remove("resourceVersion");
        self.create(object, options).await
    }

    /// One attempt. `None`: a concurrent write conflicted.
    async fn attempt(&mut self, change: &Change, options: &Options, live: Arc<Object>) -> Result<Option<Written>> {
        let profile = self.profile.clone();
        let old = Arc::new(convert::serve_value(&profile, &live));
        let mut object = self.propose(change, &old)?;
        if matches!(change, Change::Replace(_)) {
            self.check_uid(&old, &object)?;
        }
        self.check_revision(&old, &mut object)?;
        let request = self.request(Operation::Update, Some(old.clone()), options.clone());
        let mut object = self.mutate(&request, object).await?;
        meta::prepare_update(&profile, self.subresource(), &old, &mut object);
        self.kinds_prepare(&request, &mut object, Some(&old))?;
        self.validate(&request, &object, Some(&old))?;
        self.check(&request, &object).await?;
        if pipeline::unchanged(&old, &object) {
            return self.written(live, false).map(Some);
        }
        let ends = delete::update_completes_deletion(&profile, &old, &object);
        let new = self.object(object);
        if self.options.dry_run {
            return self.written(Arc::new(new.at(live.revision)), false).map(Some);
        }
        let written = if ends {
            delete::finish(self.server, &profile, new, live.revision)
        } else {
            self.server.store().update(&profile.table, new, live.revision)
        };
        match written {
            Ok(object) => self.written(object, false).map(Some),
            Err(WriteError::NotFound) => Err(Status::not_found(&self.target.resource, live.name())),
            Err(WriteError::Conflict(_)) => Ok(None),
        }
    }

    /// The changed object, defaulted and with managed fields.
    fn propose(&mut self, change: &Change, old: &Value) -> Result<Value> {
        let profile = self.profile.clone();
        if self.subresource() == "scale" {
            return scale::propose(self, change, old);
        }
        let (mut object, tracked) = match change {
            Change::Replace(object) => (object.clone(), false),
            Change::Patch(patch) => {
                let mut object = patch::apply(patch.kind, old, &patch.value, profile.resource.schema())?;
                Form::of(&profile).fit_patched(&mut object, patch, self.options, &mut self.warnings)?;
                meta::fit_name(self.target, &object)?;
                meta::fit_namespace(self.target, &mut object)?;
                (object, false)
            }
            Change::Apply(config) => (self.apply(Some(old), config)?, true),
        };
        if tracked {
            pipeline::refit(self.server, &profile, &mut object)?;
        } else {
            pipeline::complete(self.server, &profile, &mut object);
        }
        meta::dedupe_owners(&mut object, &mut self.warnings);
        Ok(if tracked { object } else { self.tracker().update(Some(old), object) })
    }

    /// `config` applied to the live object by server-side apply.
    fn apply(&self, old: Option<&Value>, config: &Value) -> Result<Value> {
        let mut object = self.tracker().apply(old, config, self.options.force)?;
        meta::fit_namespace(self.target, &mut object)?;
        if meta::text(&object, "name").is_empty() {
            let name = self.target.name.as_deref().unwrap_or_default();
            meta::members(&mut object).insert("name".into(), name.into());
        }
        meta::fit_name(self.target, &object)?;
        Ok(object)
    }

    /// Checks the UID precondition of a replacement.
    fn check_uid(&self, old: &Value, object: &Value) -> Result<()> {
        let uid = meta::text(object, "uid");
        if uid.is_empty() || uid == meta::text(old, "uid") {
            return Ok(());
        }
        Err(wrong_uid(self.target, meta::text(old, "name"), uid, meta::text(old, "uid")))
    }

    /// Checks the `resourceVersion` precondition.
    fn check_revision(&self, old: &Value, object: &mut Value) -> Result<()> {
        let (resource, name) = (&self.target.resource, meta::text(old, "name"));
        match meta::text(object, "resourceVersion") {
            "" | "0" if self.profile.strategy.unconditional_update => {
                meta::keep(old, object, "resourceVersion");
                Ok(())
            }
            "" | "0" => {
                let cause = Cause {
                    reason: "FieldValueInvalid",
                    message: "Invalid value: 0: must be specified for an update".into(),
                    field: "metadata.resourceVersion".into(),
                };
                Err(Status::invalid(&resource.plural, &resource.group, name, vec![cause]))
            }
            revision if revision == meta::text(old, "resourceVersion") => Ok(()),
            _ => Err(Status::modified(resource, name)),
        }
    }

    /// Runs mutating admission.
    async fn mutate(&mut self, request: &Request, mut object: Value) -> Result<Value> {
        let mut mutated = false;
        for plugin in self.server.admission().iter().filter(|plugin| plugin.handles(request)) {
            object = plugin.mutate(request, object).await?;
            mutated = true;
        }
        if mutated {
            pipeline::refit(self.server, &self.profile, &mut object)?;
            meta::dedupe_owners(&mut object, &mut self.warnings);
            self.warnings.extend(request.take_warnings());
        }
        Ok(object)
    }

    fn kinds_prepare(&self, request: &Request, object: &mut Value, old: Option<&Value>) -> Result<()> {
        let resource = &self.profile.resource;
        if resource.custom().is_some() {
            return Ok(());
        }
        if crd::is_definitions(resource) {
            crd::prepare(object);
        }
        self.server.kinds().prepare(request, object, old)?;
        // Normalize again: plugins may have added or removed fields.
        Form::of(&self.profile).fit(object).map(drop)
    }

    /// Validates metadata, schema and the rules of the kind.
    fn validate(&mut self, request: &Request, object: &Value, old: Option<&Value>) -> Result<()> {
        let profile = &self.profile;
        let mut causes = meta::validate(profile, object);
        if let Some(old) = old {
            causes.extend(meta::validate_update(old, object));
        }
        let verdict = pipeline::validate(profile, self.subresource(), object, old);
        causes.extend(verdict.causes);
        self.warnings.extend(verdict.warnings);
        if crd::is_definitions(&profile.resource) && self.subresource().is_empty() {
            causes.extend(crd::validate(object, old));
            self.warnings.extend(crd::warnings(object, old));
        }
        if profile.resource.custom().is_none() {
            causes.extend(self.server.kinds().validate(request, object, old));
        }
        self.warnings.extend(meta::warnings(profile, object));
        self.warnings.extend(request.take_warnings());
        if causes.is_empty() {
            return Ok(());
        }
        let name = match meta::text(object, "name") {
            "" => meta::text(object, "generateName"),
            name => name,
        };
        // A custom resource may claim another kind; the error that rejects it uses the claimed kind.
        let kind = object["kind"].as_str().filter(|_| profile.resource.custom().is_some());
        Err(Status::invalid(kind.unwrap_or(&profile.resource.kind), &profile.resource.group, name, causes))
    }

    /// Runs validating admission.
    async fn check(&mut self, request: &Request, object: &Value) -> Result<()> {
        for plugin in self.server.admission().iter().filter(|plugin| plugin.handles(request)) {
            plugin.validate(request, Some(object)).await?;
        }
        self.warnings.extend(request.take_warnings());
        Ok(())
    }

    /// The object in its storage version.
    fn object(&self, value: Value) -> Object {
        let value = convert::store_value(&self.profile, value);
        Object::new(self.profile.stored.clone(), &value, &self.profile.fields)
    }

    fn written(&mut self, object: Arc<Object>, created: bool) -> Result<Written> {
        let mut warnings = std::mem::take(&mut self.warnings);
        let mut seen = std::collections::HashSet::new();
        warnings.retain(|warning| seen.insert(warning.clone()));
        let object = match self.subresource() {
            "scale" => scale::of(&self.profile, &object)?,
            _ => convert::serve(&self.profile, &object),
        };
        Ok(Written { object, created, warnings })
    }
}

/// 409: the UID precondition does not match.
pub(super) fn wrong_uid(target: &Target, name: &str, wanted: &str, uid: &str) -> Status {
    let resource = &target.resource;
    let group = if resource.group.is_empty() || !resource.group.contains('.') {
        String::new()
    } else {
        format!("{}/", resource.group)
    };
    let place = target.namespace.as_ref().map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"));
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{group}{}/{place}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}",
        resource.plural
    );
    Status::conflict(resource, name, &why)
}
