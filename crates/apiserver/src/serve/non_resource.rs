//! Non-resource paths: discovery, OpenAPI, health, version, OIDC keys.

use http::header::{ETAG, IF_NONE_MATCH, VARY};
use http::{HeaderMap, Method, Response};
use serde_json::{Value, json};

use super::api::{Call, Inner};
use super::body::Body;
use super::media::{Media, header};
use super::{respond, verbs};
use crate::auth::ISSUER;
use crate::error::{Result, Status};

/// Kubernetes minor version of the API.
pub(super) const MINOR: &str = "37";

/// Handles a non-resource request.
pub(super) async fn answer(inner: &Inner, call: &Call, media: Result<Media>) -> Response<Body> {
    // The group list is returned for any method.
    if !matches!(call.method, Method::GET | Method::HEAD) && call.path.full.trim_end_matches('/') != "/apis" {
        return respond::failure(media.map(Media::plain).unwrap_or_default(), &method_not_allowed());
    }
    let path = call.path.full.as_str();
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match parts.as_slice() {
        ["healthz" | "livez" | "readyz", rest @ ..] => health(parts[0], rest, call),
        ["openapi", rest @ ..] => inner.documents.answer(inner, call, rest),
        ["api" | "apis", ..] => discovery(inner, call, &parts, media),
        _ => match document(inner, &parts, &host(call)) {
            Some(document) => respond::value(200, media.map(Media::plain).unwrap_or_default(), &document),
            None => respond::no_page(),
        },
    }
}

fn method_not_allowed() -> Status {
    let message = "the server does not allow this method on the requested resource";
    Status::new(405, "MethodNotAllowed", message).with_details(json!({}))
}

fn document(inner: &Inner, parts: &[&str], host: &str) -> Option<Value> {
    match parts {
        [] => Some(json!({"paths": inner.discovery.paths(inner)})),
        ["version"] => Some(version()),
        [".well-known", "openid-configuration"] => Some(json!({
            "issuer": ISSUER,
            "jwks_uri": format!("https://{host}/openid/v1/jwks"),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })),
        ["openid", "v1", "jwks"] => Some(inner.auth.authenticator.key_set()),
        _ => None,
    }
}

/// Host and port by which the client reached the server.
fn host(call: &Call) -> String {
    let host = header(&call.headers, http::header::HOST.as_str());
    if host.is_empty() { "127.0.0.1:443".to_owned() } else { host }
}

fn version() -> Value {
    json!({
        "major": "1",
        "minor": MINOR,
        "emulationMajor": "1",
        "emulationMinor": MINOR,
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "36",
        "gitVersion": format!("v1.{MINOR}.1"),
        "gitCommit": "0000000000000000000000000000000000000000",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, arch()),
    })
}

/// The architecture as Go names it (`GOARCH`).
fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn health(check: &str, rest: &[&str], call: &Call) -> Response<Body> {
    let plain = "text/plain; charset=utf-8";
    match rest {
        [] if call.query.first("verbose").is_some() => {
            let text = format!("[+]ping ok\n[+]etcd ok\n{check} check passed\n");
            respond::answer(200, plain, text)
        }
        [] | ["ping" | "etcd" | "log" | "informer-sync"] => respond::answer(200, plain, "ok".to_owned()),
        _ => respond::no_page(),
    }
}

/// Handles `/api` and `/apis`, in the negotiated format.
fn discovery(inner: &Inner, call: &Call, parts: &[&str], media: Result<Media>) -> Response<Body> {
    if let (["api" | "apis"], true) = (parts, aggregated(&call.headers)) {
        let (body, etag) = inner.discovery.aggregated(inner, parts[0], "v2");
        let kind = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let unchanged = header(&call.headers, IF_NONE_MATCH.as_str()) == etag;
        let mut response =
            if unchanged { respond::answer(304, kind, Body::empty()) } else { respond::answer(200, kind, body) };
        respond::add_header(&mut response, ETAG, &etag);
        respond::add_header(&mut response, VARY, "Accept");
        return response;
    }
    let media = match media {
        Ok(media) => media.plain(),
        Err(status) => return respond::failure(Media::default(), &status),
    };
    match inner.discovery.plain(inner, parts, &host(call)) {
        Some(document) => {
            let mut response = respond::value(200, media, &document);
            respond::add_header(&mut response, VARY, "Accept");
            response
        }
        None if verbs::known_group(inner, if parts[0] == "api" { "" } else { parts[1] }) => {
            respond::failure(media, &Status::no_such_resource())
        }
        None => respond::no_page(),
    }
}

/// Whether the client prefers aggregated discovery.
fn aggregated(headers: &HeaderMap) -> bool {
    let accept = header(headers, http::header::ACCEPT.as_str());
    for clause in accept.split(',').map(|clause| clause.replace(' ', "")) {
        let has = |parameter: &str| clause.split(';').any(|part| part == parameter);
        if !has("application/json") {
            continue;
        }
        if !has("as=APIGroupDiscoveryList") {
            return false;
        }
        if has("g=apidiscovery.k8s.io") && has("v=v2") {
            return true;
        }
    }
    false
}
