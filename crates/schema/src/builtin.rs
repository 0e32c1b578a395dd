//! What k8s-openapi does not say about the types of Kubernetes.

use serde_json::{Value, json};

use crate::facts::{FACTS, Fact};

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
pub(crate) fn complete(name: &str, schema: &mut Value) {
    for (_, facts) in FACTS.iter().filter(|(short, _)| full_name(short) == name) {
        for fact in *facts {
            state(fact, schema);
        }
    }
}

fn full_name(short: &str) -> String {
    if short.starts_with("meta.") {
        format!("io.k8s.apimachinery.pkg.apis.{short}")
    } else {
        format!("io.k8s.api.{short}")
    }
}

fn state(fact: &Fact, schema: &mut Value) {
    match fact {
        Fact::Atomic => schema["x-kubernetes-map-type"] = "atomic".into(),
        Fact::AtomicList(fields) => {
            for field in *fields {
                schema["properties"][field]["x-kubernetes-list-type"] = "atomic".into();
            }
        }
        Fact::MapList(field, keys) => {
            schema["properties"][field]["x-kubernetes-list-type"] = "map".into();
            schema["properties"][field]["x-kubernetes-list-map-keys"] = json!(keys);
        }
        Fact::Default(field, value) => {
            schema["properties"][field]["default"] = parse(value);
            make_optional(schema, field);
        }
        Fact::Bound(field, keyword, value) => schema["properties"][field][keyword] = parse(value),
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

fn parse(json: &str) -> Value {
    serde_json::from_str(json).expect("values in the table are JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Types, of};

    #[test]
    fn a_row_holds_wherever_the_type_is_embedded() {
        let probe = of::<k8s_openapi::api::core::v1::Probe>(Types::Anonymous);
        assert_eq!(probe["properties"]["grpc"]["properties"]["service"]["default"], "");
        assert_eq!(probe["properties"]["exec"]["properties"]["command"]["x-kubernetes-list-type"], "atomic");
    }
}
