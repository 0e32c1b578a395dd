//! OpenAPI documents, as far as kubectl and other clients read them: v3 has one per group and version; v2 is one
//! document, also in the protobuf encoding that older clients require.
//!
//! Documents are generated on first use and cached until the registry changes.

mod paths;
mod proto;
mod schemas;
mod v2;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::Response;
use http::header::{ETAG, IF_NONE_MATCH, VARY};
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value, json};

use super::api::{Call, Inner};
use super::body::Body;
use super::media::header;
use super::non_resource::MINOR;
use super::respond;
use crate::registry::{Resource, Snapshot, api_version};

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";
/// Media type of the v2 protobuf encoding.
const PROTO: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The cached documents.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    cache: Mutex<Cache>,
}

#[derive(Debug, Default)]
struct Cache {
    generation: u64,
    documents: BTreeMap<String, Document>,
}

/// A document: its text and hash.
#[derive(Clone, Debug)]
struct Document {
    text: Bytes,
    hash: String,
}

impl Document {
    fn new(text: impl Into<Bytes>) -> Self {
        let text = text.into();
        let hash = digest(&SHA256, &text).as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
        Self { text, hash }
    }
}

impl Documents {
    /// Handles a request for `/openapi/…`.
    pub(super) fn answer(&self, inner: &Inner, call: &Call, parts: &[&str]) -> Response<Body> {
        let snapshot = inner.server.registry().snapshot();
        match parts {
            ["v2"] => self.version_2(inner, call, &snapshot),
            ["v3"] => respond::answer(200, TEXT, index(&snapshot).to_string()),
            ["v3", "api" | "apis", ..] => {
                let path = parts[1..].join("/");
                let Some((group, version)) = group_version(&snapshot, &path) else { return nothing() };
                let document = self.get(&snapshot, &format!("v3/{path}"), || {
                    version_3(inner, &snapshot, &group, &version).to_string().into()
                });
                send(call, document, JSON)
            }
            _ => nothing(),
        }
    }

    fn version_2(&self, inner: &Inner, call: &Call, snapshot: &Snapshot) -> Response<Body> {
        let accept = header(&call.headers, http::header::ACCEPT.as_str());
        if accept.starts_with("application/com.github.proto-openapi.spec.v2") {
            let make = || proto::encode(&v2::document(inner, snapshot)).into();
            return send(call, self.get(snapshot, "v2.proto", make), PROTO);
        }
        send(call, self.get(snapshot, "v2", || v2::document(inner, snapshot).to_string().into()), JSON)
    }

    fn get(&self, snapshot: &Snapshot, key: &str, make: impl FnOnce() -> Bytes) -> Document {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.generation != snapshot.generation {
            *cache = Cache { generation: snapshot.generation, documents: BTreeMap::new() };
        }
        cache.documents.entry(key.to_owned()).or_insert_with(|| Document::new(make())).clone()
    }
}

/// 404 without a body.
fn nothing() -> Response<Body> {
    let mut response = respond::answer(404, TEXT, Body::empty());
    response.headers_mut().remove(http::header::CONTENT_TYPE);
    response
}

fn send(call: &Call, document: Document, content_type: &'static str) -> Response<Body> {
    let etag = format!("\"{}\"", document.hash);
    let unchanged = header(&call.headers, IF_NONE_MATCH.as_str()) == etag;
    let mut response = if unchanged {
        respond::answer(304, content_type, Body::empty())
    } else {
        respond::answer(200, content_type, document.text)
    };
    respond::add_header(&mut response, ETAG, &etag);
    respond::add_header(&mut response, VARY, "Accept");
    response
}

/// `api/v1` or `apis/apps/v1`.
fn path_of(group: &str, version: &str) -> String {
    let root = if group.is_empty() { "api" } else { "apis" };
    format!("{root}/{}", api_version(group, version))
}

/// Group and version of such a path, if served.
fn group_version(snapshot: &Snapshot, path: &str) -> Option<(String, String)> {
    let found = snapshot.iter().find(|resource| path_of(&resource.group, &resource.version) == path)?;
    Some((found.group.to_string(), found.version.to_string()))
}

/// The index of v3 documents. The hash changes with the registry, so that clients fetch again.
fn index(snapshot: &Snapshot) -> Value {
    let mut paths = Map::new();
    for resource in snapshot.iter() {
        let path = path_of(&resource.group, &resource.version);
        let text = format!("{path}@{}", snapshot.generation);
        let hash: String = digest(&SHA256, text.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
        paths
            .entry(path.clone())
            .or_insert_with(|| json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}")}));
    }
    json!({"paths": paths})
}

fn version_3(inner: &Inner, snapshot: &Snapshot, group: &str, version: &str) -> Value {
    let served: Vec<&Arc<Resource>> =
        snapshot.iter().filter(|r| &*r.group == group && &*r.version == version).collect();
    let mut paths = Map::new();
    let mut schemas_used = schemas::SchemaSet::default();
    for resource in served {
        let name = schemas_used.add(inner, resource);
        paths::add(&mut paths, resource, &name);
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": format!("v1.{MINOR}.0")},
        "paths": paths,
        "components": {
            "schemas": schemas_used.finish(),
            "securitySchemes": {"BearerToken": {
                "description": "Bearer Token authentication", "in": "header", "name": "authorization", "type": "apiKey",
            }},
        },
        "security": [{"BearerToken": []}],
    })
}
