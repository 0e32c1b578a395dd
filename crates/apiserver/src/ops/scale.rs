//! The scale subresource: the number of replicas of anything that has one.

use std::sync::Arc;

use serde_json::{Value, json};

use super::admission::Options;
use super::server::Profile;
use super::write::{Call, Change, read_patch};
use super::{Caller, Patch, PatchKind, Payload, Server, Target, WriteOptions, Written, meta};
use crate::apply::managed::{self, Force};
use crate::apply::patch;
use crate::apply::scale::{Rescaled, Scaled};
use crate::error::{Cause, Result, Status};
use crate::registry::{Snapshot, group_version};
use crate::schema::Schema;
use crate::store::Object;

/// Where a kind keeps what its scale shows.
struct Paths {
    spec: Vec<String>,
    status: Vec<String>,
    selector: Option<Vec<String>>,
}

impl Paths {
    fn of(profile: &Profile) -> Result<Self> {
        let Some(custom) = profile.resource.custom() else {
            return Ok(Self { spec: split("spec.replicas"), status: split("status.replicas"), selector: None });
        };
        let scale = custom.scale.as_ref().ok_or_else(Status::no_such_resource)?;
        let path = |key: &str| scale[key].as_str().map(split);
        Ok(Self {
            spec: path("specReplicasPath").unwrap_or_default(),
            status: path("statusReplicasPath").unwrap_or_default(),
            selector: path("labelSelectorPath"),
        })
    }
}

fn at<'a>(object: &'a Value, path: &[String]) -> &'a Value {
    path.iter().fold(object, |at, part| &at[part.as_str()])
}

/// The scale of an object.
pub(super) fn of(profile: &Profile, object: &Object) -> Result<Arc<Object>> {
    Ok(Arc::new(Object::synthetic(&scale_of(profile, &object.value())?)))
}

fn scale_of(profile: &Profile, value: &Value) -> Result<Value> {
    let paths = Paths::of(profile)?;
    let replicas = at(value, &paths.spec).as_i64();
    if replicas.is_none() && profile.resource.custom().is_some() && !at(value, &paths.spec).is_null() {
        let path = paths.spec.join(".");
        return Err(Status::internal(format!("the spec replicas field \".{path}\" is not a number")));
    }
    let selector = match &paths.selector {
        Some(path) => at(value, path).as_str().unwrap_or_default().to_owned(),
        None => selector_text(&value["spec"]["selector"]),
    };
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if !value["metadata"][field].is_null() {
            metadata[field] = value["metadata"][field].clone();
        }
    }
    let mut status = json!({"replicas": at(value, &paths.status).as_i64().unwrap_or(0)});
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    let spec = match replicas.unwrap_or(0) {
        0 => json!({}),
        replicas => json!({"replicas": replicas}),
    };
    Ok(json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status,
    }))
}

/// A selector as one line: that of a ReplicationController is a plain map, all others have terms.
pub(crate) fn selector_text(selector: &Value) -> String {
    let plain = selector.as_object().is_some_and(|all| all.values().all(Value::is_string));
    let labels = if plain { selector } else { &selector["matchLabels"] };
    let mut terms: Vec<(String, String)> = labels
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.clone(), format!("{key}={}", value.as_str().unwrap_or_default())))
        .collect();
    for term in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = term["key"].as_str().unwrap_or_default();
        let mut values: Vec<&str> = term["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let text = match term["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        };
        terms.push((key.to_owned(), text));
    }
    terms.sort();
    terms.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(",")
}

/// What a request makes of a scale.
enum Request {
    Replace(Value),
    Patch(patch::Kind, Value),
    Apply(Value),
}

pub(super) async fn update(
    server: &Server,
    caller: &Caller,
    target: &Target,
    body: Payload,
    options: &WriteOptions,
) -> Result<Written> {
    let scale = read_scale(body)?;
    rescale(server, caller, target, &Request::Replace(scale), options, Options::Update(options.clone())).await
}

fn read_scale(body: Payload) -> Result<Value> {
    match body {
        Payload::Object(value) => Ok(value),
        Payload::Json(text) => serde_json::from_slice(&text).map_err(|error| Status::bad_request(error.to_string())),
    }
}

