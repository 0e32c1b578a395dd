//! The steps of a write that other parts do: decoding, defaults, managed fields, schema validation. All calls to schemas
//! and patches are here.

use std::sync::Arc;

use serde_json::Value;

use super::server::Profile;
use super::{Caller, FieldValidation, Payload, Server, WriteOptions, convert, namespaces};
use crate::apply::managed::{self, Force, Reset, Versions, Write};
use crate::apply::patch;
use crate::error::{Cause, Result, Status};
use crate::field::Path;
use crate::registry::{Resource, Snapshot, group_version};
use crate::schema::object::{self, Verdict};
use crate::schema::{Schema, decode, default, embedded, prune};

/// The object in a request body. Fields that are not known or there twice are warned about, or refused.
pub(super) fn decode(
    body: Payload,
    profile: &Profile,
    options: &WriteOptions,
    warnings: &mut Vec<String>,
) -> Result<Value> {
    let (mut object, mut odd) = read(body, profile)?;
    odd.extend(fit_written(profile, &mut object)?);
    report(odd, options.field_validation, warnings).map_err(|why| unfit(profile, &object, &why))?;
    Ok(object)
}

/// The configuration in the body of an apply: nothing is added to it and nothing taken away. Whether it is of the right
/// kind is for the apply to say.
pub(super) fn decode_config(body: Payload, profile: &Profile) -> Result<Value> {
    let fault = |why: &dyn std::fmt::Display| Status::bad_request(format!("error decoding patch: {why}"));
    match body {
        Payload::Object(mut object) => {
            fill_type(&mut object, profile);
            Ok(object)
        }
        Payload::Json(text) => match decode::parse(&text).map_err(|error| fault(&golang_json(&error)))?.value {
            config @ Value::Object(_) => Ok(config),
            other => {
                let kind = crate::apply::patch::json_type(&other);
                let why = format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}");
                Err(fault(&format!("error unmarshaling JSON: while decoding JSON: {why}")))
            }
        },
    }
}

/// Reads a body, checks its type, and names what is there twice.
fn read(body: Payload, profile: &Profile) -> Result<(Value, Vec<String>)> {
    match body {
        Payload::Object(mut object) => {
            fill_type(&mut object, profile);
            identify(&mut object, profile, None)?;
            Ok((object, Vec::new()))
        }
        Payload::Json(text) => {
            let parsed = decode::parse(&text).map_err(|error| {
                let why = format!("couldn't get version/kind; json parse error: {}", golang_json(&error));
                unrecognized(profile, &why, &text)
            })?;
            let mut object = parsed.value;
            if profile.resource.custom().is_none() {
                fill_type(&mut object, profile);
            }
            identify(&mut object, profile, Some(&text))?;
            Ok((object, parsed.duplicates.iter().map(|path| format!("duplicate field {path:?}")).collect()))
        }
    }
}

/// Brings an object that a client wrote into the form of its schema. An empty list of managed fields is no content, and
/// yet it says something: that a built-in object shall forget its managers. The long way to say so is kept.
fn fit_written(profile: &Profile, object: &mut Value) -> Result<Vec<String>> {
    let entries = &object["metadata"]["managedFields"];
    let forgets = profile.resource.custom().is_none() && entries.as_array().is_some_and(Vec::is_empty);
    let odd = fit(profile, object)?;
    if forgets {
        object["metadata"]["managedFields"] = serde_json::json!([{}]);
    }
    Ok(odd)
}

/// Brings an object into the form of its schema; names what the schema does not know.
pub(super) fn fit(profile: &Profile, object: &mut Value) -> Result<Vec<String>> {
    let schema = profile.resource.declared();
    let unknown = if profile.resource.custom().is_none() {
        decode::typed(schema, object).map_err(|why| unfit(profile, object, &why))?
    } else {
        let mut unknown = embedded::coerce_metadata(&mut object["metadata"])
            .map_err(|why| unfit(profile, object, &why))?
            .into_iter()
            .map(|path| format!("metadata.{path}"))
            .collect::<Vec<_>>();
        unknown.extend(prune::custom(schema, object));
        default::drop_nulls(schema, object);
        unknown.extend(embedded::coerce(schema, object).map_err(|cause| unfit(profile, object, &cause.message))?);
        unknown
    };
    Ok(unknown.iter().map(|path| format!("unknown field {path:?}")).collect())
}

