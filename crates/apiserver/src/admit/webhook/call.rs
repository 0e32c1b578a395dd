//! One webhook call: request, response and result.

use serde_json::{Value, json};

use super::config::{Hook, Invocation};
use super::review::{self, Verdict};
use super::{Failure, Resolver, client};
use crate::admit::json::Read;
use crate::admit::matching::{converted, converted_back};
use crate::apply::patch;
use crate::error::Status;
use crate::ops::Request;

/// 500 with its cause, as in kube-apiserver.
pub(super) fn internal(why: &str) -> Status {
    Status::internal(why).with_details(json!({"causes": [{"message": why}]}))
}

/// Calls a mutating webhook; returns the mutated object, if it was changed.
pub(super) async fn mutate(
    resolver: Option<&dyn Resolver>,
    request: &Request,
    hook: &Hook,
    invocation: &Invocation,
    object: &Value,
) -> Result<Option<Value>, Failure> {
    let sent = converted(object, &invocation.own, &invocation.chosen);
    let verdict = ask(resolver, request, hook, invocation, &sent, true).await?;
    if verdict.patch.is_empty() {
        return Ok(None);
    }
    let patch: Value = serde_json::from_slice(&verdict.patch).map_err(|error| {
        Failure::Call(format!("received undecodable patch in webhook response: {}", go_error(&verdict.patch, &error)))
    })?;
    if patch.as_array().is_none_or(Vec::is_empty) {
        return Ok(None);
    }
    if object.is_null() {
        let why = "attempted to modify the object, which is not supported for this operation";
        return Err(Failure::Denied(internal(&format!("admission webhook {:?} {why}", hook.name))));
    }
    let schema = request.target.resource.schema();
    let patched = patch::apply(patch::Kind::Json, &sent, &patch, schema);
    let patched = patched.map_err(|status| Failure::Denied(internal(&status.message)))?;
    let mut patched = converted_back(patched, &invocation.own, &invocation.chosen);
    if request.target.subresource.is_none() {
        request.server.kinds().default(&request.target.resource, &mut patched);
    }
    Ok(Some(patched))
}

/// Go's error for text that is not JSON.
fn go_error(text: &[u8], error: &serde_json::Error) -> String {
    match text.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => "unexpected end of JSON input".into(),
        Some(first) if error.column() <= 1 => {
            format!("invalid character {:?} looking for beginning of value", char::from(*first))
        }
        Some(_) => error.to_string(),
    }
}

/// Calls a validating webhook.
pub(super) async fn validate(
    resolver: Option<&dyn Resolver>,
    request: &Request,
    hook: &Hook,
    invocation: &Invocation,
    object: Option<&Value>,
) -> Result<(), Failure> {
    let sent = object.map_or(Value::Null, |object| converted(object, &invocation.own, &invocation.chosen));
    ask(resolver, request, hook, invocation, &sent, false).await.map(drop)
}

async fn ask(
    resolver: Option<&dyn Resolver>,
    request: &Request,
    hook: &Hook,
    invocation: &Invocation,
    object: &Value,
    mutating: bool,
) -> Result<Verdict, Failure> {
    if request.dry_run() && !hook.side_effect_free {
        let why = format!("admission webhook {:?} does not support dry run", hook.name);
        return Err(Failure::Denied(Status::bad_request(why)));
    }
    let Some(version) = hook.review else {
        let why =
            "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)";
        return Err(Failure::Call(why.into()));
    };
    hook.tls().map_err(|why| Failure::Call(format!("could not get REST client: {why}")))?;
    let uid = request.server.new_uid();
    let question = review::request(request, invocation, &uid);
    let old = request.old.as_deref().map_or(Value::Null, |old| converted(old, &invocation.own, &invocation.chosen));
    let body = review::review(version, question, object.clone(), old);
    let answer = client::post(&request.server, resolver, hook, &body).await;
    let answer = answer.map_err(|why| Failure::Call(format!("failed to call webhook: {why}")))?;
    let verdict = review::verdict(version, &uid, mutating, &answer)
        .map_err(|why| Failure::Call(format!("received invalid webhook response: {why}")))?;
    verdict.warnings.iter().for_each(|warning| request.warn(warning));
    if verdict.allowed { Ok(verdict) } else { Err(Failure::Denied(denied(&hook.name, &verdict.status))) }
}

/// The denial of a webhook as a Status.
fn denied(name: &str, status: &Value) -> Status {
    let said = format!("admission webhook {name:?} denied the request");
    let message = match (status.text("message"), status.text("reason")) {
        ("", "") => format!("{said} without explanation"),
        ("", reason) => format!("{said}: {reason}"),
        (message, _) => format!("{said}: {message}"),
    };
    let code = status.number("code").and_then(|code| u16::try_from(code).ok()).unwrap_or(0).max(400);
    let mut refusal = Status::new(code, reason(status.text("reason")), message);
    if status.has("details") {
        refusal = refusal.with_details(status["details"].clone());
    }
    refusal
}

/// Well-known reasons; any other is omitted.
fn reason(text: &str) -> &'static str {
    const KNOWN: [&str; 20] = [
        "Unauthorized",
        "Forbidden",
        "NotFound",
        "AlreadyExists",
        "Conflict",
        "Gone",
        "Invalid",
        "ServerTimeout",
        "StoreReadError",
        "Timeout",
        "TooManyRequests",
        "BadRequest",
        "MethodNotAllowed",
        "NotAcceptable",
        "RequestEntityTooLarge",
        "UnsupportedMediaType",
        "InternalError",
        "Expired",
        "ServiceUnavailable",
        "Unknown",
    ];
    KNOWN.into_iter().find(|known| *known == text).unwrap_or_default()
}