pub(super) async fn patch(
    server: &Server,
    caller: &Caller,
    target: &Target,
    patch: Patch,
    options: &WriteOptions,
) -> Result<Written> {
    let request = match patch.kind {
        PatchKind::Apply => Request::Apply(read_scale(patch.body)?),
        PatchKind::Json => Request::Patch(patch::Kind::Json, read_patch(patch::Kind::Json, patch.body)?),
        // A Scale has no lists, so the other kinds of patches merge alike.
        PatchKind::Merge | PatchKind::Strategic => {
            Request::Patch(patch::Kind::Merge, read_patch(patch::Kind::Merge, patch.body)?)
        }
    };
    rescale(server, caller, target, &request, options, Options::Patch(options.clone())).await
}

/// Gives an object the replicas of a scale.
async fn rescale(
    server: &Server,
    caller: &Caller,
    target: &Target,
    request: &Request,
    options: &WriteOptions,
    record: Options,
) -> Result<Written> {
    let profile = server.profile(&target.resource);
    let paths = Paths::of(&profile)?;
    let manager = match options.field_manager.as_str() {
        "" => managed::default_manager(&caller.user_agent),
        manager => manager.to_owned(),
    };
    let snapshot = server.registry().snapshot();
    let replicas = |version: &str| path_in(&snapshot, &profile, version);
    let now = server.clock().now();
    let change = |old: &Value| {
        let api_version = &profile.served.api_version;
        let scaled = Scaled { object: old, api_version, replicas: &replicas, manager: &manager, now };
        let (rescaled, seen) = request.run(&scaled, scale_of(&profile, old)?, options.force)?;
        check(&rescaled.scale, target.name.as_deref().unwrap_or_default())?;
        let mut object = old.clone();
        put(&mut object, &paths.spec, rescaled.scale["spec"]["replicas"].as_i64().unwrap_or(0).into());
        let metadata = meta::members(&mut object);
        metadata.insert("managedFields".into(), rescaled.managed_fields.into());
        metadata.insert("resourceVersion".into(), seen.into());
        Ok(object)
    };
    let mut call = Call::new(server, caller, target, options);
    let mut written = call.change(Change::By(&change), record).await?;
    written.object = of(&profile, &written.object)?;
    Ok(written)
}

impl Request {
    /// The new scale, and the revision that the writer saw, if it says so.
    fn run(&self, scaled: &Scaled<'_>, live: Value, force: bool) -> Result<(Rescaled, String)> {
        let seen = |scale: &Value| meta::text(scale, "resourceVersion").to_owned();
        match self {
            Self::Replace(new) => Ok((scaled.update(live, new.clone()), seen(new))),
            Self::Patch(kind, change) => {
                let new = patch::apply(*kind, &live, change, &Schema::default())?;
                let stays = seen(&new) == seen(&live) && change["metadata"]["resourceVersion"].is_null();
                let seen = if stays { String::new() } else { seen(&new) };
                Ok((scaled.update(live, new), seen))
            }
            Self::Apply(config) => {
                let force = if force { Force::Yes } else { Force::No };
                Ok((scaled.apply(live, config, force)?, seen(config)))
            }
        }
    }
}

/// Where replicas are in a version of the resource; nothing if there is no such version.
fn path_in(snapshot: &Snapshot, profile: &Profile, api_version: &str) -> Option<Vec<String>> {
    let (group, version) = group_version(api_version);
    let resource = &profile.resource;
    let found = snapshot.lookup(group, version, &resource.plural).filter(|_| group == &*resource.group)?;
    match found.custom() {
        None => Some(split("spec.replicas")),
        Some(custom) => {
            let path = custom.scale.as_ref().and_then(|scale| scale["specReplicasPath"].as_str());
            Some(path.map(split).unwrap_or_default())
        }
    }
}

fn split(path: &str) -> Vec<String> {
    path.trim_start_matches('.').split('.').map(str::to_owned).collect()
}

fn put(object: &mut Value, path: &[String], value: Value) {
    let [first, rest @ ..] = path else {
        *object = value;
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    put(&mut object[first.as_str()], rest, value);
}

fn check(scale: &Value, name: &str) -> Result<()> {
    match meta::text(scale, "name") {
        "" => {}
        given if given == name => {}
        given => {
            let message = format!("the name of the object ({given}) does not match the name on the URL ({name})");
            return Err(Status::bad_request(message));
        }
    }
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    if replicas < 0 {
        let cause = Cause {
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {replicas}: must be greater than or equal to 0"),
            field: "spec.replicas".into(),
        };
        return Err(Status::invalid("Scale", "autoscaling", name, vec![cause]));
    }
    Ok(())
}
