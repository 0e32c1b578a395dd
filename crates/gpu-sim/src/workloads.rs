//! Objects with faults: unsatisfiable workloads and invalid settings.

use serde_json::{Map, Value, json};

/// Name of every object here.
const NAME: &str = "faulty";

fn meta(namespace: &str) -> Value {
    json!({"name": NAME, "namespace": namespace})
}

/// A workload with one pod that requests devices; `more` is merged into the pod spec.
pub(crate) fn deployment(namespace: &str, more: Value, devices: &[(&str, u32)]) -> Value {
    let limits: Map<String, Value> =
        devices.iter().map(|(name, count)| ((*name).to_owned(), count.to_string().into())).collect();
    let mut pod =
        json!({"containers": [{"name": "main", "image": "registry.example/train:1", "resources": {"limits": limits}}]});
    for (key, value) in more.as_object().into_iter().flatten() {
        pod[key] = value.clone();
    }
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta(namespace),
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": NAME}},
            "template": {"metadata": {"labels": {"app": NAME}}, "spec": pod},
        },
    })
}

fn key(namespace: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ngc-api-secret", "namespace": namespace},
        "stringData": {"NGC_API_KEY": "none"},
    })
}

/// A model server with its own volume.
pub(crate) fn service(namespace: &str, storage_class: Option<&str>) -> Vec<Value> {
    let mut claim = json!({"create": true, "size": "10Gi", "volumeAccessMode": "ReadWriteOnce"});
    if let Some(class) = storage_class {
        claim["storageClass"] = class.into();
    }
    let service = json!({
        "apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NIMService", "metadata": meta(namespace),
        "spec": {
            "image": {"repository": format!("nvcr.io/nim/{namespace}/model"), "tag": "1.0", "pullSecrets": []},
            "authSecret": "ngc-api-secret", "storage": {"pvc": claim}, "replicas": 1,
            "expose": {"service": {"port": 8000}},
        },
    });
    vec![key(namespace), service]
}

/// A model cache with a profile that its image does not have.
pub(crate) fn cache(namespace: &str) -> Vec<Value> {
    let cache = json!({
        "apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NIMCache", "metadata": meta(namespace),
        "spec": {
            "source": {"ngc": {
                "modelPuller": "nvcr.io/nim/meta/llama-3.1-8b-instruct:1.8", "authSecret": "ngc-api-secret",
                "model": {"engine": "tensorrt_llm", "precision": "fp4", "tensorParallelism": "8"},
            }},
            "storage": {"pvc": {"create": true, "size": "10Gi", "volumeAccessMode": "ReadWriteOnce"}},
        },
    });
    vec![key(namespace), cache]
}

/// A ResourceQuota without GPUs.
pub(crate) fn quota(namespace: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta(namespace),
        "spec": {"hard": {"requests.nvidia.com/gpu": "0"}},
    })
}

/// A policy for virtual functions.
pub(crate) fn functions(namespace: &str, selector: Value) -> Value {
    json!({
        "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkNodePolicy", "metadata": meta(namespace),
        "spec": {"resourceName": "rails", "numVfs": 16, "nodeSelector": selector, "nicSelector": {"pfNames": ["eth2"]}},
    })
}

/// The state of a node whose firmware allows half of the requested virtual functions.
pub(crate) fn function_state(namespace: &str, node: &str) -> Value {
    let groups = json!([{"policyName": NAME, "resourceName": "rails", "vfRange": "0-15"}]);
    json!({
        "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkNodeState",
        "metadata": {"name": node, "namespace": namespace},
        "spec": {"interfaces": [{"pciAddress": "0000:5e:00.0", "numVfs": 16, "name": "eth2", "vfGroups": groups}]},
        "status": {
            "syncStatus": "Failed", "lastSyncError": "numVfs 16 is more than totalvfs 8 of eth2",
            "interfaces": [{"pciAddress": "0000:5e:00.0", "name": "eth2", "totalvfs": 8}],
        },
    })
}

/// A NodeFeature with eight GPUs on the PCI bus.
pub(crate) fn features(namespace: &str, node: &str) -> Value {
    let gpu = json!({"attributes": {"vendor": "10de", "class": "0302", "device": "2335"}});
    json!({
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1", "kind": "NodeFeature",
        "metadata": {"name": node, "namespace": namespace, "labels": {"nfd.node.kubernetes.io/node-name": node}},
        "spec": {"features": {"instances": {"pci.device": {"elements": vec![gpu; 8]}}}},
    })
}

/// A webhook without a server.
pub(crate) fn webhook(namespace: &str) -> Vec<Value> {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": meta(namespace),
        "spec": {"selector": {"app": "nobody"}, "ports": [{"port": 443, "targetPort": 9443}]},
    });
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": NAME},
        "webhooks": [{
            "name": "vnimbuild-v1alpha1.kb.io", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"service": {"name": NAME, "namespace": namespace, "path": "/validate", "port": 443}},
            "failurePolicy": "Fail", "timeoutSeconds": 5,
            "rules": [{
                "apiGroups": ["apps.nvidia.com"], "apiVersions": ["v1alpha1"], "operations": ["CREATE", "UPDATE"],
                "resources": ["nimbuilds"], "scope": "Namespaced",
            }],
        }],
    });
    vec![service, configuration]
}
