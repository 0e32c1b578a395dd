//! AdmissionReview v1: request and response.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The operation on the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// Creation.
    Create,
    /// Update.
    Update,
    /// Deletion.
    Delete,
    /// A connection, such as exec.
    Connect,
}

/// The admission request.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Review {
    uid: String,
    /// The operation.
    pub operation: Operation,
    /// Name of the object; empty with `generateName`.
    #[serde(default)]
    pub name: String,
    /// Namespace of the object.
    #[serde(default)]
    pub namespace: String,
    /// The new object.
    #[serde(default)]
    pub object: Value,
    /// The old object.
    #[serde(default)]
    pub old_object: Value,
}

/// The admission response: allowed if there are no errors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Errors, each with its field.
    pub errors: Vec<String>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

/// Encodes the response of `check` to the review in `body`.
pub(super) fn respond(body: &[u8], check: &dyn Fn(&Review) -> Verdict) -> Result<Vec<u8>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Envelope {
        request: Review,
    }
    let Envelope { request: review } = serde_json::from_slice(body)?;
    let Verdict { errors, warnings } = check(&review);
    let mut response = json!({"uid": review.uid, "allowed": errors.is_empty()});
    if !warnings.is_empty() {
        response["warnings"] = warnings.into();
    }
    if !errors.is_empty() {
        let message = match errors.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        response["status"] = json!({"code": 422, "reason": "Invalid", "message": message});
    }
    serde_json::to_vec(&json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(check: fn(&Review) -> Verdict) -> Value {
        let request = json!({"uid": "u1", "operation": "UPDATE", "object": {"spec": {"a": 1}}, "oldObject": null});
        let body = json!({"kind": "AdmissionReview", "request": request}).to_string();
        serde_json::from_slice::<Value>(&respond(body.as_bytes(), &check).unwrap()).unwrap()["response"].clone()
    }

    #[test]
    fn errors_deny_and_warnings_do_not() {
        assert_eq!(ask(|_| Verdict::default()), json!({"uid": "u1", "allowed": true}));
        let warned = ask(|review| {
            assert_eq!((review.operation, review.object["spec"]["a"].as_i64()), (Operation::Update, Some(1)));
            Verdict { warnings: vec!["deprecated".into()], ..Verdict::default() }
        });
        assert_eq!(warned, json!({"uid": "u1", "allowed": true, "warnings": ["deprecated"]}));
        let denied = ask(|_| Verdict { errors: vec!["a".into(), "b".into()], ..Verdict::default() });
        assert_eq!(denied["allowed"], false);
        assert_eq!(denied["status"], json!({"code": 422, "reason": "Invalid", "message": "[a, b]"}));
    }

    #[test]
    fn what_is_no_review_is_an_error() {
        assert!(respond(b"{}", &|_| Verdict::default()).is_err());
    }
}
