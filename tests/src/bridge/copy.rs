//! Fields copied between the real server and that of the virtual nodes.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use serde_json::{Map, Value, json};

/// Annotation of a copy: the UID of the original pod.
pub(super) const UID: &str = "capstan.test/uid";

/// Pod fields that are set by the real server, or reference objects that only it has.
const OF_POD: &[&str] = &[
    "affinity",
    "ephemeralContainers",
    "imagePullSecrets",
    "nodeSelector",
    "overhead",
    "preemptionPolicy",
    "priority",
    "priorityClassName",
    "resourceClaims",
    "runtimeClassName",
    "serviceAccount",
    "serviceAccountName",
    "volumes",
];
/// The same for containers.
const OF_CONTAINER: &[&str] = &["envFrom", "volumeDevices", "volumeMounts"];

/// The copy of a pod for its node.
pub(super) fn pod(pod: &Pod) -> Pod {
    let mut spec = json!(pod.spec);
    drop_fields(&mut spec, OF_POD);
    spec["automountServiceAccountToken"] = false.into();
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            drop_fields(container, OF_CONTAINER);
            if let Some(resources) = container.get_mut("resources") {
                drop_fields(resources, &["claims"]);
            }
            if let Some(variables) = container.get_mut("env").and_then(Value::as_array_mut) {
                variables.retain(|variable| variable["valueFrom"].is_null());
            }
        }
    }
    let metadata = json!({
        "name": pod.name_any(), "namespace": pod.namespace(), "labels": pod.labels(),
        "annotations": {UID: pod.uid()},
    });
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a pod")
}

/// Status of a pod from its node, for the real server.
pub(super) fn pod_status(copy: &Pod, pod: &Pod) -> Value {
    let mut status = json!(copy.status);
    // The real server tracks generations itself, and the QoS class is immutable.
    drop_fields(&mut status, &["observedGeneration", "qosClass"]);
    json!({"metadata": {"uid": pod.uid()}, "status": status})
}

/// The node for the real server.
pub(super) fn node(node: &Node) -> Node {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone());
    let metadata = json!({"name": node.name_any(), "labels": node.labels()});
    serde_json::from_value(json!({"metadata": metadata, "spec": {"taints": taints}})).expect("a node")
}

/// The merge patch to the node labels of the real server; `None` if they are equal.
pub(super) fn labels(real: &Node, node: &Node) -> Option<Value> {
    let gone = node.labels().keys().filter(|key| !real.labels().contains_key(*key));
    let gone = gone.map(|key| (key.clone(), Value::Null));
    let other = real.labels().iter().filter(|(key, value)| node.labels().get(*key) != Some(value));
    let change: Map<String, Value> = other.map(|(key, value)| (key.clone(), json!(value))).chain(gone).collect();
    (!change.is_empty()).then_some(Value::Object(change))
}

/// The node status, with the port of the log server on this machine.
pub(super) fn node_status(node: &Node, port: u16) -> Value {
    let mut status = json!(node.status);
    status["addresses"] = json!([{"type": "InternalIP", "address": "127.0.0.1"}]);
    status["daemonEndpoints"] = json!({"kubeletEndpoint": {"Port": port}});
    json!({"status": status})
}

fn drop_fields(value: &mut Value, names: &[&str]) {
    let mut nothing = Map::new();
    let fields = value.as_object_mut().unwrap_or(&mut nothing);
    fields.retain(|name, _| !names.contains(&name.as_str()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_gets_the_labels_that_the_real_server_has() {
        let node = |labels: Value| serde_json::from_value::<Node>(json!({"metadata": {"labels": labels}})).unwrap();
        let here = node(json!({"same": "1", "other": "1", "gone": "1"}));
        let real = node(json!({"same": "1", "other": "2", "new": "1"}));
        assert_eq!(labels(&real, &here), Some(json!({"other": "2", "new": "1", "gone": null})));
        assert_eq!(labels(&real, &real), None);
    }

    #[test]
    fn a_copy_names_nothing_that_its_server_does_not_have() {
        let real = json!({
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "ownerReferences": [
                {"apiVersion": "v1", "kind": "X", "name": "x", "uid": "y"}]},
            "spec": {
                "serviceAccountName": "x", "volumes": [{"name": "v"}], "nodeName": "gpu-0",
                "containers": [{
                    "name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                    "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}],
                }],
            },
        });
        let copy = json!(pod(&serde_json::from_value(real).unwrap()));
        assert_eq!(copy["spec"]["nodeName"], "gpu-0");
        assert_eq!(copy["spec"]["containers"][0]["env"], json!([{"name": "A", "value": "1"}]));
        assert_eq!(copy["metadata"]["annotations"][UID], "u");
        for gone in [
            "/spec/serviceAccountName",
            "/spec/volumes",
            "/spec/containers/0/volumeMounts",
            "/metadata/ownerReferences",
        ] {
            assert_eq!(copy.pointer(gone), None, "{gone}");
        }
    }
}
