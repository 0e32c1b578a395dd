//! Answers.

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

use super::body::Body;
use super::media::Media;
use crate::error::Status;
use crate::faults::is_disconnected;

/// An answer of this type.
pub(crate) fn answer(code: u16, content_type: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// JSON text that is there already, in the form that the client wants.
pub(crate) fn text(code: u16, media: Media, json: Vec<u8>) -> Response<Body> {
    answer(code, media.content_type(), media.finish(json))
}

/// A value, in the form that the client wants.
pub(crate) fn value(code: u16, media: Media, value: &Value) -> Response<Body> {
    answer(code, media.content_type(), media.write(value))
}

/// There is no answer: the connection was lost, because a fault says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("connection lost")]
pub struct Lost;

/// A failure.
pub(crate) fn failure(media: Media, status: &Status) -> Response<Body> {
    let mut response = value(status.code, media, &status.to_json());
    if is_disconnected(status) {
        response.extensions_mut().insert(Lost);
    }
    if let Some(seconds) = status.details.get("retryAfterSeconds").filter(|_| status.code == 429) {
        add_header(&mut response, http::header::RETRY_AFTER, &seconds.to_string());
    }
    response
}

/// A success that has nothing else to say.
pub(crate) fn success(code: u16, media: Media, details: Value) -> Response<Body> {
    let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
    if !details.is_null() {
        status["details"] = details;
    }
    value(code, media, &status)
}

/// Nothing is served under this path at all.
pub(crate) fn no_page() -> Response<Body> {
    let mut response = answer(404, "text/plain; charset=utf-8", "404 page not found\n".to_owned());
    let sniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert("x-content-type-options", sniff);
    response
}

/// Adds `Warning` headers, one per text, without repeats.
pub(crate) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    let mut seen: Vec<&String> = Vec::new();
    for warning in warnings {
        if seen.contains(&warning) {
            continue;
        }
        seen.push(warning);
        let clean: String = warning.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let text = format!("299 - \"{}\"", clean.replace('\\', "\\\\").replace('"', "\\\""));
        if let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) {
            response.headers_mut().append(http::header::WARNING, value);
        }
    }
}

/// Sets a header whose value is made at run time.
pub(crate) fn add_header(response: &mut Response<Body>, name: HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::from_str(text) {
        response.headers_mut().insert(name, value);
    }
}
