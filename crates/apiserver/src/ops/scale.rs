//! The `scale` subresource: the replica count of any scalable kind.

use std::sync::Arc;

use serde_json::{Value, json};

use super::body::Form;
use super::server::Profile;
use super::write::{Call, Change};
use super::{Payload, Server, meta};
use crate::apply::managed::Force;
use crate::apply::patch;
use crate::error::{Cause, Result, Status};
use crate::field::Path;
use crate::registry::group_version;
use crate::store::Object;

/// Field paths of a kind's scale.
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

/// The Scale of an object.
pub(super) fn of(profile: &Profile, object: &Object) -> Result<Arc<Object>> {
    let value = object.value();
    let paths = Paths::of(profile)?;
    if profile.resource.custom().is_some() && at(&value, &paths.spec).is_null() {
        let path = paths.spec.join(".");
        return Err(Status::internal(format!("the spec replicas field \".{path}\" does not exist")));
    }
    Ok(Arc::new(Object::synthetic(&scale_of(profile, &value)?)))
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

/// A selector in string form: a plain map in a ReplicationController, a LabelSelector elsewhere.
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

/// The expected body: a Scale.
fn form() -> Form<'static> {
    Form::builtin("autoscaling", "autoscaling/v1", "Scale")
}

/// Decodes the Scale in the body of an update.
pub(super) fn decode(call: &mut Call<'_>, body: Payload) -> Result<Value> {
    let scale = form().decode(body, call.options, &mut call.warnings)?;
    meta::fit_name(call.target, &scale)?;
    let mut scale = scale;
    meta::fit_namespace(call.target, &mut scale)?;
    Ok(scale)
}

/// The object with the replicas of the written Scale.
pub(super) fn propose(call: &mut Call<'_>, change: &Change, old: &Value) -> Result<Value> {
    let profile = call.profile.clone();
    let paths = Paths::of(&profile)?;
    let live = scale_of(&profile, old)?;
    let wanted = match change {
        Change::Replace(scale) => scale.clone(),
        Change::Patch(patch) => {
            let mut scale = patch::apply(patch.kind, &live, &patch.value, form().schema())?;
            form().fit_patched(&mut scale, patch, call.options, &mut call.warnings)?;
            scale
        }
        Change::Apply(config) => config.clone(),
    };
    check(&wanted, meta::text(old, "name"))?;
    let replicas = |version: &str| replicas_path(call.server, &profile, version);
    let tracker = call.tracker();
    let scaled = tracker.scaled(old, &replicas);
    let rescaled = match change {
        Change::Apply(config) => scaled.apply(live, config, if call.options.force { Force::Yes } else { Force::No })?,
        _ => scaled.update(live, wanted.clone()),
    };
    let mut object = old.clone();
    let count = rescaled.scale["spec"]["replicas"].as_i64().unwrap_or(0);
    put(&mut object, &paths.spec, count.into());
    let members = meta::members(&mut object);
    members.insert("managedFields".into(), rescaled.managed_fields.into());
    for field in ["resourceVersion", "uid"] {
        let value = meta::text(&wanted, field);
        if !value.is_empty() {
            members.insert(field.into(), value.into());
        }
    }
    Ok(object)
}

/// Path of the replicas in a version of a resource; an empty path if that version has no scale.
fn replicas_path(server: &Server, profile: &Profile, api_version: &str) -> Option<Vec<String>> {
    let (group, version) = group_version(api_version);
    let resource = server.registry().lookup(group, version, &profile.resource.plural)?;
    Some(Paths::of(&server.profile(&resource)).map(|paths| paths.spec).unwrap_or_default())
}

fn put(object: &mut Value, path: &[String], value: Value) {
    let Some((last, parents)) = path.split_last() else { return };
    let mut at = object;
    for parent in parents {
        if !at[parent.as_str()].is_object() {
            at[parent.as_str()] = json!({});
        }
        at = &mut at[parent.as_str()];
    }
    at[last.as_str()] = value;
}

fn split(path: &str) -> Vec<String> {
    capstan_semantics::field::names(path).map(str::to_owned).collect()
}

fn check(scale: &Value, name: &str) -> Result<()> {
    let replicas = &scale["spec"]["replicas"];
    if replicas.as_i64().unwrap_or(0) < 0 {
        let why = "must be greater than or equal to 0";
        let cause = Cause::invalid(&Path::new("spec.replicas"), replicas, why);
        return Err(Status::invalid("Scale", "autoscaling", name, vec![cause]));
    }
    Ok(())
}
