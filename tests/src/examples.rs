//! The examples of `examples/nim`, and their prerequisites besides the operator.

use std::time::Duration;

use serde_json::{Value, json};

use crate::nim::{API, FOREIGN};
use crate::world::World;

/// File names.
pub const NAMES: [&str; 12] = [
    "autoscaling",
    "build",
    "cache-huggingface",
    "cache-ngc",
    "cached",
    "devices",
    "gateway",
    "ingress",
    "kserve",
    "multi-node",
    "pipeline",
    "proxy",
];

/// Reads an example by file name.
pub fn read(name: &str) -> Value {
    let path = format!("{}/../examples/nim/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A cluster with the prerequisites of all examples, except caches and devices.
pub async fn world() -> World {
    with_prerequisites(World::start().await).await
}

/// The same, always embedded.
pub async fn world_in_virtual_time() -> World {
    with_prerequisites(World::start_in_virtual_time(2).await).await
}

async fn with_prerequisites(world: World) -> World {
    for (group, version, kind, plural) in FOREIGN {
        world.install(group, version, kind, plural).await;
    }
    for kind in ["NIMCache", "NIMBuild", "NIMPipeline", "ComputeDomain"] {
        world.install_ours(kind).await;
    }
    for name in ["ngc-api-secret", "ngc-secret", "hf-token"] {
        let data = json!({"NGC_API_KEY": "k", "HF_TOKEN": "t"});
        world
            .apply(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}))
            .await;
    }
    let certificates = json!({"ca.crt": ""});
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "company-ca"}, "data": certificates});
    world.apply(map).await;
    world
}

/// A cache that is already filled.
pub async fn ready_cache(world: &World, name: &str) {
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "models"},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    world.apply(claim).await;
    let cache = json!({
        "apiVersion": API, "kind": "NIMCache", "metadata": {"name": name},
        "spec": {
            "source": {"ngc": {"authSecret": "ngc-api-secret", "modelPuller": "nvcr.io/nim/meta/llama3:1.0"}},
            "storage": {"pvc": {"name": "models"}},
        },
    });
    world.apply(cache).await;
    let profile = "4f904d571fe60ff24695b5ee2aa42da58cb460787a968f1e8a09f5a7e862728d";
    let tags = json!({"tp": "1", "trtllm_buildable": "true"});
    let manifest = json!({profile: {"model": "meta/llama", "tags": tags}}).to_string();
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": format!("{name}-manifest"), "labels": {"app.kubernetes.io/managed-by": "k8s-nim-operator"}},
        "data": {"model_manifest.yaml": manifest},
    });
    world.apply(map).await;
    let status = json!({"state": "Ready", "pvc": "models", "profiles": [{"name": profile, "config": tags}]});
    world.write_status(API, "NIMCache", name, status).await;
}

/// Two GPUs on a node, as a DRA driver publishes them.
pub async fn gpus(world: &World) {
    let class = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu.nvidia.com"}, "spec": {}});
    world.apply(class).await;
    let device = |name: &str| json!({"name": name, "capacity": {"memory": {"value": "80Gi"}}});
    let slice = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "gpu-0-gpus"},
        "spec": {
            "driver": "gpu.nvidia.com", "nodeName": "gpu-0", "pool": {"name": "gpu-0", "generation": 1, "resourceSliceCount": 1},
            "devices": [device("gpu0"), device("gpu1")],
        },
    });
    world.apply(slice).await;
}

/// Simulates the controllers of other operators: marks their objects as ready.
pub async fn others(world: &World) {
    let available = json!({"conditions": [{"type": "Available", "status": "True"}], "replicas": 1, "readyReplicas": 1});
    let ready = json!({
        "conditions": [{"type": "PredictorReady", "status": "True"}], "deploymentMode": "Standard",
        "url": "http://model.example.com", "address": {"url": "http://model.default.svc"},
    });
    let theirs = [
        ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", available),
        ("serving.kserve.io/v1beta1", "InferenceService", ready),
    ];
    loop {
        for (api_version, kind, status) in &theirs {
            for object in world.list(api_version, kind).await.iter().filter(|object| object["status"].is_null()) {
                world
                    .write_status(
                        api_version,
                        kind,
                        object["metadata"]["name"].as_str().unwrap_or_default(),
                        status.clone(),
                    )
                    .await;
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
