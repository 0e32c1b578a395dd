//! Steps of a write that other modules implement: defaulting, managed fields, schema validation. Schemas and patches
//! are called only here and in [`super::body`].

use std::sync::Arc;

use serde_json::Value;

use super::body::Form;
use super::server::Profile;
use super::{Caller, Server, WriteOptions, convert, namespaces};
use crate::apply::managed::{self, Force, Reset, Versions, Write};
use crate::apply::scale::Scaled;
use crate::error::{Cause, Result};
use crate::field::Path;
use crate::registry::builtin::definition_name;
use crate::registry::{Resource, Snapshot};
use crate::schema::object::{self, Verdict};
use crate::schema::{Schema, default, definition};

/// Sets defaults.
pub(super) fn complete(server: &Server, profile: &Profile, object: &mut Value) {
    if profile.resource.custom().is_none() {
        namespaces::complete(profile, object);
        server.kinds().default(&profile.resource, object);
    } else {
        let schema = profile.resource.declared();
        default::drop_nulls(schema, object);
        default::apply(schema, object);
    }
}

/// Normalizes a mutated object to its schema and sets defaults.
pub(super) fn refit(server: &Server, profile: &Profile, object: &mut Value) -> Result<()> {
    Form::of(profile).fit(object)?;
    complete(server, profile, object);
    Ok(())
}

/// Validates an object against its schema.
pub(super) fn validate(profile: &Profile, subresource: &str, object: &Value, old: Option<&Value>) -> Verdict {
    let (kind, wanted) = (&object["kind"], &profile.served.kind);
    if profile.resource.custom().is_some() && kind != wanted {
        let cause = Cause::invalid(&Path::new("kind"), kind, &format!("must be {wanted}"));
        return Verdict { causes: vec![cause], ..Verdict::default() };
    }
    object::check(&profile.resource, subresource, object, old)
}

/// Tracks field managers.
pub(super) struct Tracker<'a> {
    profile: &'a Profile,
    served: Served,
    manager: String,
    subresource: &'a str,
    reset: Reset,
    now: jiff::Timestamp,
    /// Whether managed fields are tracked even if the object was never applied.
    always: bool,
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
        Self {
            profile,
            served,
            manager,
            subresource,
            reset,
            now: server.clock().now(),
            always: server.tracks(resource),
        }
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

    /// `new` with updated managed fields.
    pub(super) fn update(&self, live: Option<&Value>, new: Value) -> Value {
        let managed = |object: &Value| object["metadata"]["managedFields"].is_array();
        if !(self.always || managed(&new) || live.is_some_and(managed)) {
            return new;
        }
        managed::update(live, new, &self.write())
    }

    /// The object whose Scale is written.
    pub(super) fn scaled<'b>(
        &'b self,
        object: &'b Value,
        replicas: &'b dyn Fn(&str) -> Option<Vec<String>>,
    ) -> Scaled<'b> {
        let api_version = &self.profile.served.api_version;
        Scaled { object, api_version, replicas, manager: &self.manager, now: self.now }
    }

    /// `config` applied to `live` by server-side apply.
    pub(super) fn apply(&self, live: Option<&Value>, config: &Value, force: bool) -> Result<Value> {
        managed::apply(live, config, &self.write(), if force { Force::Yes } else { Force::No })
    }
}

/// Records the field manager on an object of a kind that is never stored.
pub(super) fn note_writer(server: &Server, caller: &Caller, manager: &str, subresource: &str, object: Value) -> Value {
    let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let manager = match manager {
        "" => managed::default_manager(&caller.user_agent),
        manager => manager.to_owned(),
    };
    let (versions, reset) = (UnstoredKind { kind: kind.clone() }, Reset::default());
    let write = Write {
        versions: &versions,
        api_version: &api_version,
        kind: &kind,
        manager: &manager,
        subresource,
        reset: &reset,
        now: server.clock().now(),
    };
    managed::update(None, object, &write)
}

/// The only version of a built-in kind that is never stored.
struct UnstoredKind {
    kind: String,
}

impl Versions for UnstoredKind {
    fn schema(&self, api_version: &str) -> Option<&Schema> {
        let (group, version) = crate::registry::group_version(api_version);
        definition(&definition_name(group, version, &self.kind))
    }
}

/// The served versions of a resource.
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

/// Whether the write is a no-op: only `resourceVersion` and times of managed fields differ.
pub(super) fn unchanged(old: &Value, new: &Value) -> bool {
    managed::unchanged(old, new)
}
