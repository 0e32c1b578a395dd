//! Resource requests: dispatch from a path to a verb of the server.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response};
use serde_json::{Value, json};

use super::api::{Call, Inner};
use super::body::Body;
use super::media::{self, Media};
use super::output::Representation;
use super::table::Include;
use super::{options, respond, reviews, runtime, stream, tokens, watch};
use crate::error::{Result, Status};
use crate::ops::{Deleted, GetOptions, ListOptions, Patch, Target, Written};
use crate::registry::Resource;
use crate::schema::{decode, definition};

/// Definition of DeleteOptions.
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";

/// Handles a resource request.
pub(super) async fn answer(inner: &Inner, call: &Call, media: Media) -> Result<Response<Body>> {
    let path = &call.path;
    let Some(resource) = inner.server.registry().lookup(&path.group, &path.version, &path.resource) else {
        return unknown(inner, call, media);
    };
    let Some(target) = target(call, &resource) else { return unknown(inner, call, media) };
    let mut response = match serve(inner, call, &target, media).await {
        Ok(response) => response,
        Err(status) => respond::failure(media.plain(), &status),
    };
    if let Some(deprecation) = deprecation(&resource) {
        respond::warn(&mut response, &[deprecation]);
    }
    Ok(response)
}

async fn serve(inner: &Inner, call: &Call, target: &Target, media: Media) -> Result<Response<Body>> {
    if call.method == Method::HEAD {
        return Ok(respond::answer(405, media.content_type(), Body::empty()));
    }
    let resource = &target.resource;
    let verb = call.path.verb(&call.method, &call.query);
    check(target, verb)?;
    if let Some(subresource) = target.subresource.as_deref() {
        match (&*resource.plural, subresource) {
            ("serviceaccounts", "token") => return tokens::create(inner, call, target, media).await,
            ("pods", "log") => return runtime::log(inner, call, target).await,
            ("pods", "exec" | "attach" | "portforward") => return stream::connect(inner, call, target).await,
            (_, "proxy") => return runtime::proxy(inner, call, target).await,
            _ => {}
        }
    }
    if reviews::is_review(resource) {
        return reviews::create(inner, call, target, media);
    }
    let include = Include::parse(call.query.first("includeObject"))?;
    let representation = Representation { media, include, clock: inner.server.clock() };
    run(inner, call, target, verb, representation).await
}

/// Rejects verbs that the target does not serve, worded as by the responsible part of kube-apiserver.
fn check(target: &Target, verb: &str) -> Result<()> {
    let resource = &target.resource;
    let custom = resource.custom().is_some();
    if target.subresource.as_deref().is_some_and(|subresource| !resource.has(subresource)) {
        let name = target.name.as_deref().unwrap_or_default();
        return Err(if custom { Status::not_found(resource, name) } else { Status::no_such_resource() });
    }
    if custom && target.name.is_none() && matches!(verb, "update" | "patch") {
        return Err(Status::bad_request("name must be provided"));
    }
    if serves(resource, target, verb) { Ok(()) } else { Err(not_allowed(resource, verb)) }
}

/// The warning for a deprecated API, sent with every response.
fn deprecation(resource: &Resource) -> Option<String> {
    match (resource.custom(), &*resource.group, &*resource.plural) {
        (Some(custom), ..) => custom.deprecation.clone(),
        (None, "", "componentstatuses") => Some("v1 ComponentStatus is deprecated in v1.19+".into()),
        (None, "", "endpoints") => {
            Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".into())
        }
        _ => None,
    }
}

