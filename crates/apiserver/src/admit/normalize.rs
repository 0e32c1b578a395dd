//! Normalization of built-in objects: encoded as from Go structs, with canonical quantities and times.

use serde_json::Value;

use crate::clock;
use crate::schema::{Child, Schema, decode};
use capstan_semantics::Quantity;

const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Time";
const MICRO_TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime";

/// Normalizes a built-in object to the form in which kube-apiserver stores it.
pub(super) fn normalize(schema: &Schema, object: &mut Value) {
    // Decoding errors were reported when the request was decoded.
    drop(decode::typed(schema, object));
    node(schema, object);
}

fn node(schema: &Schema, value: &mut Value) {
    match &*schema.name {
        QUANTITY => return quantity(value, false),
        TIME => return time(value, clock::seconds),
        MICRO_TIME => return time(value, |time| time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()),
        _ => {}
    }
    match value {
        Value::Object(members) if !schema.properties.is_empty() => {
            for (key, value) in members {
                if let Some(child) = schema.properties.get(key.as_str()).filter(|_| needs_normalizing(value)) {
                    node(child.schema(), value);
                }
            }
        }
        Value::Object(members) => {
            let Some(values) = schema.additional.as_ref().map(Child::schema) else { return };
            let amounts = &*values.name == QUANTITY;
            for value in members.values_mut() {
                if amounts { quantity(value, true) } else { node(values, value) }
            }
        }
        Value::Array(items) => {
            if let Some(item) = schema.items() {
                items.iter_mut().for_each(|value| node(item, value));
            }
        }
        _ => {}
    }
}

fn needs_normalizing(value: &Value) -> bool {
    !matches!(value, Value::Null | Value::Bool(_))
}

fn quantity(value: &mut Value, in_list: bool) {
    if let Ok(parsed) = Quantity::from_json(value) {
        // Resource lists are rounded up to milli-units.
        let parsed = if in_list { parsed.rounded() } else { parsed };
        *value = parsed.to_string().into();
    }
}

fn time(value: &mut Value, write: impl Fn(jiff::Timestamp) -> String) {
    if let Some(time) = value.as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok()) {
        *value = write(time).into();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::registry::Registry;

    fn tidied(api: &str, kind: &str, mut object: Value) -> Value {
        let (group, version) = crate::registry::group_version(api);
        let resource = Registry::builtin().by_kind(group, version, kind).expect(kind);
        normalize(resource.schema(), &mut object);
        object
    }

    #[test]
    fn zero_values_go_and_pointers_stay() {
        let spec = json!({
            "hostNetwork": false, "automountServiceAccountToken": false, "nodeSelector": {}, "volumes": [], "nodeName": "",
            "securityContext": {}, "terminationGracePeriodSeconds": 0, "affinity": null,
            "containers": [{
                "name": "a", "stdin": false, "env": [{"name": "A", "value": ""}], "command": ["", "x"],
                "resources": {"limits": {}}, "securityContext": {"privileged": false},
            }],
        });
        let pod = json!({"metadata": {"name": "p", "labels": {"a": ""}, "annotations": {}}, "spec": spec});
        let expected = json!({"metadata": {"name": "p", "labels": {"a": ""}}, "status": {}, "spec": {
            "automountServiceAccountToken": false, "securityContext": {}, "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "a", "env": [{"name": "A"}], "command": ["", "x"], "resources": {},
                "securityContext": {"privileged": false},
            }],
        }});
        assert_eq!(tidied("v1", "Pod", pod), expected);
        let lease = json!({"metadata": {}, "spec": {"holderIdentity": ""}});
        assert_eq!(tidied("coordination.k8s.io/v1", "Lease", lease.clone()), lease);
    }

    #[test]
    fn amounts_and_times_are_canonical() {
        let limits = json!({"cpu": 0.5, "memory": "1024Mi", "x.io/y": "0.1m"});
        let pod = json!({
            "metadata": {"creationTimestamp": "2026-01-01T01:00:00.5+01:00"},
            "spec": {"containers": [{"name": "a", "resources": {"limits": limits}}]},
        });
        let pod = tidied("v1", "Pod", pod);
        let limits = json!({"cpu": "500m", "memory": "1Gi", "x.io/y": "1m"});
        assert_eq!(pod["spec"]["containers"][0]["resources"]["limits"], limits);
        assert_eq!(pod["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");
        let lease = json!({"spec": {"renewTime": "2026-01-01T02:00:00.000001+02:00"}});
        let lease = tidied("coordination.k8s.io/v1", "Lease", lease);
        assert_eq!(lease["spec"]["renewTime"], "2026-01-01T00:00:00.000001Z");
    }
}
