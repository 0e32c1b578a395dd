//! Stories of a NIMCache and of what is built on it: from the manifest to Ready, and what may happen on the way.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use capstan_tests::nim::{API, condition, state};
use capstan_tests::wire::Fault;
use capstan_tests::world::World;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

fn cache(name: &str, image: &str) -> Value {
    json!({
        "apiVersion": API, "kind": "NIMCache", "metadata": {"name": name},
        "spec": {
            "source": {"ngc": {"authSecret": "ngc", "modelPuller": image, "model": {"profiles": ["trt"]}}},
            "storage": {"pvc": {"create": true, "size": "50Gi"}},
        },
    })
}

async fn world() -> World {
    furnished(World::start().await).await
}

async fn furnished(world: World) -> World {
    for kind in ["NIMCache", "NIMBuild", "NIMPipeline"] {
        world.install_ours(kind).await;
    }
    let key = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ngc"},
        "stringData": {"NGC_API_KEY": "k"},
    });
    world.apply(key).await;
    world
}

#[tokio::test(start_paused = true)]
async fn a_cache_becomes_ready_stays_so_without_its_job_and_then_costs_nothing() {
    let world = furnished(World::start_in_virtual_time(2).await).await;
    let operator = world.operator(Fault::None).await;
    world.apply(cache("llama", "nim:1")).await;
    let ready = world.until(API, "NIMCache", "llama", state("Ready")).await;
    assert_eq!(ready["status"]["pvc"], "llama-pvc");
    assert_eq!(ready["status"]["profiles"][0]["config"]["tp"], "2");
    let writes = world.settled(&operator).await;
    // The Job and its pods go after ten minutes.
    tokio::time::sleep(std::time::Duration::from_secs(900)).await;
    assert!(world.list("batch/v1", "Job").await.is_empty());
    assert_eq!(world.settled(&operator).await, writes);
    world.until(API, "NIMCache", "llama", state("Ready")).await;
}

#[tokio::test(start_paused = true)]
async fn a_download_that_cannot_work_says_why_and_is_tried_again() {
    let world = furnished(World::start_in_virtual_time(2).await).await;
    let _operator = world.operator(Fault::None).await;
    world.apply(cache("broken", "broken:1")).await;
    let failed = world.until(API, "NIMCache", "broken", state("Failed")).await;
    let message = condition(&failed, "Failed")["message"].as_str().unwrap();
    assert!(message.contains("container nim-cache-ctr: Error"), "{message}");
    let first = world.until("batch/v1", "Job", "broken-job", |_| true).await["metadata"]["uid"].clone();
    // A failed Job goes after ten minutes, which is as long as anything is waited for.
    tokio::time::sleep(std::time::Duration::from_secs(300)).await;
    world.until("batch/v1", "Job", "broken-job", |job| job["metadata"]["uid"] != first).await;
}

#[tokio::test(start_paused = true)]
async fn an_image_that_cannot_be_pulled_is_named() {
    let world = world().await;
    let _operator = world.operator(Fault::None).await;
    world.apply(cache("typo", "missing:1")).await;
    let told = |object: &Value| {
        let conditions = object["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|condition| {
            condition["message"]
                .as_str()
                .is_some_and(|message| message.starts_with("pod typo-pod: container nim-cache-ctr: ImagePullBackOff"))
        })
    };
    world.until(API, "NIMCache", "typo", told).await;
}

