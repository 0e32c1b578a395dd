//! Content negotiation.

use bytes::Bytes;
use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use serde_json::{Value, json};

use super::query::Query;
use crate::error::{Result, Status};
use crate::ops::PatchKind;

/// Serialization format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    /// JSON.
    #[default]
    Json,
    /// Indented JSON.
    PrettyJson,
    /// YAML.
    Yaml,
}

/// Representation of the objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum View {
    /// Full objects.
    #[default]
    Full,
    /// A table, in this version of `meta.k8s.io`.
    Table(&'static str),
    /// Metadata only, in this version of `meta.k8s.io`.
    Metadata(&'static str),
}

/// Negotiated media type of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Media {
    /// Serialization format.
    pub(crate) format: Format,
    /// Representation.
    pub(crate) view: View,
}

impl Media {
    /// The client's preferred media type among those supported.
    pub(crate) fn negotiate(headers: &HeaderMap, query: &Query) -> Result<Self> {
        let text = header(headers, ACCEPT.as_str());
        let mut media = if text.is_empty() { Some(Self::default()) } else { None };
        let clauses = clauses(&text);
        for clause in &clauses {
            media = media.or_else(|| Self::from_clause(clause));
        }
        let mut media = media.ok_or_else(|| not_acceptable(&clauses))?;
        if media.format == Format::Json && pretty(headers, query) {
            media.format = Format::PrettyJson;
        }
        Ok(media)
    }

    fn from_clause(clause: &Clause) -> Option<Self> {
        let format = match clause.media_type.as_str() {
            "application/json" | "application/*" | "*/*" => Format::Json,
            "application/yaml" => Format::Yaml,
            _ => return None,
        };
        let parameter = |name: &str| clause.parameter(name);
        let view = match parameter("as") {
            None => View::Full,
            Some(kind) => {
                let version = match (parameter("g"), parameter("v")) {
                    (Some("meta.k8s.io"), Some("v1")) => "v1",
                    (Some("meta.k8s.io"), Some("v1beta1")) => "v1beta1",
                    _ => return None,
                };
                match kind {
                    "Table" => View::Table(version),
                    "PartialObjectMetadata" | "PartialObjectMetadataList" => View::Metadata(version),
                    _ => return None,
                }
            }
        };
        Some(Self { format, view })
    }

    /// The same format, with full objects.
    pub(crate) fn plain(self) -> Self {
        Self { view: View::Full, ..self }
    }

    /// `Content-Type` of the response.
    pub(crate) fn content_type(self) -> &'static str {
        match self.format {
            Format::Json | Format::PrettyJson => "application/json",
            Format::Yaml => "application/yaml",
        }
    }

    /// Serializes a value in this format.
    pub(crate) fn write(self, value: &Value) -> Vec<u8> {
        match self.format {
            Format::Json => serde_json::to_vec(value).expect("a JSON value encodes"),
            Format::PrettyJson => serde_json::to_vec_pretty(value).expect("a JSON value encodes"),
            Format::Yaml => yaml(value),
        }
    }

    /// Converts JSON text to this format.
    pub(crate) fn finish(self, json: Vec<u8>) -> Vec<u8> {
        if self.format == Format::Json {
            return json;
        }
        match serde_json::from_slice(&json) {
            Ok(value) => self.write(&value),
            Err(_) => json,
        }
    }
}

const KNOWN: [&str; 3] = ["application/json", "application/yaml", PROTOBUF];

/// 406: the router rejects unknown media types, the handler unsupported representations of known ones.
fn not_acceptable(clauses: &[Clause]) -> Status {
    if clauses.iter().any(|clause| KNOWN.contains(&clause.media_type.as_str())) {
        return not_accepted();
    }
    let message = format!(
        "406: Not Acceptable\n\nAvailable representations: {}, application/json;stream=watch, {PROTOBUF};stream=watch",
        KNOWN.join(", ")
    );
    Status::new(406, "NotAcceptable", message).with_details(json!({}))
}

/// 406 as the handler words it.
pub(crate) fn not_accepted() -> Status {
    let message = format!("only the following media types are accepted: {}", KNOWN.join(", "));
    Status::new(406, "NotAcceptable", message)
}

fn yaml(value: &Value) -> Vec<u8> {
    serde_saphyr::to_string(value).unwrap_or_else(|_| value.to_string()).into_bytes()
}

/// One media range of an `Accept` header.
struct Clause {
    media_type: String,
    parameters: Vec<(String, String)>,
    quality: f32,
}

