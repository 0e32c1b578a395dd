//! The scale subresource: the number of replicas of anything that has one.

use std::sync::Arc;

use serde_json::{Value, json};

use super::admission::Options;
use super::server::Profile;
use super::write::{Call, Change, read_patch};
use super::{Caller, Patch, PatchKind, Payload, Server, Target, WriteOptions, Written, meta, read};
use crate::apply::patch;
use crate::error::{Cause, Result, Status};
use crate::store::Object;

/// Where a kind keeps what its scale shows.
struct Paths {
    spec: Vec<String>,
    status: Vec<String>,
    selector: Option<Vec<String>>,
}

impl Paths {
    fn of(profile: &Profile) -> Result<Self> {
        let split = |path: &str| path.trim_start_matches('.').split('.').map(str::to_owned).collect::<Vec<_>>();
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

pub(super) async fn update(
    server: &Server,
    caller: &Caller,
    target: &Target,
    body: Payload,
    options: &WriteOptions,
) -> Result<Written> {
    let scale = match body {
        Payload::Object(value) => value,
        Payload::Json(text) => serde_json::from_slice(&text).map_err(|error| Status::bad_request(error.to_string()))?,
    };
    set(server, caller, target, &scale, options, Options::Update(options.clone())).await
}

pub(super) async fn patch(
    server: &Server,
    caller: &Caller,
    target: &Target,
    patch: Patch,
    options: &WriteOptions,
) -> Result<Written> {
    let profile = server.profile(&target.resource);
    let kind = match patch.kind {
        PatchKind::Json => patch::Kind::Json,
        // A Scale has no lists, so all other kinds of patches merge alike.
        PatchKind::Merge | PatchKind::Strategic | PatchKind::Apply => patch::Kind::Merge,
    };
    let change = read_patch(kind, patch.body)?;
    let live = scale_of(&profile, &read::find(server, &profile, target)?.value())?;
    let mut scale = patch::apply(kind, &live, &change, target.resource.schema())?;
    if change["metadata"]["resourceVersion"].is_null() {
        meta::members(&mut scale).remove("resourceVersion");
    }
    set(server, caller, target, &scale, options, Options::Patch(options.clone())).await
}

/// Gives an object the replicas of a scale.
async fn set(
    server: &Server,
    caller: &Caller,
    target: &Target,
    scale: &Value,
    options: &WriteOptions,
    record: Options,
) -> Result<Written> {
    let profile = server.profile(&target.resource);
    let name = target.name.as_deref().unwrap_or_default();
    check(scale, name)?;
    let paths = Paths::of(&profile)?;
    let live = read::find(server, &profile, target)?;
    let seen = meta::text(scale, "resourceVersion");
    if !seen.is_empty() && seen != live.revision.to_string() {
        return Err(Status::modified(&target.resource, name));
    }
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    let mut merge = paths.spec.iter().rev().fold(json!(replicas), |value, part| json!({part: value}));
    if !seen.is_empty() {
        merge["metadata"]["resourceVersion"] = seen.into();
    }
    let mut call = Call::new(server, caller, target, options);
    let mut written = call.change(Change::Patch(patch::Kind::Merge, merge), record).await?;
    written.object = of(&profile, &written.object)?;
    Ok(written)
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
