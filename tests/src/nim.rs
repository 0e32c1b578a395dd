//! Shared parts of NIM stories: a minimal service, and predicates on status.

use serde_json::{Value, json};

/// API version of the NIM kinds.
pub const API: &str = "apps.nvidia.com/v1alpha1";

/// A NIMService on one GPU with its own volume.
pub fn service() -> Value {
    json!({
        "apiVersion": API, "kind": "NIMService", "metadata": {"name": "llama"},
        "spec": {
            "image": {"repository": "nvcr.io/nim/meta/llama-3.1-8b-instruct", "tag": "1.8"},
            "storage": {"pvc": {"create": true, "size": "50Gi"}},
            "replicas": 1,
            "resources": {"limits": {"nvidia.com/gpu": 1}},
        },
    })
}

/// Whether an object is in that state.
pub fn state(wanted: &'static str) -> impl Fn(&Value) -> bool {
    move |object| object["status"]["state"] == wanted
}

/// The condition of that type; null if there is none.
pub fn condition<'a>(object: &'a Value, type_: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().find(|one| one["type"] == type_).unwrap_or(&Value::Null)
}

/// Third-party kinds that NIM services may create: group, version, kind, plural.
pub const FOREIGN: [(&str, &str, &str, &str); 6] = [
    ("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes"),
    ("gateway.networking.k8s.io", "v1", "GRPCRoute", "grpcroutes"),
    ("inference.networking.k8s.io", "v1", "InferencePool", "inferencepools"),
    ("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors"),
    ("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets"),
    ("serving.kserve.io", "v1beta1", "InferenceService", "inferenceservices"),
];