async fn run(
    inner: &Inner,
    call: &Call,
    target: &Target,
    verb: &str,
    representation: Representation,
) -> Result<Response<Body>> {
    let (server, caller, query) = (&inner.server, &call.caller, &call.query);
    let builtin = target.resource.custom().is_none();
    match verb {
        "get" => {
            let resource_version = query.first("resourceVersion").unwrap_or_default().to_owned();
            let object = server.get(caller, target, &GetOptions { resource_version }).await?;
            Ok(respond::text(200, representation.media, representation.one(&target.resource, &object)))
        }
        "list" => {
            let listing = server.list(caller, target, &options::list(query)?).await?;
            Ok(respond::answer(
                200,
                representation.media.content_type(),
                representation.list(&target.resource, listing),
            ))
        }
        "watch" => {
            let (target, options) = watch_target(target, options::list(query)?);
            let events = server.watch(caller, &target, &options).await?;
            let lines = watch::lines(events, target.resource, representation);
            Ok(respond::answer(200, "application/json", Body::stream(lines)))
        }
        "create" => {
            let options = options::write(query, "CreateOptions")?;
            let body = media::json_body(&call.headers, call.body.clone(), builtin)?;
            let written = server.create(caller, target, body.into(), &options).await?;
            // A POST to a subresource returns 201 as well.
            Ok(written_answer(target, &Written { created: true, ..written }, representation))
        }
        "update" => {
            let options = options::write(query, "UpdateOptions")?;
            let body = media::json_body(&call.headers, call.body.clone(), builtin)?;
            let written = server.update(caller, target, body.into(), &options).await?;
            Ok(written_answer(target, &written, representation))
        }
        "patch" => patch(inner, call, target, representation).await,
        "delete" => {
            let body = delete_body(call)?;
            let deleted = server.delete(caller, target, &options::delete(query, body.as_ref())?).await?;
            let cascades = body.as_ref().and_then(|body| body["orphanDependents"].as_bool()) == Some(false);
            Ok(deleted_answer(target, &deleted, cascades, representation))
        }
        "deletecollection" => {
            let body = delete_body(call)?;
            let options = options::delete(query, body.as_ref())?;
            let listing = server.delete_collection(caller, target, &options::list(query)?, &options).await?;
            Ok(respond::answer(
                200,
                representation.media.content_type(),
                representation.list(&target.resource, listing),
            ))
        }
        _ => Err(not_allowed(&target.resource, verb)),
    }
}

async fn patch(inner: &Inner, call: &Call, target: &Target, representation: Representation) -> Result<Response<Body>> {
    let kind = media::patch_kind(&call.headers, target.resource.custom().is_none())?;
    let options = options::patch(&call.query, kind)?;
    let body = match kind {
        crate::ops::PatchKind::Apply => media::yaml_to_json(&call.body)?,
        _ => call.body.clone(),
    };
    let patch = Patch { kind, body: body.into() };
    let written = inner.server.patch(&call.caller, target, patch, &options).await?;
    Ok(written_answer(target, &written, representation))
}

fn written_answer(target: &Target, written: &Written, representation: Representation) -> Response<Body> {
    let code = if written.created { 201 } else { 200 };
    let is_status = &*written.object.types.kind == "Status";
    let representation = if is_status {
        Representation { media: representation.media.plain(), ..representation }
    } else {
        representation
    };
    let mut response = respond::text(code, representation.media, representation.one(&target.resource, &written.object));
    respond::warn(&mut response, &written.warnings);
    response
}

fn deleted_answer(
    target: &Target,
    deleted: &Deleted,
    cascades: bool,
    representation: Representation,
) -> Response<Body> {
    let code = if !deleted.gone && cascades { 202 } else { 200 };
    let mut response = if deleted.show_object {
        respond::text(code, representation.media, representation.one(&target.resource, &deleted.object))
    } else {
        let resource = &target.resource;
        let mut details =
            json!({"name": deleted.object.name(), "kind": &*resource.plural, "uid": &*deleted.object.uid});
        if !resource.group.is_empty() {
            details["group"] = (*resource.group).into();
        }
        respond::success(code, representation.media.plain(), details)
    };
    respond::warn(&mut response, &deleted.warnings);
    response
}