/// What is done about odd fields.
fn report(odd: Vec<String>, validation: FieldValidation, warnings: &mut Vec<String>) -> Result<(), String> {
    match validation {
        FieldValidation::Strict if !odd.is_empty() => Err(format!("strict decoding error: {}", odd.join(", "))),
        FieldValidation::Warn => {
            warnings.extend(odd);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// 400 for a body that is an object of some kind, but not of this one.
fn unfit(profile: &Profile, object: &Value, why: &str) -> Status {
    let kind = object["kind"].as_str().unwrap_or_default();
    let (_, version) = group_version(object["apiVersion"].as_str().unwrap_or_default());
    let wanted = &profile.resource.kind;
    Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {wanted}: {why}"))
}

/// 400 for a body that does not even say what it is.
fn unrecognized(profile: &Profile, why: &str, text: &[u8]) -> Status {
    let kind = &profile.resource.kind;
    let short = &text[..text.len().min(30)];
    let more = if text.len() > 30 { " ..." } else { "" };
    let summary = match short {
        [] => "<empty>".to_owned(),
        [b'{', ..] => format!("{}{more}", String::from_utf8_lossy(short)),
        _ => format!("{}{more}", short.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
    };
    Status::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {why} ({summary})"))
}

/// The words of Go's decoder for the mistakes that people make most.
fn golang_json(error: &serde_json::Error) -> String {
    if error.is_eof() { "unexpected end of JSON input".to_owned() } else { error.to_string() }
}

/// Fills in `apiVersion` and `kind` where they are left out.
fn fill_type(object: &mut Value, profile: &Profile) {
    let Some(members) = object.as_object_mut() else { return };
    let (types, empty) =
        (&profile.served, |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().is_empty());
    if empty(members.get("apiVersion")) {
        members.insert("apiVersion".into(), types.api_version.as_str().into());
    }
    if empty(members.get("kind")) {
        members.insert("kind".into(), types.kind.as_str().into());
    }
}

/// Checks that an object is of the kind and version of the request.
pub(super) fn identify(object: &mut Value, profile: &Profile, text: Option<&[u8]>) -> Result<()> {
    let (resource, expected) = (&profile.resource, profile.served.api_version.as_str());
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
    if kind.is_empty() || !object.is_object() {
        let text = text.unwrap_or_default();
        let why = if object.is_object() || object.is_null() {
            format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(text))
        } else {
            "couldn't get version/kind; json parse error: json: cannot unmarshal into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }".to_owned()
        };
        return Err(unrecognized(profile, &why, text));
    }
    if version != expected || *kind != *resource.kind {
        mismatch(profile, object, &kind, &version)?;
    }
    if !object["metadata"].is_object() && object["metadata"].is_null() {
        object["metadata"] = Value::Object(Default::default());
    }
    Ok(())
}

/// What is wrong with an object of another kind or version. Custom resources of another kind are found out later.
fn mismatch(profile: &Profile, object: &Value, kind: &str, version: &str) -> Result<()> {
    let (resource, expected) = (&profile.resource, &profile.served.api_version);
    let (group, short) = group_version(version);
    if resource.custom().is_none() {
        if !is_builtin(group, short, kind) {
            let why = format!(
                "no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\""
            );
            return Err(unfit(profile, object, &why));
        }
        if *kind != *resource.kind {
            let package = |group: &str| {
                if group.is_empty() { "core".to_owned() } else { group.split('.').next().unwrap_or(group).to_owned() }
            };
            let why = format!(
                "converting ({short}.{kind}) to ({}.{}): unknown conversion",
                package(&resource.group),
                resource.kind
            );
            return Err(unfit(profile, object, &why));
        }
    }
    if version != expected {
        let message =
            format!("the API version in the data ({version}) does not match the expected API version ({expected})");
        return Err(Status::bad_request(message));
    }
    Ok(())
}

fn is_builtin(group: &str, version: &str, kind: &str) -> bool {
    crate::schema::definition(&crate::registry::builtin::definition_name(group, version, kind)).is_some()
}

/// Fills in defaults.
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

/// Brings an object that somebody changed into the form of its schema, with defaults.
pub(super) fn refit(server: &Server, profile: &Profile, object: &mut Value) -> Result<()> {
    fit(profile, object)?;
    complete(server, profile, object);
    Ok(())
}

/// Brings the result of a patch into the form of its schema. Odd fields are warned about, or refused.
pub(super) fn fit_patched(
    profile: &Profile,
    object: &mut Value,
    options: &WriteOptions,
    warnings: &mut Vec<String>,
) -> Result<()> {
    let text = object.to_string();
    let refuse = |why: &str| {
        let path = Path::new("patch");
        let cause = Cause::invalid(&path, &text.as_str().into(), why);
        Status::invalid("", "", "", vec![cause])
    };
    let odd = match fit_written(profile, object) {
        Ok(odd) => odd,
        Err(status) => {
            let why = status.message.split_once(": ").map_or(status.message.as_str(), |(_, why)| why);
            return Err(refuse(why));
        }
    };
    report(odd, options.field_validation, warnings).map_err(|why| refuse(&why))
}

/// What the schema says about an object.
pub(super) fn validate(profile: &Profile, subresource: &str, object: &Value, old: Option<&Value>) -> Verdict {
    let (kind, wanted) = (&object["kind"], &profile.served.kind);
    if profile.resource.custom().is_some() && kind != wanted {
        let cause = Cause::invalid(&Path::new("kind"), kind, &format!("must be {wanted}"));
        return Verdict { causes: vec![cause], ..Verdict::default() };
    }
    object::check(&profile.resource, subresource, object, old)
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
