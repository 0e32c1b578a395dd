//! The crash matrix of the examples: each of them ends the same, whatever write was the last one before a crash.
//!
//! Writes get one of the three troubles, in turn, and of the longer examples only some do, so that the whole takes
//! minutes; with `CRASH_MATRIX=all` every write of every example is the last one. The plain service in `crash_matrix` gets
//! every trouble at every write.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::time::Duration;

use capstan_tests::crash::{self, Trouble};
use capstan_tests::nim::{API, FOREIGN, example, state};
use capstan_tests::world::World;
use serde_json::{Value, json};

macro_rules! examples {
    ($($name:ident: $file:literal),* $(,)?) => {
        const FILES: &[&str] = &[$($file),*];
        $(
            #[tokio::test(start_paused = true)]
            async fn $name() {
                matrix($file).await;
            }
        )*
    };
}

examples! {
    autoscaling: "autoscaling",
    build: "build",
    cache_huggingface: "cache-huggingface",
    cache_ngc: "cache-ngc",
    cached: "cached",
    devices: "devices",
    gateway: "gateway",
    ingress: "ingress",
    kserve: "kserve",
    multi_node: "multi-node",
    pipeline: "pipeline",
    proxy: "proxy",
}

#[test]
fn every_example_is_in_the_matrix() {
    let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/nim")).unwrap();
    let mut there: Vec<String> =
        folder.map(|file| file.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned()).collect();
    there.sort();
    assert_eq!(there, FILES);
}

/// So many writes of an example are the last one, unless all are asked for.
const MOST: usize = 6;

async fn matrix(file: &str) {
    let (undisturbed, writes) = story(file, Trouble::None).await;
    assert!(writes >= 5, "{file} has only {writes} writes: something is not counted");
    let all = std::env::var("CRASH_MATRIX").is_ok_and(|value| value == "all");
    let step = if all { 1 } else { writes.div_ceil(MOST) };
    let mut cells = 0;
    for k in (1..=writes).step_by(step) {
        let trouble = Trouble::all(k)[cells % 3];
        let (end, _) = story(file, trouble).await;
        crash::assert_same_end(trouble, writes, &end, &undisturbed);
        cells += 1;
    }
    println!("crash matrix of {file}: {writes} writes, {cells} runs with trouble, all with the same end");
}

/// An example is applied and becomes ready. Returns the end state and how many writes the first operator made.
async fn story(file: &str, trouble: Trouble) -> (Value, usize) {
    println!("{file}: {trouble:?}");
    let (world, example) = (world(file).await, example(file));
    let (kind, name) = (example["kind"].as_str().unwrap(), example["metadata"]["name"].as_str().unwrap());
    let told = async {
        world.apply(example.clone()).await;
        world.until(API, kind, name, state("Ready")).await;
        world.rest().await;
    };
    let with_others = async {
        tokio::select! {
            () = told => {}
            () = others(&world) => {}
        }
    };
    let writes = crash::run(&world, trouble, with_others).await;
    (world.end_state().await, writes)
}

/// A cluster with what the examples need.
async fn world(file: &str) -> World {
    let world = World::start_embedded().await;
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
    match file {
        "cached" => ready_cache(&world, "llama-3-1-8b").await,
        "build" => ready_cache(&world, "llama").await,
        "devices" => gpus(&world).await,
        _ => {}
    }
    world
}

/// A cache that another operator has filled.
async fn ready_cache(world: &World, name: &str) {
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
    world.tell(API, "NIMCache", name, status).await;
}

/// Two GPUs on a node, by the driver's own word.
async fn gpus(world: &World) {
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

/// Controllers of others: they say that all is well with what is theirs.
async fn others(world: &World) {
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
                world.tell(api_version, kind, object["metadata"]["name"].as_str().unwrap(), status.clone()).await;
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
