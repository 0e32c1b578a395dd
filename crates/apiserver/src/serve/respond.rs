//! Construction of HTTP responses.

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

use super::body::Body;
use super::media::Media;
use crate::error::Status;
use crate::faults::is_disconnected;

/// A response of this media type.
pub(crate) fn answer(code: u16, content_type: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// A response with JSON text, converted to the negotiated format.
pub(crate) fn text(code: u16, media: Media, json: Vec<u8>) -> Response<Body> {
    answer(code, media.content_type(), media.finish(json))
}

/// A response with a value, in the negotiated format.
pub(crate) fn value(code: u16, media: Media, value: &Value) -> Response<Body> {
    answer(code, media.content_type(), media.write(value))
}

/// No response: an injected fault dropped the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("connection lost")]
pub struct Disconnected;

/// An error response.
pub(crate) fn failure(media: Media, status: &Status) -> Response<Body> {
    let mut response = value(status.code, media, &status.to_json());
    if is_disconnected(status) {
        response.extensions_mut().insert(Disconnected);
    }
    if let Some(seconds) = status.details.get("retryAfterSeconds").filter(|_| status.code == 429) {
        add_header(&mut response, http::header::RETRY_AFTER, &seconds.to_string());
    }
    response
}

/// A success Status.
pub(crate) fn success(code: u16, media: Media, details: Value) -> Response<Body> {
    let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
    if !details.is_null() {
        status["details"] = details;
    }
    value(code, media, &status)
}

/// 404 as plain text, for a path that is not served.
pub(crate) fn no_page() -> Response<Body> {
    let mut response = answer(404, "text/plain; charset=utf-8", "404 page not found\n".to_owned());
    let sniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert("x-content-type-options", sniff);
    response
}

/// Adds `Warning` headers, without duplicates.
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

/// Adds a header with a dynamic value.
pub(crate) fn add_header(response: &mut Response<Body>, name: HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::from_str(text) {
        response.headers_mut().insert(name, value);
    }
}
