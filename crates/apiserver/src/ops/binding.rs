//! The `binding` subresource: assigns a pod to a node, once.

use serde_json::{Value, json};

use super::body::Form;
use super::eviction::set_condition;
use super::server::Profile;
use super::write::wrong_uid;
use super::{Caller, Payload, Server, Target, WriteOptions, Written, convert, meta, read};
use crate::clock::Clock;
use crate::error::{Cause, Result, Status};
use crate::field::Path;
use crate::store::{Object, WriteError};

const ATTEMPTS: usize = 64;

pub(super) async fn bind(
    server: &Server,
    _caller: &Caller,
    target: &Target,
    body: Payload,
    options: &WriteOptions,
) -> Result<Written> {
    let mut warnings = Vec::new();
    let binding = Form::builtin("", "v1", "Binding").decode(body, options, &mut warnings)?;
    let given = meta::text(&binding, "name");
    let name = target.name.clone().unwrap_or_else(|| given.to_owned());
    if !given.is_empty() && given != name {
        return Err(Status::bad_request("name in URL does not match name in Binding object"));
    }
    let pods = server.registry().lookup("", "v1", "pods").ok_or_else(Status::no_such_resource)?;
    let target = Target::one(pods, target.namespace.as_deref(), &name);
    let node = check(&binding)?;
    let profile = server.profile(&target.resource);
    for _ in 0..ATTEMPTS {
        let live = read::find(server, &profile, &target)?;
        let object = assign(&profile, &target, &live, &binding, node, server.clock())?;
        if options.dry_run {
            return Ok(success(warnings));
        }
        match server.store().update(&profile.table, object, live.revision) {
            Ok(_) => return Ok(success(warnings)),
            Err(WriteError::NotFound) => return Err(Status::not_found(&target.resource, &name)),
            Err(WriteError::Conflict(_)) => {}
        }
    }
    Err(Status::modified(&target.resource, &name))
}

/// A success Status with code 201: the response to a POST to a pod's subresource.
pub(super) fn success(warnings: Vec<String>) -> Written {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Written { object: Object::synthetic(&status).into(), created: true, warnings }
}

fn check(binding: &Value) -> Result<&str> {
    let mut causes = Vec::new();
    let kind = binding["target"]["kind"].as_str().unwrap_or_default();
    if !matches!(kind, "" | "Node") {
        causes.push(Cause::not_supported(&Path::new("target.kind"), &kind.into(), &["Node", "<empty>"]));
    }
    let node = binding["target"]["name"].as_str().unwrap_or_default();
    if node.is_empty() {
        causes.push(Cause::required(&Path::new("target.name"), ""));
    }
    let lines: Vec<String> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
    match lines.as_slice() {
        [] => Ok(node),
        // kube-apiserver reports this as 500, not as a client error.
        [one] => Err(Status::new(500, "", one.as_str())),
        many => Err(Status::new(500, "", format!("[{}]", many.join(", ")))),
    }
}

/// The pod with `spec.nodeName` set.
fn assign(
    profile: &Profile,
    target: &Target,
    live: &Object,
    binding: &Value,
    node: &str,
    clock: Clock,
) -> Result<Object> {
    let mut pod = live.value();
    let name = live.name();
    let refuse = |why: String| {
        let message = format!("Operation cannot be fulfilled on pods/binding \"{name}\": {why}");
        Status::new(409, "Conflict", message).with_details(json!({"name": name, "kind": "pods/binding"}))
    };
    let uid = meta::text(binding, "uid");
    if !uid.is_empty() && uid != &*live.uid {
        return Err(wrong_uid(target, name, uid, &live.uid));
    }
    if live.deleting {
        return Err(refuse(format!("pod {name} is being deleted, cannot be assigned to a host")));
    }
    let present = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    if !present.is_empty() {
        return Err(refuse(format!("pod {name} is already assigned to node {present:?}")));
    }
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        return Err(refuse(format!("pod {name} has non-empty .spec.schedulingGates")));
    }
    pod["spec"]["nodeName"] = node.into();
    for field in ["annotations", "labels"] {
        for (key, value) in binding["metadata"][field].as_object().into_iter().flatten() {
            pod["metadata"][field][key] = value.clone();
        }
    }
    set_scheduled(&mut pod, clock);
    let pod = convert::store_value(profile, pod);
    Ok(Object::new(profile.stored.clone(), &pod, &profile.fields))
}

fn set_scheduled(pod: &mut Value, clock: Clock) {
    let condition = json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": clock.rfc3339(),
    });
    set_condition(pod, condition);
}
