//! JSON patch, JSON merge patch and strategic merge patch.

use serde_json::Value;

use crate::error::{Result, Status};
use crate::schema::Schema;

/// A patch that is applied to the live object, by its content type. Server-side apply is [`super::managed::apply`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `application/json-patch+json`
    Json,
    /// `application/merge-patch+json`
    Merge,
    /// `application/strategic-merge-patch+json`; built-in kinds only.
    Strategic,
}

/// The patch in a request body, which is JSON.
pub fn decode(_kind: Kind, body: &[u8]) -> Result<Value> {
    serde_json::from_slice(body).map_err(|error| Status::bad_request(error.to_string()))
}

/// `live` with `patch` applied. The result still has to be defaulted, validated and tracked.
pub fn apply(kind: Kind, live: &Value, patch: &Value, schema: &Schema) -> Result<Value> {
    let _ = (live, patch, schema);
    Err(Status::internal(format!("patch type {kind:?} is not served yet")))
}