impl Clause {
    fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// The media ranges, by quality.
fn clauses(text: &str) -> Vec<Clause> {
    let mut clauses: Vec<Clause> = text
        .split(',')
        .map(|clause| {
            let mut parts = clause.split(';').map(str::trim);
            let media_type = parts.next().unwrap_or_default().to_ascii_lowercase();
            let parameters: Vec<(String, String)> = parts
                .filter_map(|part| part.split_once('='))
                .map(|(key, value)| (key.trim().to_owned(), value.trim().trim_matches('"').to_owned()))
                .collect();
            let quality = parameters.iter().find(|(key, _)| key == "q").and_then(|(_, value)| value.parse().ok());
            Clause { media_type, parameters, quality: quality.unwrap_or(1.0) }
        })
        .collect();
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    clauses
}

fn pretty(headers: &HeaderMap, query: &Query) -> bool {
    if let Some(pretty) = query.first("pretty").filter(|pretty| !pretty.is_empty()) {
        return matches!(pretty, "1" | "true");
    }
    let agent = header(headers, USER_AGENT.as_str());
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|browser| agent.starts_with(browser))
}

/// The values of a header, joined.
pub(crate) fn header(headers: &HeaderMap, name: &str) -> String {
    let values: Vec<&str> = headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
    values.join(",")
}

/// The media type of a request body, without parameters; JSON by default.
fn content_type(headers: &HeaderMap) -> String {
    let text = header(headers, CONTENT_TYPE.as_str());
    let text = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if text.is_empty() { "application/json".into() } else { text }
}

/// Sent by Go clients with generated types.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The body of a write as JSON text, converted from YAML or protobuf, which only built-in kinds support.
pub(crate) fn json_body(headers: &HeaderMap, body: Bytes, builtin: bool) -> Result<Bytes> {
    match content_type(headers).as_str() {
        "application/json" => Ok(body),
        "application/yaml" => yaml_to_json(&body),
        PROTOBUF if builtin => super::protobuf::to_json(&body),
        _ => Err(unsupported(&["application/json", "application/yaml", PROTOBUF])),
    }
}

/// The patch type of a request.
pub(crate) fn patch_kind(headers: &HeaderMap, builtin: bool) -> Result<PatchKind> {
    match content_type(headers).as_str() {
        "application/json-patch+json" => Ok(PatchKind::Json),
        "application/merge-patch+json" => Ok(PatchKind::Merge),
        "application/strategic-merge-patch+json" if builtin => Ok(PatchKind::Strategic),
        "application/apply-patch+yaml" => Ok(PatchKind::Apply),
        // The router of built-in resources knows the media types of its routes, and words the error itself.
        _ if builtin => {
            Err(Status::new(415, "UnsupportedMediaType", "415: Unsupported Media Type").with_details(json!({})))
        }
        _ => Err(unsupported(&[
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/apply-patch+yaml",
        ])),
    }
}

/// YAML as JSON text. JSON is valid YAML, and is returned as it is.
pub(crate) fn yaml_to_json(text: &[u8]) -> Result<Bytes> {
    if text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{') {
        return Ok(Bytes::copy_from_slice(text));
    }
    let value: Value = serde_saphyr::from_slice(text)
        .map_err(|error| Status::bad_request(format!("error converting YAML to JSON: {error}")))?;
    Ok(serde_json::to_vec(&value).expect("a JSON value encodes").into())
}

/// A JSON syntax error as Go words it.
pub(crate) fn json_error(text: &[u8], error: &serde_json::Error) -> String {
    crate::syntax::fault(text).unwrap_or_else(|| error.to_string())
}

fn unsupported(accepted: &[&str]) -> Status {
    let list = accepted.join(", ");
    let message = format!("the body of the request was in an unknown format - accepted media types include: {list}");
    Status::new(415, "UnsupportedMediaType", message)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn accept(text: &'static str) -> Result<Media> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(text));
        Media::negotiate(&headers, &Query::default())
    }

    #[test]
    fn the_best_form_that_we_have_is_chosen() {
        let full = Media::default();
        let cases = [
            ("application/json", full),
            ("application/json, */*", full),
            ("application/vnd.kubernetes.protobuf,application/json", full),
            ("application/yaml;q=0.5,application/json;q=0.9", full),
            ("application/yaml", Media { format: Format::Yaml, ..full }),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
                Media { view: View::Table("v1"), ..full },
            ),
            ("application/json;as=Other;v=v1;g=meta.k8s.io,application/json", full),
            (
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                Media { view: View::Metadata("v1"), ..full },
            ),
        ];
        for (text, media) in cases {
            assert_eq!(accept(text), Ok(media), "{text}");
        }
        assert_eq!(accept("application/vnd.kubernetes.protobuf").unwrap_err().code, 406);
    }

    #[test]
    fn yaml_bodies_become_json() {
        assert_eq!(yaml_to_json(b"a: [1, x]\nb: null\n").unwrap(), r#"{"a":[1,"x"],"b":null}"#);
        assert_eq!(yaml_to_json(b"a: [1").unwrap_err().code, 400);
    }
}
