//! Kubernetes types as CRDs embed them: k8s-openapi's fields, list types from the table, and a few markers.

use serde_json::{Value, json};

use crate::kubernetes::{self, Place};

/// Name prefix of Kubernetes' own definitions.
pub(crate) const PREFIX: &str = "io.k8s.";

const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// Full schema of a type that k8s-openapi describes too loosely.
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

/// Markers that Kubernetes' Go sources have and its OpenAPI document lacks: type, field, keyword, value.
const MARKERS: &[(&str, &str, &str, &str)] = &[
    ("core.v1.ConfigMapKeySelector", "name", "default", r#""""#),
    ("core.v1.ContainerPort", "protocol", "default", r#""TCP""#),
    ("core.v1.FileKeySelector", "optional", "default", "false"),
    ("core.v1.GRPCAction", "service", "default", r#""""#),
    ("core.v1.LocalObjectReference", "name", "default", r#""""#),
    ("core.v1.SecretKeySelector", "name", "default", r#""""#),
    ("meta.v1.Condition", "message", "maxLength", "32768"),
    ("meta.v1.Condition", "observedGeneration", "minimum", "0"),
    ("meta.v1.Condition", "reason", "maxLength", "1024"),
    ("meta.v1.Condition", "reason", "minLength", "1"),
    ("meta.v1.Condition", "reason", "pattern", r#""^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$""#),
    ("meta.v1.Condition", "status", "enum", r#"["True", "False", "Unknown"]"#),
    ("meta.v1.Condition", "type", "maxLength", "316"),
    ("meta.v1.Condition", "type", "pattern", CONDITION_TYPE),
];

const CONDITION_TYPE: &str = r#""^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$""#;

/// Adds list types, map keys, defaults and bounds to the schema of the Kubernetes type `name`, as CRDs embed it.
pub(crate) fn complete(name: &str, schema: &mut Value) {
    kubernetes::complete(name, schema, Place::Crd);
    for (_, field, keyword, value) in MARKERS.iter().filter(|(short, ..)| kubernetes::full_name(short) == name) {
        schema["properties"][field][keyword] = serde_json::from_str(value).expect("values in the table are JSON");
        if *keyword == "default" {
            make_optional(schema, field);
        }
    }
}

fn make_optional(schema: &mut Value, field: &str) {
    let Some(schema) = schema.as_object_mut() else { return };
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.retain(|name| name != field);
        if required.is_empty() {
            schema.remove("required");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Types, of};

    #[test]
    fn every_marker_is_about_a_field_that_exists() {
        for (short, field, ..) in MARKERS {
            let definition = crate::definition(&kubernetes::full_name(short)).unwrap();
            assert!(definition["properties"][field].is_object(), "{short} has no field {field}");
        }
    }

    #[test]
    fn a_marker_holds_wherever_the_type_is_embedded() {
        let probe = of::<k8s_openapi::api::core::v1::Probe>(Types::Anonymous);
        assert_eq!(probe["properties"]["grpc"]["properties"]["service"]["default"], "");
        assert_eq!(probe["properties"]["exec"]["properties"]["command"]["x-kubernetes-list-type"], "atomic");
    }
}
