//! TokenRequest: `serviceaccounts/NAME/token`.

use http::Response;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::api::{Call, Inner};
use super::body::Body;
use super::media::{self, Media};
use super::{options, respond};
use crate::auth::{Bound, Grant, ISSUER};
use crate::clock;
use crate::error::{Cause, Result, Status};
use crate::ops::{GetOptions, Target};
use crate::store::Object;

const GROUP: &str = "authentication.k8s.io";
const HOUR: i64 = 3600;

/// Issues a token.
pub(super) async fn create(inner: &Inner, call: &Call, target: &Target, media: Media) -> Result<Response<Body>> {
    let options = options::write(&call.query, "CreateOptions")?;
    let body = media::json_body(&call.headers, call.body.clone(), true)?;
    let request: Value = serde_json::from_slice(&body).map_err(|error| {
        let why = media::json_error(&body, &error);
        Status::bad_request(format!("couldn't get version/kind; json parse error: {why}"))
    })?;
    let spec = &request["spec"];
    let seconds = spec["expirationSeconds"].as_i64().unwrap_or(HOUR);
    check(seconds)?;
    let account_target = Target { subresource: None, ..target.clone() };
    let account = inner.server.get(&call.caller, &account_target, &GetOptions::default()).await?;
    let bound = bound(inner, call, &account, &spec["boundObjectRef"]).await?;
    let audiences: Vec<String> =
        spec["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    let audiences = if audiences.is_empty() { vec![ISSUER.to_owned()] } else { audiences };
    let issued = inner.server.clock().now();
    let expires = issued.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(issued);
    let grant = Grant {
        namespace: account.namespace().to_owned(),
        name: account.name().to_owned(),
        uid: account.uid.to_string(),
        audiences: audiences.clone(),
        issued,
        expires,
        bound,
    };
    let token = if options.dry_run { String::new() } else { inner.auth.authenticator.sign(&grant) };
    let sent = json!({"kind": "TokenRequest", "apiVersion": format!("{GROUP}/v1"), "metadata": {}, "spec": spec});
    let noted = inner.server.note_writer(&call.caller, &options.field_manager, "token", sent);
    let mut answer = json!({
        "kind": "TokenRequest",
        "apiVersion": format!("{GROUP}/v1"),
        "metadata": {
            "name": grant.name, "namespace": grant.namespace, "uid": grant.uid,
            "creationTimestamp": clock::seconds(issued),
        },
        "spec": {
            "audiences": audiences, "expirationSeconds": seconds,
            "boundObjectRef": spec["boundObjectRef"].clone(),
        },
        "status": {"token": token, "expirationTimestamp": clock::seconds(expires)},
    });
    if !noted["metadata"]["managedFields"].is_null() {
        answer["metadata"]["managedFields"] = noted["metadata"]["managedFields"].clone();
    }
    Ok(respond::value(201, media.plain(), &answer))
}

fn check(seconds: i64) -> Result<()> {
    let why = match seconds {
        i64::MIN..600 => "may not specify a duration less than 10 minutes",
        4_294_967_297.. => "may not specify a duration larger than 2^32 seconds",
        _ => return Ok(()),
    };
    let message = format!("Invalid value: {seconds}: {why}");
    let cause = Cause { reason: "FieldValueInvalid", message, field: "spec.expirationSeconds".into() };
    Err(Status::invalid("TokenRequest", GROUP, "", vec![cause]))
}

/// The live object that the token is to be bound to.
async fn bound(inner: &Inner, call: &Call, account: &Object, reference: &Value) -> Result<Vec<Bound>> {
    let Some(kind) = reference["kind"].as_str().filter(|kind| !kind.is_empty()) else { return Ok(Vec::new()) };
    let (name, version) = (reference["name"].as_str().unwrap_or_default(), reference["apiVersion"].as_str());
    let plural = match (kind, version.unwrap_or("v1")) {
        ("Pod", "v1") => "pods",
        ("Secret", "v1") => "secrets",
        ("Node", "v1") => "nodes",
        (_, version) => {
            let version = if version.contains('/') { version.to_owned() } else { format!("/{version}") };
            let message = format!("cannot bind token to object of type {version}, Kind={kind}");
            return Err(Status::bad_request(message));
        }
    };
    let resource = inner.server.registry().lookup("", "v1", plural).ok_or_else(Status::no_such_resource)?;
    let namespace = resource.namespaced.then_some(account.namespace());
    let target = Target::one(resource.clone(), namespace, name);
    let object = inner.server.get(&call.caller, &target, &GetOptions::default()).await?;
    let wanted = reference["uid"].as_str().unwrap_or_default();
    if !wanted.is_empty() && wanted != &*object.uid {
        let why = format!(
            "the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have \
             been deleted and then recreated"
        );
        return Err(Status::conflict(&resource, name, &why));
    }
    let itself = Bound { kind: kind.to_owned(), name: name.to_owned(), uid: object.uid.to_string() };
    if kind != "Pod" {
        return Ok(vec![itself]);
    }
    let pod = object.value();
    if pod["spec"]["serviceAccountName"].as_str().unwrap_or("default") != account.name() {
        let message = format!(
            "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
            account.name()
        );
        return Err(Status::bad_request(message));
    }
    Ok(std::iter::once(itself).chain(node_of(inner, &pod)).collect())
}

/// The node of a pod, which the token of the pod names as well.
fn node_of(inner: &Inner, pod: &Value) -> Option<Bound> {
    let name = pod["spec"]["nodeName"].as_str()?;
    let node = inner.server.store().get(&crate::store::TableKey::new("", "nodes"), "", name)?;
    Some(Bound { kind: "Node".into(), name: name.to_owned(), uid: node.uid.to_string() })
}