#[tokio::test(start_paused = true)]
async fn two_caches_share_an_account_that_goes_with_the_last_of_them() {
    let world = world().await;
    let operator = world.operator(Fault::None).await;
    let caches: Api<capstan_api::nim::NimCache> = Api::default_namespaced(world.admin.clone());
    for name in ["one", "two"] {
        world.apply(cache(name, "nim:1")).await;
        world.until(API, "NIMCache", name, state("Ready")).await;
    }
    caches.delete("one", &DeleteParams::default()).await.unwrap();
    world.settled(&operator).await;
    let accounts = world.list("v1", "ServiceAccount").await;
    assert!(accounts.iter().any(|account| account["metadata"]["name"] == "nim-cache-sa"));
    caches.delete("two", &DeleteParams::default()).await.unwrap();
    world.settled(&operator).await;
    for (api_version, kind, name) in [
        ("v1", "ServiceAccount", "nim-cache-sa"),
        ("rbac.authorization.k8s.io/v1", "Role", "nim-cache-role"),
        ("rbac.authorization.k8s.io/v1", "RoleBinding", "nim-cache-rolebinding"),
        ("v1", "PersistentVolumeClaim", "one-pvc"),
        ("v1", "PersistentVolumeClaim", "two-pvc"),
        ("v1", "ConfigMap", "two-manifest"),
    ] {
        let left = world.list(api_version, kind).await;
        assert!(!left.iter().any(|object| object["metadata"]["name"] == name), "{kind} {name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_build_adds_its_profile_to_the_cache() {
    let world = world().await;
    let operator = world.operator(Fault::None).await;
    world
        .apply(json!({
            "apiVersion": API, "kind": "NIMBuild", "metadata": {"name": "engine"},
            "spec": {
                "nimCache": {"name": "llama"}, "modelName": "tuned",
                "image": {"repository": "nim", "tag": "1"},
            },
        }))
        .await;
    let waiting = world.until(API, "NIMBuild", "engine", state("Failed")).await;
    assert_eq!(condition(&waiting, "NIM_BUILD_NIM_CACHE_NOT_FOUND")["reason"], "NIMCacheNotFound");
    world.apply(cache("llama", "nim:1")).await;
    let ready = world.until(API, "NIMBuild", "engine", state("Ready")).await;
    assert_eq!(ready["status"]["inputProfile"]["name"], "trt");
    assert_eq!(ready["status"]["outputProfile"]["name"], "built");
    let added = |object: &Value| object["status"]["profiles"].as_array().is_some_and(|profiles| profiles.len() == 2);
    let cache = world.until(API, "NIMCache", "llama", added).await;
    assert_eq!(cache["status"]["profiles"][1]["config"]["input_profile"], "trt");
    let writes = world.settled(&operator).await;
    assert_eq!(world.settled(&operator).await, writes);
    assert!(
        world
            .list("v1", "Pod")
            .await
            .iter()
            .all(|pod| pod["metadata"]["labels"]["batch.kubernetes.io/job-name"].is_string())
    );
}

fn pipeline(replicas: u32, second: bool) -> Value {
    let spec = json!({
        "image": {"repository": "nim", "tag": "1"}, "storage": {"emptyDir": {}}, "replicas": replicas,
    });
    json!({
        "apiVersion": API, "kind": "NIMPipeline", "metadata": {"name": "rag"},
        "spec": {"services": [
            {"name": "llm", "enabled": true, "spec": spec,
             "dependencies": [{"name": "embed", "port": 8000, "envName": "EMBED_URL"}]},
            {"name": "embed", "enabled": second, "spec": spec},
        ]},
    })
}

#[tokio::test(start_paused = true)]
async fn a_pipeline_follows_its_services_and_its_edits_reach_them() {
    let world = world().await;
    let operator = world.operator(Fault::None).await;
    world.apply(pipeline(1, true)).await;
    let ready = world.until(API, "NIMPipeline", "rag", state("Ready")).await;
    assert_eq!(ready["status"]["states"], json!({"llm": "Ready", "embed": "Ready"}));
    let deployment = world.until("apps/v1", "Deployment", "llm", |_| true).await;
    let env = deployment["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap();
    assert!(env.contains(&json!({"name": "EMBED_URL", "value": "http://embed:8000"})));

    world.apply(pipeline(2, false)).await;
    world.until("apps/v1", "Deployment", "llm", |deployment| deployment["spec"]["replicas"] == 2).await;
    let writes = world.settled(&operator).await;
    assert_eq!(world.settled(&operator).await, writes);
    let left: Vec<Value> = world.list(API, "NIMService").await.iter().map(|s| s["metadata"]["name"].clone()).collect();
    assert_eq!(left, ["llm"]);
}

#[tokio::test(start_paused = true)]
async fn a_pipeline_leaves_somebody_elses_service_alone() {
    let world = world().await;
    let theirs = json!({
        "apiVersion": API, "kind": "NIMService", "metadata": {"name": "llm"},
        "spec": {"image": {"repository": "theirs", "tag": "1"}, "storage": {"emptyDir": {}}},
    });
    world.apply(theirs).await;
    let _operator = world.operator(Fault::None).await;
    world.apply(pipeline(1, true)).await;
    let failed = world.until(API, "NIMPipeline", "rag", state("Failed")).await;
    let message = condition(&failed, "Failed")["message"].as_str().unwrap();
    assert!(message.contains(&format!("refuses to overwrite NIMService {}/llm", world.namespace)), "{message}");
    // The other services of the pipeline run all the same.
    world.until(API, "NIMService", "embed", state("Ready")).await;
    let services: Api<capstan_api::nim::NimService> = Api::default_namespaced(world.admin.clone());
    let patch = Patch::Merge(json!({"metadata": {"labels": {"touched": "yes"}}}));
    let live = services.patch("llm", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(live.spec.image.repository, "theirs");
}

#[tokio::test(start_paused = true)]
async fn the_examples_of_caches_builds_and_pipelines_are_understood_as_they_stand() {
    let world = world().await;
    let operator = world.operator(Fault::None).await;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/nim");
    let mut count = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let example: Value = serde_saphyr::from_str(&text).unwrap();
        let (kind, name) =
            (example["kind"].as_str().unwrap().to_owned(), example["metadata"]["name"].as_str().unwrap().to_owned());
        if kind == "NIMService" {
            continue;
        }
        count += 1;
        world.apply(example).await;
        let object = world.until(API, &kind, &name, |object| !object["status"]["state"].is_null()).await;
        let conditions = object["status"]["conditions"].as_array().unwrap();
        let bad = conditions.iter().find(|one| one["reason"] == "InvalidSpec" || one["type"] == "IgnoredFields");
        assert_eq!(bad, None, "{kind} {name}");
    }
    assert_eq!(count, 4);
    let writes = world.settled(&operator).await;
    assert_eq!(world.settled(&operator).await, writes);
}