fn delete_body(call: &Call) -> Result<Option<Value>> {
    if call.body.is_empty() {
        return Ok(None);
    }
    let body: Bytes = media::json_body(&call.headers, call.body.clone(), true)?;
    let mut options: Value = serde_json::from_slice(&body).map_err(|error| {
        let why = media::json_error(&body, &error);
        Status::bad_request(format!("couldn't get version/kind; json parse error: {why}"))
    })?;
    let schema = definition(DELETE_OPTIONS).expect("options are built in");
    decode::typed(schema, &mut options).map_err(Status::bad_request)?;
    Ok(Some(options))
}

/// The target of a path; `None` if there is no such path.
fn target(call: &Call, resource: &Arc<Resource>) -> Option<Target> {
    let path = &call.path;
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let itself = &*resource.plural == "namespaces" && resource.group.is_empty();
    let namespace = if itself { None } else { some(&path.namespace) };
    let in_place = match (resource.namespaced, &namespace) {
        // Only lists span all namespaces.
        (true, None) => path.name.is_empty() && (resource.custom().is_none() || call.method != Method::POST),
        (false, Some(_)) => false,
        _ => true,
    };
    let known = path.rest.is_empty() || path.subresource == "proxy";
    let (name, subresource) = (some(&path.name), some(&path.subresource));
    (in_place && known).then(|| Target { resource: resource.clone(), namespace, name, subresource })
}

fn serves(resource: &Resource, target: &Target, verb: &str) -> bool {
    match &target.subresource {
        Some(name) => resource.subresource(name).is_some_and(|sub| sub.verbs.contains(&verb)),
        // Objects are created in a namespace, with the name from the body.
        None if verb == "create" => {
            resource.serves(verb) && target.name.is_none() && target.namespace.is_some() == resource.namespaced
        }
        None if matches!(verb, "update" | "patch") => resource.serves(verb) && target.name.is_some(),
        None => resource.serves(verb),
    }
}

/// 405, worded as by the responsible part of kube-apiserver.
fn not_allowed(resource: &Resource, verb: &str) -> Status {
    if resource.custom().is_some() {
        let message = format!("{verb} is not supported on resources of kind {:?}", resource.group_resource());
        let details = json!({"group": &*resource.group, "kind": &*resource.plural});
        return Status::new(405, "MethodNotAllowed", message).with_details(details);
    }
    let message = "the server does not allow this method on the requested resource";
    Status::new(405, "MethodNotAllowed", message).with_details(json!({}))
}

/// 406, which custom resources word differently in some cases.
pub(super) fn not_acceptable(inner: &Inner, call: &Call, status: Status) -> Status {
    let path = &call.path;
    let found = inner.server.registry().lookup(&path.group, &path.version, &path.resource);
    let custom = found.is_some_and(|resource| resource.custom().is_some());
    if custom { media::not_accepted() } else { status }
}

/// 404: as a Status if the group is served, else as plain text.
fn unknown(inner: &Inner, call: &Call, media: Media) -> Result<Response<Body>> {
    if known_group(inner, &call.path.group) {
        Ok(respond::failure(media.plain(), &Status::no_such_resource()))
    } else {
        Ok(respond::no_page())
    }
}

/// Whether a built-in resource has this group: then its router handles everything below it.
pub(super) fn known_group(inner: &Inner, group: &str) -> bool {
    let snapshot = inner.server.registry().snapshot();
    snapshot.iter().any(|resource| &*resource.group == group && resource.custom().is_none())
}

/// A watch of one object is a watch of the collection with a field selector for its name.
fn watch_target(target: &Target, mut options: ListOptions) -> (Target, ListOptions) {
    let mut target = target.clone();
    if let Some(name) = target.name.take() {
        let selector = format!("metadata.name={name}");
        if !options.field_selector.is_empty() {
            options.field_selector.push(',');
        }
        options.field_selector += &selector;
    }
    (target, options)
}
