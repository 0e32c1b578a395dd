//! AdmissionReview: request and response.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::config::Invocation;
use crate::admit::json::Read;
use crate::ops::Request;

/// The request without its objects, also for expressions.
pub(super) fn request(request: &Request, invocation: &Invocation, uid: &str) -> Value {
    let (own, chosen) = (&invocation.own, &invocation.chosen);
    let kind =
        |(group, version, kind): &(String, String, String)| json!({"group": group, "version": version, "kind": kind});
    let resource = |of: &crate::admit::matching::Attributes| {
        let resource = &of.resource;
        json!({"group": &*resource.group, "version": &*resource.version, "resource": &*resource.plural})
    };
    let mut json = json!({
        "uid": uid,
        "kind": kind(&chosen.kind),
        "resource": resource(chosen),
        "requestKind": kind(&own.kind),
        "requestResource": resource(own),
        "operation": own.operation,
        "userInfo": request.caller.user,
        "dryRun": request.dry_run(),
        "options": request.options.to_json(),
    });
    for (key, text) in [
        ("name", &own.name),
        ("namespace", &own.namespace),
        ("subResource", &own.subresource),
        ("requestSubResource", &own.subresource),
    ] {
        if !text.is_empty() {
            json[key] = text.as_str().into();
        }
    }
    json
}

/// The AdmissionReview to send.
pub(super) fn review(version: &str, mut request: Value, object: Value, old: Value) -> Value {
    request["object"] = object;
    request["oldObject"] = old;
    json!({"kind": "AdmissionReview", "apiVersion": format!("admission.k8s.io/{version}"), "request": request})
}

/// The response of a webhook.
#[derive(Debug, PartialEq)]
pub(super) struct Verdict {
    pub(super) allowed: bool,
    /// A JSON patch.
    pub(super) patch: Vec<u8>,
    pub(super) warnings: Vec<String>,
    /// `status` of the response.
    pub(super) status: Value,
}

/// Validates and parses a response.
pub(super) fn verdict(version: &str, uid: &str, mutating: bool, answer: &Value) -> Result<Verdict, String> {
    let response = &answer["response"];
    if !response.is_object() {
        return Err("webhook response was absent".into());
    }
    let patch = response.text("patch");
    if version == "v1" {
        check(uid, mutating, answer, response)?;
    }
    let warnings = response.list("warnings").iter().filter_map(Value::as_str).map(str::to_owned);
    Ok(Verdict {
        allowed: response.flag("allowed"),
        patch: if mutating { BASE64_STANDARD.decode(patch).map_err(|error| error.to_string())? } else { Vec::new() },
        warnings: warnings.collect(),
        status: response["status"].clone(),
    })
}

fn check(uid: &str, mutating: bool, answer: &Value, response: &Value) -> Result<(), String> {
    if response.text("uid") != uid {
        return Err(format!("expected response.uid={uid:?}, got {:?}", response.text("uid")));
    }
    let kind = (answer.text("apiVersion"), answer.text("kind"));
    if kind != ("admission.k8s.io/v1", "AdmissionReview") {
        let got = format!("{}, Kind={}", kind.0, kind.1);
        return Err(format!("expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {got}"));
    }
    let (patch, patch_type) =
        (!response.text("patch").is_empty(), response.get("patchType").filter(|it| !it.is_null()));
    match (mutating, patch, patch_type) {
        (true, true, None) => Err("webhook returned response.patch but not response.patchType".into()),
        (true, false, Some(_)) => Err("webhook returned response.patchType but not response.patch".into()),
        (true, _, Some(patch_type)) if patch_type != "JSONPatch" => {
            Err(format!("webhook returned invalid response.patchType of {:?}", patch_type.as_str().unwrap_or_default()))
        }
        (false, true, _) => Err("validating webhook may not return response.patch".into()),
        (false, _, Some(_)) => Err("validating webhook may not return response.patchType".into()),
        _ => Ok(()),
    }
}
