//! API errors: `metav1.Status` with reason, code, message and causes, worded as by kube-apiserver.

use serde_json::{Value, json};

use crate::registry::Resource;

/// One field error: an entry of `details.causes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// `FieldValueRequired`, `FieldValueInvalid`, `FieldValueNotSupported` …
    pub reason: &'static str,
    /// The message without the field: `Invalid value: "x": must be …`.
    pub message: String,
    /// Field path, as in `spec.containers[0].name`.
    pub field: String,
}

/// An error response: `metav1.Status` with status `Failure`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    /// HTTP status code.
    pub code: u16,
    /// Machine-readable reason: `NotFound`, `Conflict` …
    pub reason: &'static str,
    /// Human-readable message.
    pub message: String,
    /// `details` of the Status, `Null` if absent.
    pub details: Value,
    /// `metadata.continue`: token to continue a list whose snapshot was compacted.
    pub continue_token: Option<String>,
}

/// Result of a server operation.
pub type Result<T, E = Status> = std::result::Result<T, E>;

impl Status {
    /// A Status with only code, reason and message.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Value::Null, continue_token: None }
    }

    /// 404 for a named object.
    pub fn not_found(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", resource.group_resource());
        Self::new(404, "NotFound", message).about(resource, name)
    }

    /// 404 for a path or resource that is not served.
    pub fn no_such_resource() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource").with_details(json!({}))
    }

    /// 409 on create.
    pub fn already_exists(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", resource.group_resource());
        Self::new(409, "AlreadyExists", message).about(resource, name)
    }

    /// 409: the object is not in the state that the caller expects.
    pub fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", resource.group_resource());
        Self::new(409, "Conflict", message).about(resource, name)
    }

    /// 409: the object was modified since the caller read it.
    pub fn modified(resource: &Resource, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }

    /// 422 with one cause per bad field.
    pub fn invalid(kind: &str, group: &str, name: &str, causes: Vec<Cause>) -> Self {
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let mut lines: Vec<String> = Vec::with_capacity(causes.len());
        for cause in &causes {
            let line = format!("{}: {}", cause.field, cause.message);
            // kube-apiserver lists every cause, but repeats no text in the message.
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        let text = match lines.as_slice() {
            [] => String::new(),
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let causes: Vec<Value> = causes
            .iter()
            .map(|cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field}))
            .collect();
        let mut details = json!({"causes": causes});
        for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                details[key] = value.into();
            }
        }
        Self::new(422, "Invalid", format!("{qualified} \"{name}\" is invalid: {text}")).with_details(details)
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 403 from the RBAC authorizer or an admission plugin.
    pub fn forbidden(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", resource.group_resource());
        Self::new(403, "Forbidden", message).about(resource, name)
    }

    /// 410: the resource version was compacted.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 500.
    pub fn internal(message: impl std::fmt::Display) -> Self {
        let cause = serde_json::json!({"message": message.to_string()});
        Self::new(500, "InternalError", format!("Internal error occurred: {message}"))
            .with_details(serde_json::json!({"causes": [cause]}))
    }

    /// Adds `details`.
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = details;
        self
    }

    fn about(self, resource: &Resource, name: &str) -> Self {
        let mut details = json!({"name": name, "kind": &*resource.plural});
        if !resource.group.is_empty() {
            details["group"] = (*resource.group).into();
        }
        self.with_details(details)
    }

    /// The JSON of the response.
    pub fn to_json(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if let Some(token) = &self.continue_token {
            status["metadata"]["continue"] = token.as_str().into();
        }
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }
}
